//! A tenant's use of a device's memory, by the ledger's own arithmetic over a copy of its records.

use core::mem::offset_of;

use vcuda_limiter::token_bucket::Meter;

use super::words::{half, record_of_line, use_of_line, word};
use super::{MemoryUse, UsageReader};
use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::ledger::{Ledger, Party, Record};
use crate::open::OpenError;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::process::ProcessView;
use crate::shared::{Left, MAX_OBJECTS, ObjectRecord, Objects};
use crate::{DeviceIndex, MAX_SLOTS};

impl UsageReader {
    /// The tenant's memory on `device`. Dead processes count until a process of the tenant clears them.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn memory(&self, device: DeviceIndex) -> Result<MemoryUse, OpenError> {
        self.memory_without(device, &[])
    }

    /// Most memory that the process of a slot had at once, also one that has ended (bytes).
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn peak_bytes(&self, device: DeviceIndex) -> Result<u64, OpenError> {
        let used = self.read(offset_of!(UsageFile, slots_used), 4)?;
        let slots = (half(&used, 0) as usize).min(MAX_SLOTS);
        let lines = self.slot_devices(device, slots)?;
        Ok(lines.into_iter().map(|(line, head)| use_of_line(&line, head).peak_bytes).max().unwrap_or(0))
    }

    /// Exported memory of a tenant without living processes, of which the release is not proved.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn left(&self) -> Result<Vec<Left>, OpenError> {
        let used = self.read(offset_of!(UsageFile, objects_used), 4)?;
        let places = (half(&used, 0) as usize).min(MAX_OBJECTS);
        let states = self.read(offset_of!(UsageFile, object_states), places * 8)?;
        let objects = self.read(offset_of!(UsageFile, objects), places * size_of::<ObjectRecord>())?;
        let objects = objects.chunks_exact(size_of::<ObjectRecord>()).enumerate();
        let all = objects.filter_map(|(place, record)| Left::of_bytes(word(&states, place * 8), record));
        Ok(all.filter(|left| !left.is_released()).collect())
    }

    /// Bytes of [`UsageReader::left`] on `device`, for figures.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn left_bytes(&self, device: DeviceIndex) -> Result<u64, OpenError> {
        let left = self.left()?;
        let own = left.iter().filter(|left| left.device == device && left.is_shown());
        Ok(own.fold(0, |sum, left| sum.saturating_add(left.bytes)))
    }

    /// As [`UsageReader::memory`], without the processes that `view` knows to be dead and whose memory no child may
    /// keep. Objects that these held count as long as a living process holds them too, or something else may keep
    /// them. If no living process has anything on the device itself, the caller asks whether they still exist
    /// ([`UsageReader::left`]).
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn memory_of_living(&self, device: DeviceIndex, view: &ProcessView) -> Result<MemoryUse, OpenError> {
        let dead: Vec<usize> = self
            .identities()?
            .into_iter()
            .filter(|(slot, identity)| self.is_gone(*slot, identity, view))
            .map(|(slot, _)| slot)
            .collect();
        let memory = self.memory_without(device, &dead)?;
        if memory.used_bytes == memory.shared_bytes {
            let left_bytes = self.left_bytes(device)?;
            return Ok(MemoryUse { used_bytes: left_bytes, shared_bytes: left_bytes });
        }
        Ok(memory)
    }

    fn memory_without(&self, device: DeviceIndex, dead: &[usize]) -> Result<MemoryUse, OpenError> {
        let mut seen = self.seen(device, dead)?;
        for _ in 0..8 {
            let again = self.seen(device, dead)?;
            let is_one_moment = again.1 == seen.1;
            seen = again;
            if is_one_moment {
                break;
            }
        }
        Ok(seen.0)
    }

    /// A look at records and objects, in the ledger's order, and the sum of the changes. The processes in the slots
    /// `dead` have nothing and hold nothing.
    fn seen(&self, device: DeviceIndex, dead: &[usize]) -> Result<(MemoryUse, u64), OpenError> {
        let [slots, places] = [
            (offset_of!(UsageFile, slots_used), MAX_SLOTS),
            (offset_of!(UsageFile, objects_used), MAX_OBJECTS),
        ]
        .map(|(offset, most)| Ok((half(&self.read(offset, 4)?, 0) as usize).min(most)));
        let (slots, places) = (slots?, places?);
        let records: Vec<SlotDevice> = self
            .slot_devices(device, slots)?
            .into_iter()
            .enumerate()
            .map(|(slot, (line, head))| SlotDevice {
                ledger: if dead.contains(&slot) { Record::default() } else { record_of_line(&line, head) },
                meter: Meter::default(),
            })
            .collect();
        let states = self.read(offset_of!(UsageFile, object_states), places * 8)?;
        let objects = self.read(offset_of!(UsageFile, objects), places * size_of::<ObjectRecord>())?;
        let identities = self.read(offset_of!(UsageFile, identities), slots * size_of::<IdentityRecord>())?;
        let [slots_used, objects_used] =
            [slots, places].map(|used| AtomicU32::new(u32::try_from(used).unwrap_or(0)));
        let states = states_without(&states, &objects, dead);
        let objects: Vec<ObjectRecord> = objects
            .chunks_exact(size_of::<ObjectRecord>())
            .map(|bytes| ObjectRecord::of_words(|position| word(bytes, position * 8)))
            .collect();
        let identities = identities_without(&identities, dead);
        let ledger = Ledger {
            records: &records,
            slots_used: &slots_used,
            device: device.get(),
            objects: Objects { states: &states, records: &objects, used: &objects_used },
            identities: &identities,
        };
        let sum = ledger.others(Party::NONE);
        let memory = MemoryUse { used_bytes: sum.counted_bytes, shared_bytes: ledger.unpaid_bytes() };
        Ok((memory, sum.changes))
    }
}

/// States of the objects in a copy of both tables. An object that only the `dead` hold counts as free.
fn states_without(states: &[u8], objects: &[u8], dead: &[usize]) -> Vec<AtomicU64> {
    objects
        .chunks_exact(size_of::<ObjectRecord>())
        .enumerate()
        .map(|(place, object)| {
            let is_left = dead.is_empty() || is_kept(object, dead);
            AtomicU64::new(if is_left { word(states, place * 8) } else { 0 })
        })
        .collect()
}

/// Identities in a copy of their table, without the `dead`.
fn identities_without(identities: &[u8], dead: &[usize]) -> Vec<IdentityRecord> {
    identities
        .chunks_exact(size_of::<IdentityRecord>())
        .enumerate()
        .map(|(slot, bytes)| {
            let record = IdentityRecord::default();
            if !dead.contains(&slot) {
                let state = word(bytes, offset_of!(IdentityRecord, state));
                record.state.store(state, Ordering::Relaxed);
            }
            record
        })
        .collect()
}

/// Whether a process outside of the slots `dead` holds the object of this record, or something else may keep it.
fn is_kept(object: &[u8], dead: &[usize]) -> bool {
    const SLOTS_A_WORD: usize = 32;
    let outlives = word(object, offset_of!(ObjectRecord, outlives));
    let is_held_by = |slot: usize| {
        let holders = offset_of!(ObjectRecord, holders) + slot / SLOTS_A_WORD * 8;
        word(object, holders) >> (slot % SLOTS_A_WORD) & 1 != 0
    };
    outlives != 0 || (0..MAX_SLOTS).any(|slot| is_held_by(slot) && !dead.contains(&slot))
}
