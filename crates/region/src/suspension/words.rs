//! The manager's side: reads and writes the words in a tenant's `usage` file. It touches no mapping of that, as the tenant may cut the
//! file short at any time.

use core::mem::offset_of;
use core::sync::atomic::{Ordering, fence};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{SuspendState, THREADS};
use crate::MAX_SLOTS;
use crate::layout::{IdentityRecord, UsageFile};
use crate::map::Mapping;
use crate::open::{OpenError, open_checked};
use crate::process::Identity;
use crate::slots::State;
use crate::sys;
use crate::usage_reader::{identity_of_record, word};

/// The gate of a process, as the process tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessGate {
    /// The process.
    pub identity: Identity,
    /// Whether its calls pass a gate.
    pub has_gate: bool,
    /// Number of its threads inside the driver.
    pub inside: u64,
    /// Number of its calls so far, modulo 2^32.
    pub calls: u64,
}

/// A tenant's words of suspension, opened for writing.
#[derive(Debug)]
pub struct SuspensionWords {
    file: File,
    path: PathBuf,
}

impl SuspensionWords {
    /// Opens `usage` in `directory`.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_checked::<UsageFile>(&path, true)?;
        Ok(Self { file, path })
    }

    /// The state as the tenant's processes see it.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn state(&self) -> Result<SuspendState, OpenError> {
        let word = self.half(offset_of!(UsageFile, suspend_state))?;
        Ok(SuspendState::of_word(word))
    }

    /// Tells the tenant's processes the state, and wakes the threads that wait for another one. Requests to resume that came before a suspension are forgotten.
    ///
    /// # Errors
    /// The file cannot be written, or was truncated.
    pub fn set_state(&self, state: SuspendState) -> Result<(), OpenError> {
        if state == SuspendState::Suspending {
            self.write(offset_of!(UsageFile, resume_wanted), 0)?;
        }
        self.write(offset_of!(UsageFile, suspend_state), state.word())?;
        // Pairs with `Gate::try_enter`: the counts are read behind this.
        fence(Ordering::SeqCst);
        self.wake_waiting();
        Ok(())
    }

    /// Wakes the threads that wait for another state. They look by themselves, too, so a failure is no loss.
    fn wake_waiting(&self) {
        if let Ok(usage) = Mapping::<UsageFile>::of_file(&self.file, false) {
            // The kernel needs an address to find the word; nothing is read or written there.
            sys::wake_all(core::ptr::from_ref(&usage.suspend_state).cast());
        }
    }

    /// Whether a process asks to be resumed.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn is_resume_wanted(&self) -> Result<bool, OpenError> {
        Ok(self.half(offset_of!(UsageFile, resume_wanted))? != 0)
    }

    /// Takes the requests for room: a bit for each device. A process that waits asks again ([`crate::room::ASK_AGAIN_NS`]).
    ///
    /// # Errors
    /// The file cannot be read or written, or was truncated.
    pub fn take_room_wanted(&self) -> Result<u32, OpenError> {
        let wanted = self.half(offset_of!(UsageFile, room_wanted))?;
        if wanted != 0 {
            self.write(offset_of!(UsageFile, room_wanted), 0)?;
        }
        Ok(wanted)
    }

    /// Number of allocations within the quota that the driver refused.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn room_denied(&self) -> Result<u32, OpenError> {
        self.half(offset_of!(UsageFile, room_denied))
    }

    /// The processes that hold a slot, including dead ones, each with its gate.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn gates(&self) -> Result<Vec<ProcessGate>, OpenError> {
        const RECORD: usize = size_of::<IdentityRecord>();
        let used = self.half(offset_of!(UsageFile, slots_used))? as usize;
        let records = self.read(offset_of!(UsageFile, identities), used.min(MAX_SLOTS) * RECORD)?;
        let gate = |record: &[u8]| {
            let state = State(word(record, offset_of!(IdentityRecord, state)));
            let inside = word(record, offset_of!(IdentityRecord, inside));
            Some(ProcessGate {
                identity: identity_of_record(record)?,
                has_gate: word(record, offset_of!(IdentityRecord, gate_state)) == state.0,
                inside: inside & THREADS,
                calls: inside >> 32,
            })
        };
        Ok(records.chunks_exact(RECORD).filter_map(gate).collect())
    }

    fn half(&self, offset: usize) -> Result<u32, OpenError> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, offset as u64).map_err(|error| self.failed(error))?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read(&self, offset: usize, size: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, offset as u64).map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    fn write(&self, offset: usize, word: u32) -> Result<(), OpenError> {
        self.file.write_all_at(&word.to_ne_bytes(), offset as u64).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> OpenError {
        OpenError::Io(self.path.clone(), error)
    }
}
