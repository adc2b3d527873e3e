//! The tenant's files, as this process has them open.

use std::path::PathBuf;

use vcuda_region::DeviceIndex;
use vcuda_region::limits::Limits;
use vcuda_region::slots::Usage;

/// The tenant's two files.
#[derive(Debug)]
pub(crate) struct Region {
    /// The limits: what the tenant may use.
    pub(crate) limits: Limits,
    /// The usage: what it uses.
    pub(crate) usage: &'static Usage,
    pub(crate) directory: PathBuf,
    pub(super) memory_ceiling_bytes: u64,
}

impl Region {
    /// The limit of a device in bytes, lowered by the environment; 0 if the limits are damaged.
    #[inline]
    pub(crate) fn memory_limit_bytes(&self, device: DeviceIndex) -> u64 {
        self.limits.followed_limit_bytes(device).min(self.memory_ceiling_bytes)
    }
}
