//! The files of a new directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::{Tenant, open_directory, permit};
use crate::layout::{LimitsFile, UsageFile};
use crate::limits;
use crate::map::{Mapped, Mapping};
use crate::slots;
use crate::sys::{self, Lock};

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
