//! Directories of transient grants, which live while a process holds them: who enters one locks it shared, as does its whole family of
//! processes; the manager ends one that it can lock alone.

use core::time::Duration;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::in_use::{has_living_slots, is_linked, named_by_environments};
use super::{Directory, DirectoryError, open_directory};
use crate::process::Identity;
use crate::sys::{self, Lock};
use crate::usage_reader::UsageReader;

/// Time for which the manager may look at a directory, or end, before a caller gives up: that of a call to it. The looks take milliseconds,
/// and seconds where it lacks processor time.
const LOOKS_WITHIN: Duration = Duration::from_secs(10);

/// An unused directory, which no process can enter before this is dropped, or the place of one that is gone.
#[derive(Debug)]
pub struct Unused {
    _lock: Option<File>,
}

/// Locks those of these transient grants' directories that nothing needs any more: no process has it locked, or was started with it in its
/// environment, or has a slot, and no memory that it exported is kept by another process. `None` stands for one that something needs, or
/// that cannot be opened or locked.
pub fn lock_unused(paths: &[PathBuf], me: &Identity) -> Vec<Option<Unused>> {
    let mut locked: Vec<_> = paths.iter().map(|path| lock_idle(path, me)).collect();
    if locked.iter().any(Option::is_some) {
        // Read once for all, and after the locks: no process can be started with one of them any more.
        let named = named_by_environments();
        for (_, lock) in paths.iter().zip(&mut locked).filter(|(path, _)| named.contains(*path)) {
            *lock = None;
        }
    }
    locked
}

/// Locks a directory in which no process is seen.
fn lock_idle(path: &Path, me: &Identity) -> Option<Unused> {
    let lock = match open_directory(path) {
        // The manager makes a directory again whose processes live.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Unused { _lock: None }),
        opened => opened.ok()?,
    };
    let is_alone = sys::try_lock(&lock, Lock::Exclusive).ok()?;
    let is_idle = is_alone && is_linked(path, &lock) && !has_living_slots(path, me) && !has_left(path);
    is_idle.then_some(Unused { _lock: Some(lock) })
}

impl Directory {
    /// Enters a transient grant's directory, which then lives as long as this value. `None` if it has ended meanwhile.
    ///
    /// # Errors
    /// The directory cannot be opened or locked.
    pub fn enter(path: &Path) -> Result<Option<Self>, DirectoryError> {
        let io = |error| DirectoryError::Io(path.to_owned(), error);
        let lock = match open_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| DirectoryError::of_open(path, error))?,
        };
        if !sys::lock_within(&lock, Lock::Shared, LOOKS_WITHIN).map_err(io)? {
            return Err(DirectoryError::Busy(path.to_owned()));
        }
        Ok(is_linked(path, &lock).then(|| Self { path: path.to_owned(), lock }))
    }
}

/// Whether other processes keep memory that the dead ones of the directory exported (I18). A directory that cannot be read has none.
fn has_left(path: &Path) -> bool {
    UsageReader::open(path).is_ok_and(|usage| usage.left().is_ok_and(|left| !left.is_empty()))
}
