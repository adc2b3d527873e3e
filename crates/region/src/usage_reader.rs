//! `usage` as other programs read it: with `pread`, never mapped. So a tenant that truncates it or scribbles in it
//! harms no other process. Every figure is what the tenant wrote, bounded but not believed (I12, I15).

use core::mem::offset_of;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::open::{OpenError, open_checked};
use crate::process::{Identity, Liveness, ProcessView};
use crate::slots::{self, State};
use crate::{DeviceIndex, MAX_SLOTS};

mod digest;
mod figures;
mod memory;
mod time;
mod words;

pub use digest::UsageDigest;
pub use figures::{BucketUse, DeviceUse, MemoryUse, ProcessUse, Work};
use words::{half, use_of_line};
pub(crate) use words::{identity_of_record, word};

/// A tenant's `usage`, opened for reading.
#[derive(Debug)]
pub struct UsageReader {
    file: File,
    path: PathBuf,
}

impl UsageReader {
    /// Opens `usage` in `directory`.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_checked::<UsageFile>(&path, false)?;
        Ok(Self { file, path })
    }

    /// The processes that hold a slot, with their use of the first `device_count` devices. Processes that `view`
    /// knows to be dead are left out, unless a child may keep their memory.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn processes(&self, device_count: usize, view: &ProcessView) -> Result<Vec<ProcessUse>, OpenError> {
        let mut found = self.all_processes(device_count)?;
        found.retain(|process| !self.is_gone(process.slot, &process.identity, view));
        Ok(found)
    }

    /// Whether a child of the process in a slot may keep its memory beyond its death: see [`crate::slots::Usage::reap_dead`].
    pub fn is_kept(&self, slot: usize, identity: &Identity) -> bool {
        self.is_locked(slot, identity) == Some(true)
    }

    /// Whether the process in a slot had a lock, and neither it nor a child of it has it now. For a process that cannot
    /// be seen, that means that it has ended.
    pub fn is_unlocked(&self, slot: usize, identity: &Identity) -> bool {
        self.is_locked(slot, identity) == Some(false)
    }

    /// Whether the lock of the process in a slot is held, by itself or by a child of it; `None` if it never had one, or
    /// has left the slot.
    fn is_locked(&self, slot: usize, identity: &Identity) -> Option<bool> {
        let record =
            offset_of!(UsageFile, identities) + slot.min(MAX_SLOTS - 1) * size_of::<IdentityRecord>();
        let bytes = self.read(record, size_of::<IdentityRecord>()).ok()?;
        let state = State(word(&bytes, offset_of!(IdentityRecord, state)));
        let has_locked = state.is_live()
            && state.pid() == identity.pid
            && word(&bytes, offset_of!(IdentityRecord, locked_state)) == state.0;
        has_locked.then(|| slots::is_locked(&self.file, slot))
    }

    /// The processes that hold a slot, including dead ones, with their use of the first `device_count` devices.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn all_processes(&self, device_count: usize) -> Result<Vec<ProcessUse>, OpenError> {
        let identities = self.identities()?;
        let slots = identities.last().map_or(0, |(slot, _)| slot + 1);
        let mut found: Vec<ProcessUse> = identities
            .into_iter()
            .map(|(slot, identity)| ProcessUse { slot, identity, devices: Vec::new() })
            .collect();
        for device in DeviceIndex::all().take(device_count) {
            let lines = self.slot_devices(device, slots)?;
            for process in &mut found {
                let line = lines.get(process.slot);
                let use_now = line.map(|(line, head)| use_of_line(line, *head));
                process.devices.push(use_now.unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// Whether any process that holds a slot lives, or may live, or has left memory that a child may keep.
    pub(crate) fn has_living(&self, view: &ProcessView) -> Result<bool, OpenError> {
        Ok(self.identities()?.iter().any(|(slot, identity)| !self.is_gone(*slot, identity, view)))
    }

    /// Whether the process in a slot is dead, and no child may keep its memory and contexts. For a PID namespace that
    /// `view` cannot see, the lock tells, as in [`crate::slots::Usage::reap_dead`]: a manager on a node that is itself
    /// a container cannot see that of an ended container. A manager in the machine's first PID namespace sees every
    /// process that it may read; others count as in use.
    pub fn is_gone(&self, slot: usize, identity: &Identity, view: &ProcessView) -> bool {
        match view.liveness(identity) {
            Liveness::Alive => false,
            Liveness::Dead => !self.is_kept(slot, identity),
            Liveness::Unknown => {
                !view.sees_all() && view.cannot_see(identity) && self.is_locked(slot, identity) == Some(false)
            }
        }
    }

    fn identities(&self) -> Result<Vec<(usize, Identity)>, OpenError> {
        let used = self.read(offset_of!(UsageFile, slots_used), 4)?;
        let used = (half(&used, 0) as usize).min(MAX_SLOTS);
        let records = self.read(offset_of!(UsageFile, identities), used * size_of::<IdentityRecord>())?;
        let records = records.chunks_exact(size_of::<IdentityRecord>()).enumerate();
        Ok(records.filter_map(|(slot, record)| Some((slot, identity_of_record(record)?))).collect())
    }

    /// The records of the first `slots` slots on `device`, each with its head. A record is read between two looks at
    /// its head, so that both amounts are of the same moment. If it changes all the time, it is taken as it was read.
    fn slot_devices(&self, device: DeviceIndex, slots: usize) -> Result<Vec<(Vec<u8>, u64)>, OpenError> {
        const LINE: usize = size_of::<SlotDevice>();
        let offset = offset_of!(UsageFile, devices) + device.get() * MAX_SLOTS * LINE;
        let mut before = self.read(offset, slots * LINE)?;
        let mut found = vec![None; slots];
        for attempt in 0..8 {
            if found.iter().all(Option::is_some) {
                break;
            }
            let lines = self.read(offset, slots * LINE)?;
            let after = self.read(offset, slots * LINE)?;
            for ((slot, line), found) in lines.chunks_exact(LINE).enumerate().zip(&mut found) {
                let head = |bytes| word(bytes, slot * LINE);
                if found.is_none() && (head(&before) == head(&after) || attempt == 7) {
                    *found = Some((line.to_vec(), head(&after)));
                }
            }
            before = after;
        }
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Reasons why calls of the process in `slot` reached the driver past the shim, as bits
    /// ([`Bypass::of_word`](crate::bypass::Bypass::of_word)).
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn bypasses(&self, slot: usize) -> Result<u64, OpenError> {
        let record =
            offset_of!(UsageFile, identities) + slot.min(MAX_SLOTS - 1) * size_of::<IdentityRecord>();
        Ok(word(&self.read(record + offset_of!(IdentityRecord, bypasses), 8)?, 0))
    }

    fn read(&self, offset: usize, size: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; size];
        match self.file.read_exact_at(&mut bytes, offset as u64) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(OpenError::Io(self.path.clone(), error)),
        }
    }
}
