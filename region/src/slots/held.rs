//! A lock on a byte of `usage` that each process has (an open file description's, fcntl(2)), and that the kernel drops with the
//! last descriptor. Closed on `exec` and inherited by `fork`, as the driver's own descriptors are, it tells two things.
//!
//! Of a dead process: whether a child of it may still have the driver's descriptors, and with them the memory
//! (docs/hardware.md, "end of a process").
//!
//! Of a process whose PID namespace cannot be seen: whether it lives. A container that is started again has another
//! namespace than before, from which those of its first life cannot be seen. A program that closes descriptors it does not
//! know lets go of the lock, so it is asked about the living only where nothing else is known.

use std::fs::File;

use crate::sys;

/// Beyond the end of any file of ours: these bytes are only locked.
const FIRST_BYTE: u64 = 1 << 40;

/// Whether another opening of `usage` than `file` has the byte of a slot locked. Unknown counts as locked.
pub(crate) fn is_locked(file: &File, slot: usize) -> bool {
    !matches!(sys::is_byte_locked(file, FIRST_BYTE + slot as u64), Ok(false))
}

/// `usage`, open for as long as this process lives.
#[derive(Debug)]
pub(super) struct Held(Option<File>);

impl Held {
    /// By this descriptor, put out of the way of programs that expect theirs from 3 on.
    pub(super) fn by(file: &File) -> Self {
        Self(sys::aside(file).ok())
    }

    /// Of memory that is no file.
    pub(super) const fn by_nothing() -> Self {
        Self(None)
    }

    /// Locks the byte of a slot. `false` if another has it, or there are no locks to be had.
    pub(super) fn take(&self, slot: usize) -> bool {
        self.0
            .as_ref()
            .is_some_and(|file| sys::try_lock_byte(file, FIRST_BYTE + slot as u64).is_ok())
    }

    /// Unlocks the byte of a slot of ours.
    pub(super) fn let_go(&self, slot: usize) {
        if let Some(file) = &self.0 {
            sys::unlock_byte(file, FIRST_BYTE + slot as u64);
        }
    }

    /// Whether nobody has the byte of a slot locked, but perhaps ourselves.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        self.0.as_ref().is_some_and(|file| !is_locked(file, slot))
    }
}
