//! Whether a directory is in use: by a lock, by a process whose environment names it, or by a slot.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{DirectoryError, ENV_DIRECTORY};
use crate::process::{Identity, ProcessView, environment};
use crate::sys::{self, Lock};
use crate::usage_reader::UsageReader;

/// The result of an attempt to lock a directory.
pub(super) enum LockOutcome {
    /// Locked shared: a run lives here, and the directory cannot be removed any more.
    Living,
    /// Locked exclusively: no process lives here, and none can join.
    Dead,
    /// The name belongs to another directory by now.
    Gone,
    /// Another process has it locked exclusively, for a moment.
    Locked,
}

pub(super) fn lock_directory(path: &Path, lock: &File, me: &Identity) -> Result<LockOutcome, DirectoryError> {
    let io = |error| DirectoryError::Io(path.to_owned(), error);
    let alone = sys::try_lock(lock, Lock::Exclusive).map_err(io)?;
    if alone && is_linked(path, lock) && !has_living_slots(path, me) && !is_in_an_environment(path) {
        return Ok(LockOutcome::Dead);
    }
    // A change to shared opens the lock for a moment, so the name is looked up afterwards.
    if !sys::try_lock(lock, Lock::Shared).map_err(io)? {
        return Ok(LockOutcome::Locked);
    }
    Ok(if is_linked(path, lock) { LockOutcome::Living } else { LockOutcome::Gone })
}

/// Whether `path` still names the directory that is open as `lock`.
pub(super) fn is_linked(path: &Path, lock: &File) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    fs::symlink_metadata(path).is_ok_and(|named| lock.metadata().is_ok_and(|open| same(named, open)))
}

/// Whether a process other than the calling one was started with this directory in its environment. A daemon closes
/// inherited descriptors, and may use a GPU only later.
pub(super) fn is_in_an_environment(path: &Path) -> bool {
    let mut meant = ENV_DIRECTORY.as_bytes().to_vec();
    meant.push(b'=');
    meant.extend_from_slice(path.as_os_str().as_bytes());
    let is_process = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let me = std::process::id().to_string();
    // Another user's environment is not shown, nor that of a process that has just ended.
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_process(&entry.file_name()) && entry.file_name() != me.as_str())
        .filter_map(|entry| environment(&entry.path()).ok())
        .any(|variables| variables.split(|byte| *byte == 0).any(|one| one == meant))
}

/// Whether a slot of `usage` belongs to a living process. A `usage` that cannot be read has no slots: its processes,
/// if they live, have only harmed themselves. One of another version may have some: it is left to a program that can
/// read it.
pub(super) fn has_living_slots(path: &Path, me: &Identity) -> bool {
    match UsageReader::open(path) {
        Ok(usage) => usage.has_living(&ProcessView::new(*me)).unwrap_or(false),
        Err(error) => error.is_of_another_version(),
    }
}
