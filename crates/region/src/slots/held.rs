//! The lock of each process on a byte of `usage` (an open file description's, fcntl(2)). The kernel drops it with the
//! last descriptor. It is closed on `exec` and inherited by `fork`, as the driver's own descriptors are. It tells two
//! things.
//!
//! First, whether a child of a dead process may still have the driver's descriptors, and with them the memory
//! (docs/hardware.md, "end of a process").
//!
//! Second, whether a process lives whose PID namespace cannot be seen. A restarted container has another namespace
//! than before, from which processes of its first life cannot be seen. A program that closes descriptors it does not
//! know drops the lock. So the lock is asked about the living only if nothing else is known.
//!
//! A process that ends, or calls `exec`, closes all descriptors at once. The kernel releases their files one after
//! the other: the highest number first since Linux 4.3, the lowest first before that. A busy machine may stop it
//! between two of them. The lock must not be released before the driver's files. So a second descriptor, of a socket,
//! has the opening in its queue: the kernel releases queued files after all that the process had open itself.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::sys;

/// First locked byte, beyond the end of any file of vcuda: these bytes are only locked.
const FIRST_BYTE: u64 = 1 << 40;

/// Whether an opening of `usage` other than `file` has locked the byte of a slot. Unknown counts as locked.
pub(crate) fn is_locked(file: &File, slot: usize) -> bool {
    !matches!(sys::is_byte_locked(file, FIRST_BYTE + slot as u64), Ok(false))
}

/// `usage`, open for as long as this process lives.
#[derive(Debug)]
pub(super) struct Held {
    file: Option<File>,
    /// Descriptor whose close releases the locks of `file`, after the process's other descriptors. `None` if the
    /// system gives no socket: then the kernel's order applies.
    _last: Option<OwnedFd>,
}

impl Held {
    /// Keeps a duplicate of `file`. It has a high number, as programs expect theirs from 3 on.
    pub(super) fn of_file(file: &File) -> Self {
        Self { file: sys::aside(file).ok(), _last: sys::released_last(file).ok() }
    }

    /// No file and no locks, for memory that is no file.
    pub(super) const fn none() -> Self {
        Self { file: None, _last: None }
    }

    /// Sets the file's times to now.
    pub(super) fn touch(&self) {
        if let Some(file) = &self.file {
            sys::touch(file);
        }
    }

    /// Locks the byte of a slot. Returns `false` if another process has it, or there are no locks.
    pub(super) fn try_lock(&self, slot: usize) -> bool {
        self.file.as_ref().is_some_and(|file| sys::try_lock_byte(file, FIRST_BYTE + slot as u64).is_ok())
    }

    /// Unlocks the byte of a slot of this process.
    pub(super) fn unlock(&self, slot: usize) {
        if let Some(file) = &self.file {
            sys::unlock_byte(file, FIRST_BYTE + slot as u64);
        }
    }

    /// Whether no other process has locked the byte of a slot.
    pub(super) fn is_unlocked(&self, slot: usize) -> bool {
        self.file.as_ref().is_some_and(|file| !is_locked(file, slot))
    }
}
