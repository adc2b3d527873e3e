//! What a run takes over from the dead run of its name: its debt of GPU time (I16), and exported memory that other processes
//! keep (I18).

use std::path::Path;

use super::{DirectoryError, Tenant, debts};
use crate::GpuUuid;
use crate::limits::Limits;
use crate::shared::Left;
use crate::usage_reader::UsageReader;

/// Debts and memory of a dead run, by GPU.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    pub(super) debts: Vec<(GpuUuid, i64)>,
    pub(super) left: Vec<(GpuUuid, Left)>,
}

impl Inherited {
    /// What the dead run of this directory leaves at `now_ns` (`CLOCK_MONOTONIC`) to a run of `tenant`.
    ///
    /// # Errors
    /// Memory is left on a GPU that the new run has not.
    pub(super) fn read(path: &Path, tenant: &Tenant, now_ns: u64) -> Result<Self, DirectoryError> {
        let left = left(path);
        let is_its = |gpu: &GpuUuid| tenant.devices.iter().any(|(own, _)| own == gpu);
        if let Some((gpu, _)) = left.iter().find(|(gpu, _)| !is_its(gpu)) {
            return Err(DirectoryError::Left(path.to_owned(), *gpu));
        }
        Ok(Self { debts: debts::read(path, now_ns), left })
    }
}

/// Memory that the dead run of a directory leaves. A directory that cannot be read leaves none.
pub(super) fn left(path: &Path) -> Vec<(GpuUuid, Left)> {
    let (Ok(limits), Ok(usage)) = (Limits::read(path), UsageReader::open(path)) else {
        return Vec::new();
    };
    let gpu_of = |left: &Left| limits.devices().find(|(device, _)| *device == left.device);
    let left = usage.left().unwrap_or_default().into_iter();
    left.filter_map(|left| Some((gpu_of(&left)?.1, left))).collect()
}
