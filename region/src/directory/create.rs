//! Creation of a directory: under a temporary name first, then renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::inherited::Inherited;
use super::{DirectoryError, Tenant, debts, open_directory, permit};
use crate::layout::{LimitsFile, UsageFile};
use crate::limits;
use crate::map::{Mapped, Mapping};
use crate::process::Identity;
use crate::shared::Left;
use crate::slots::{self, Usage};
use crate::sys::{self, Lock};
use crate::{DeviceIndex, GpuUuid};

/// Makes the complete directory under a temporary name, and then renames it. `None` if another process was faster.
pub(super) fn create(
    containers: &Path,
    path: &Path,
    (tenant, inherited): (&Tenant, &Inherited),
    me: &Identity,
    (now_ns, attempt): (u64, u32),
) -> Result<Option<File>, DirectoryError> {
    let new = containers.join(format!(".new-{}-{now_ns}-{attempt}", me.pid));
    let made = fill_new(&new, tenant, &inherited.left, me, now_ns).and_then(|lock| {
        debts::write(&new, &inherited.debts).map_err(io::Error::other)?;
        sys::rename_new(&new, path).map(|()| lock)
    });
    match made {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => {
            // A later command removes the rest.
            let _ = fs::remove_dir_all(&new);
            if error.kind() == io::ErrorKind::AlreadyExists {
                Ok(None)
            } else {
                Err(DirectoryError::Io(new, error))
            }
        }
    }
}

fn fill_new(
    new: &Path,
    tenant: &Tenant,
    left: &[(GpuUuid, Left)],
    me: &Identity,
    now_ns: u64,
) -> io::Result<File> {
    let lock = make_files(new, tenant, now_ns)?;
    permit(new, 0o755)?;
    let usage = Usage::open(new).map_err(io::Error::other)?;
    let slot = usage.claim(me).map_err(io::Error::other)?;
    for (gpu, left) in left {
        let place = tenant.devices.iter().position(|(own, _)| own == gpu);
        if let Some(device) = place.and_then(DeviceIndex::new) {
            slot.inherit(left, device);
        }
    }
    Ok(lock)
}

/// Makes the directory with its two files, closed to others. No process takes it for abandoned while the returned
/// lock lives.
pub(super) fn make_files(new: &Path, tenant: &Tenant, now_ns: u64) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(new)?;
    let lock = open_directory(new)?;
    sys::try_lock(&lock, Lock::Shared)?;
    let mapped = new_file::<LimitsFile>(&new.join("limits"), 0o644)?;
    limits::fill(&mapped, &tenant.name, &tenant.devices, now_ns);
    if tenant.is_suspendable {
        limits::mark_suspendable(&mapped);
    }
    limits::set_memory_wait(&mapped, tenant.memory_wait_ms);
    let mapped = new_file::<UsageFile>(&new.join("usage"), 0o666)?;
    slots::fill(&mapped);
    Ok(lock)
}

/// A new file of the size of `T`, all zeros, with its space reserved: a full disk is an error here and no fault
/// later.
pub(super) fn new_file<T: Mapped>(path: &Path, mode: u32) -> io::Result<Mapping<T>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    sys::reserve_space(&file, size_of::<T>())?;
    permit(path, mode)?;
    Mapping::of_file(&file, true)
}
