//! What tells of a process's end where its PID namespace cannot be seen: a lock on a byte of `usage` (an open file
//! description's, fcntl(2)), which the kernel drops with the last descriptor. A container that is started again has another
//! namespace than before, from which those of its first life cannot be seen.
//!
//! It says less than the kernel does of a process that can be seen: a program that closes descriptors it does not know
//! lets go of it too, and a child that goes on without `exec` keeps it. It is therefore asked only where nothing else is
//! known, and only of who said that it took it.

use std::fs::File;

use crate::sys;

/// Beyond the end of any file of ours: these bytes are only locked.
const FIRST_BYTE: u64 = 1 << 40;

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
        self.0
            .as_ref()
            .is_some_and(|file| matches!(sys::is_byte_locked(file, FIRST_BYTE + slot as u64), Ok(false)))
    }
}
