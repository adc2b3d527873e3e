//! A lock on a byte of `usage` that each process has (an open file description's, fcntl(2)), and that the kernel drops with the
//! last descriptor. Closed on `exec` and inherited by `fork`, as the driver's own descriptors are, it tells two things.
//!
//! Of a dead process: whether a child of it may still have the driver's descriptors, and with them the memory
//! (docs/hardware.md, "end of a process").
//!
//! Of a process whose PID namespace cannot be seen: whether it lives. A container that is started again has another
//! namespace than before, from which those of its first life cannot be seen. A program that closes descriptors it does not
//! know lets go of the lock, so it is asked about the living only where nothing else is known.
//!
//! A process that ends, or calls `exec`, closes all descriptors in one go, and the kernel releases what they stand for one
//! after the other: the highest number first since Linux 4.3, the lowest first before that. A busy machine may stop it
//! between two of them. So that the lock is never released before the driver's files, a second descriptor, of a socket, has
//! the opening in its queue: the kernel releases what is queued after all that the process had open itself.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::sys;

/// Beyond the end of any file of ours: these bytes are only locked.
const FIRST_BYTE: u64 = 1 << 40;

/// Whether another opening of `usage` than `file` has the byte of a slot locked. Unknown counts as locked.
pub(crate) fn is_locked(file: &File, slot: usize) -> bool {
    !matches!(sys::is_byte_locked(file, FIRST_BYTE + slot as u64), Ok(false))
}

/// `usage`, open for as long as this process lives.
#[derive(Debug)]
pub(super) struct Held {
    file: Option<File>,
    /// What releases the locks of `file` after the process's other descriptors. Nothing where the system gives no socket:
    /// then the order is the kernel's.
    _last: Option<OwnedFd>,
}

impl Held {
    /// By this descriptor, put out of the way of programs that expect theirs from 3 on.
    pub(super) fn by(file: &File) -> Self {
        Self {
            file: sys::aside(file).ok(),
            _last: sys::released_last(file).ok(),
        }
    }

    /// Of memory that is no file.
    pub(super) const fn by_nothing() -> Self {
        Self {
            file: None,
            _last: None,
        }
    }

    /// Locks the byte of a slot. `false` if another has it, or there are no locks to be had.
    pub(super) fn take(&self, slot: usize) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| sys::try_lock_byte(file, FIRST_BYTE + slot as u64).is_ok())
    }

    /// Unlocks the byte of a slot of ours.
    pub(super) fn let_go(&self, slot: usize) {
        if let Some(file) = &self.file {
            sys::unlock_byte(file, FIRST_BYTE + slot as u64);
        }
    }

    /// Whether no process has the byte of a slot locked, but perhaps this one.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        self.file.as_ref().is_some_and(|file| !is_locked(file, slot))
    }
}
