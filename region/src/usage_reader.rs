//! `usage` as others read it: with `pread`, never mapped, so that a tenant who truncates or scribbles in it harms nobody
//! else. Every figure is what the tenant wrote, bounded but not believed (I12, I15).

use core::mem::offset_of;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::ledger::{Ledger, Party, Record};
use crate::open::{OpenError, open_checked};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::process::{Identity, Liveness, ProcessView};
use crate::shared::{MAX_OBJECTS, ObjectRecord, Objects};
use crate::slots::{self, State, identity_of_words};
use crate::{DeviceIndex, MAX_SLOTS};
use vcuda_limiter::busy;
use vcuda_limiter::controller::Measured;
use vcuda_limiter::token_bucket::{BUSY_WORDS, LatenessUse, Meter, TokenBucket};

mod digest;

pub use digest::UsageDigest;

/// A container's `usage`, opened for reading.
#[derive(Debug)]
pub struct UsageReader {
    file: File,
    path: PathBuf,
}

/// One process's use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Memory counted, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// Of it, what the driver itself takes (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused.
    pub denied: u64,
    /// Launches.
    pub launches: u64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: u64,
    /// Launches held.
    pub holds: u64,
    /// Time that launches were held (ns).
    pub held_ns: u64,
    /// Launches admitted on debt.
    pub debt_admits: u64,
    /// Sum of the differences between prediction and truth (ns).
    pub mispredicted_ns: u64,
    /// Work launched and not yet finished, as predicted (ns).
    pub in_flight_ns: u64,
    /// Launches not yet finished.
    pub in_flight_launches: u64,
}

/// One process that holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// The slot.
    pub slot: usize,
    /// Who it is.
    pub identity: Identity,
    /// Its use, by position of the device in `limits`.
    pub devices: Vec<DeviceUse>,
}

/// What one process has in flight on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The slot.
    pub slot: usize,
    /// The process.
    pub identity: Identity,
    /// A word that no other process in the slot has.
    pub state: u64,
    /// When the process's worker last settled what was done (`CLOCK_MONOTONIC`, ns); 0 of a process that does not tell.
    pub settled_ns: u64,
    /// Launches not yet finished.
    pub launches: u32,
}

/// The container's bucket on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketUse {
    /// Consumed or held in leases (ns).
    pub level_ns: i64,
    /// GPU time that counts as the container's: measured, apportioned among those who overlapped (ns).
    pub served_ns: u64,
    /// Debt forgiven (ns).
    pub forgiven_ns: u64,
    /// Reservations refused, of processes that are gone too.
    pub denied: u64,
    /// Copies between the host and the device while GPU time was metered.
    pub host_copies: u64,
    /// What they moved (bytes).
    pub host_copied_bytes: u64,
    /// Time that was measured and new in the busy map, and what was charged for it (ns).
    pub measured: Measured,
    /// Time that was measured, as often as several streams or processes had work then (ns).
    pub measured_elapsed_ns: u64,
    /// A launch waits, or did when its process was killed.
    pub is_waiting: bool,
    /// How late launches went on after a hold.
    pub lateness: LatenessUse,
}

/// The container's memory on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// What the container has (bytes): that of its processes, and `shared_bytes`.
    pub used_bytes: u64,
    /// What of it no process counts: objects from outside of the container, and those whose payer is gone (bytes). See
    /// [`crate::shared`].
    pub shared_bytes: u64,
}

impl UsageReader {
    /// Opens `usage` in `directory`.
    ///
    /// # Errors
    /// As [`crate::slots::Usage::open`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_checked::<UsageFile>(&path, false)?;
        Ok(Self { file, path })
    }

    /// The processes that hold a slot, with their use of the first `device_count` devices; without those that `view` knows to
    /// be dead, unless a child may keep their memory.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn processes(&self, device_count: usize, view: &ProcessView) -> Result<Vec<ProcessUse>, OpenError> {
        let mut found = self.all_processes(device_count)?;
        found.retain(|process| !self.is_gone(process.slot, &process.identity, view));
        Ok(found)
    }

    /// Whether a child of the process in a slot may keep its memory beyond its death: see [`crate::slots::Usage::reap_dead`].
    #[must_use]
    pub fn is_kept(&self, slot: usize, identity: &Identity) -> bool {
        let record =
            offset_of!(UsageFile, identities) + slot.min(MAX_SLOTS - 1) * size_of::<IdentityRecord>();
        let Ok(bytes) = self.read(record, size_of::<IdentityRecord>()) else {
            return false;
        };
        let state = State(word(&bytes, offset_of!(IdentityRecord, state)));
        state.is_live()
            && state.pid() == identity.pid
            && word(&bytes, offset_of!(IdentityRecord, locked_state)) == state.0
            && slots::is_locked(&self.file, slot)
    }

    /// The processes that hold a slot, the dead too, with their use of the first `device_count` devices.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn all_processes(&self, device_count: usize) -> Result<Vec<ProcessUse>, OpenError> {
        let identities = self.identities()?;
        let slots = identities.last().map_or(0, |(slot, _)| slot + 1);
        let mut found: Vec<ProcessUse> = identities
            .into_iter()
            .map(|(slot, identity)| ProcessUse {
                slot,
                identity,
                devices: Vec::new(),
            })
            .collect();
        for device in DeviceIndex::all().take(device_count) {
            let lines = self.lines(device, slots)?;
            for process in &mut found {
                let line = lines.get(process.slot);
                let use_now = line.map(|(line, head)| use_of_line(line, *head));
                process.devices.push(use_now.unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// Whether any process that holds a slot lives, or cannot be told from one that does, or has left memory that a child
    /// may keep.
    pub(crate) fn has_living(&self, view: &ProcessView) -> Result<bool, OpenError> {
        Ok(self
            .identities()?
            .iter()
            .any(|(slot, identity)| !self.is_gone(*slot, identity, view)))
    }

    /// Whether `view` knows the process in a slot to be dead, and no child may keep its memory and contexts.
    #[must_use]
    pub fn is_gone(&self, slot: usize, identity: &Identity, view: &ProcessView) -> bool {
        view.liveness(identity) == Liveness::Dead && !self.is_kept(slot, identity)
    }

    fn identities(&self) -> Result<Vec<(usize, Identity)>, OpenError> {
        let used = self.read(offset_of!(UsageFile, slots_used), 4)?;
        let used = (half(&used, 0) as usize).min(MAX_SLOTS);
        let records = self.read(
            offset_of!(UsageFile, identities),
            used * size_of::<IdentityRecord>(),
        )?;
        let records = records.chunks_exact(size_of::<IdentityRecord>()).enumerate();
        Ok(records
            .filter_map(|(slot, record)| Some((slot, identity_of_record(record)?)))
            .collect())
    }

    /// What the container has on `device`. The dead count until somebody of the container clears them.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn memory(&self, device: DeviceIndex) -> Result<MemoryUse, OpenError> {
        self.memory_without(device, &[])
    }

    /// As [`UsageReader::memory`], without the processes that `view` knows to be dead and whose memory no child may keep. What they held together with others
    /// counts as long as one of these lives, or something else may keep it. If no living process has anything on the device
    /// itself, none can ask what else does: then nothing is shown, and the next process counts it again.
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
            return Ok(MemoryUse {
                used_bytes: 0,
                shared_bytes: 0,
            });
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

    /// One look at records and objects, in the order in which a ledger takes them, and the sum of what has changed. The
    /// processes in the slots `dead` have nothing and hold nothing.
    fn seen(&self, device: DeviceIndex, dead: &[usize]) -> Result<(MemoryUse, u64), OpenError> {
        let [slots, places] = [
            (offset_of!(UsageFile, slots_used), MAX_SLOTS),
            (offset_of!(UsageFile, objects_used), MAX_OBJECTS),
        ]
        .map(|(offset, most)| Ok((half(&self.read(offset, 4)?, 0) as usize).min(most)));
        let (slots, places) = (slots?, places?);
        let records: Vec<SlotDevice> = self
            .lines(device, slots)?
            .into_iter()
            .enumerate()
            .map(|(slot, (line, head))| SlotDevice {
                ledger: if dead.contains(&slot) {
                    Record::default()
                } else {
                    record_of_line(&line, head)
                },
                meter: Meter::default(),
            })
            .collect();
        let states = self.read(offset_of!(UsageFile, object_states), places * 8)?;
        let objects = self.read(offset_of!(UsageFile, objects), places * size_of::<ObjectRecord>())?;
        let identities = self.read(
            offset_of!(UsageFile, identities),
            slots * size_of::<IdentityRecord>(),
        )?;
        let [slots_used, objects_used] =
            [slots, places].map(|used| AtomicU32::new(u32::try_from(used).unwrap_or(0)));
        let states: Vec<AtomicU64> = objects
            .chunks_exact(size_of::<ObjectRecord>())
            .enumerate()
            .map(|(place, object)| {
                let is_left = dead.is_empty() || is_kept(object, dead);
                AtomicU64::new(if is_left { word(&states, place * 8) } else { 0 })
            })
            .collect();
        let objects: Vec<ObjectRecord> = objects
            .chunks_exact(size_of::<ObjectRecord>())
            .map(|bytes| ObjectRecord::of_words(|position| word(bytes, position * 8)))
            .collect();
        let identities: Vec<IdentityRecord> = identities
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
            .collect();
        let ledger = Ledger {
            records: &records,
            slots_used: &slots_used,
            device: device.get(),
            objects: Objects {
                states: &states,
                records: &objects,
                used: &objects_used,
            },
            identities: &identities,
        };
        let sum = ledger.others(Party::NOBODY);
        let memory = MemoryUse {
            used_bytes: sum.counted_bytes,
            shared_bytes: ledger.unpaid_bytes(),
        };
        Ok((memory, sum.changes))
    }

    /// The lines of `device` of the first `slots` slots, each with its head. A record is read between two looks at its
    /// head, so that both amounts are of the same moment; one that never stands still is taken as it comes.
    fn lines(&self, device: DeviceIndex, slots: usize) -> Result<Vec<(Vec<u8>, u64)>, OpenError> {
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

    /// What each process that holds a slot, the dead too, has in flight on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn works(&self, device: DeviceIndex) -> Result<Vec<Work>, OpenError> {
        const LINE: usize = size_of::<SlotDevice>();
        const RECORD: usize = size_of::<IdentityRecord>();
        let slots = (half(&self.read(offset_of!(UsageFile, slots_used), 4)?, 0) as usize).min(MAX_SLOTS);
        let records = self.read(offset_of!(UsageFile, identities), slots * RECORD)?;
        let offset = offset_of!(UsageFile, devices) + device.get() * MAX_SLOTS * LINE;
        let lines = self.read(offset, slots * LINE)?;
        let processes = records
            .chunks_exact(RECORD)
            .zip(lines.chunks_exact(LINE))
            .enumerate();
        Ok(processes
            .filter_map(|(slot, (record, line))| {
                let words = words_of_line(line);
                let meter = Meter::of_words(words.last_chunk::<8>().unwrap_or(&[0; 8]));
                Some(Work {
                    slot,
                    identity: identity_of_record(record)?,
                    state: word(record, offset_of!(IdentityRecord, state)),
                    settled_ns: word(record, offset_of!(IdentityRecord, settled_ns)),
                    launches: meter.in_flight_launches(),
                })
            })
            .collect())
    }

    /// How many ways to the driver past the shim the process in `slot` knows of.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn ways(&self, slot: usize) -> Result<u64, OpenError> {
        let record =
            offset_of!(UsageFile, identities) + slot.min(MAX_SLOTS - 1) * size_of::<IdentityRecord>();
        Ok(word(&self.read(record + offset_of!(IdentityRecord, ways), 8)?, 0))
    }

    /// The container's bucket on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn bucket(&self, device: DeviceIndex) -> Result<BucketUse, OpenError> {
        let bytes = self.read(bucket_offset(device), offset_of!(TokenBucket, busy))?;
        Ok(BucketUse {
            level_ns: word(&bytes, offset_of!(TokenBucket, level_ns)).cast_signed(),
            served_ns: word(&bytes, offset_of!(TokenBucket, served_ns)),
            forgiven_ns: word(&bytes, offset_of!(TokenBucket, forgiven_ns)),
            denied: word(&bytes, offset_of!(TokenBucket, denied)),
            host_copies: word(&bytes, offset_of!(TokenBucket, host_copies)),
            host_copied_bytes: word(&bytes, offset_of!(TokenBucket, host_copied_bytes)),
            measured_elapsed_ns: word(&bytes, offset_of!(TokenBucket, measured_elapsed_ns)),
            measured: Measured {
                fresh_ns: word(&bytes, offset_of!(TokenBucket, measured_ns)),
                charged_ns: word(&bytes, offset_of!(TokenBucket, measured_charge_ns)),
            },
            is_waiting: half(&bytes, offset_of!(TokenBucket, waiters)) != 0,
            lateness: LatenessUse::of_counts(|bin| half(&bytes, offset_of!(TokenBucket, lateness) + bin * 4)),
        })
    }

    /// When the container was busy on `device`: the 48 bins each of the busy map's words `first` up to `last` (numbers
    /// since the clock's zero, see [`vcuda_limiter::busy`]), at most one round.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn busy(&self, device: DeviceIndex, first: u64, last: u64) -> Result<Vec<u64>, OpenError> {
        let map = bucket_offset(device) + offset_of!(TokenBucket, busy);
        let mut bins = Vec::new();
        let mut at = first.max(last.saturating_sub(BUSY_WORDS as u64));
        while at < last {
            let (place, _) = busy::place(BUSY_WORDS, at);
            let left = usize::try_from(last - at).unwrap_or(BUSY_WORDS);
            let count = left.min(BUSY_WORDS - place);
            let bytes = self.read(map + place * 8, count * 8)?;
            for position in 0..count {
                bins.push(busy::bins_of(word(&bytes, position * 8), BUSY_WORDS, at));
                at += 1;
            }
        }
        Ok(bins)
    }

    /// A word that changes whenever the container begins to use GPU time on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn level_ns(&self, device: DeviceIndex) -> Result<i64, OpenError> {
        let mut bytes = [0; 8];
        let at = bucket_offset(device) + offset_of!(TokenBucket, level_ns);
        match self.file.read_exact_at(&mut bytes, at as u64) {
            Ok(()) => Ok(i64::from_ne_bytes(bytes)),
            Err(error) => Err(OpenError::Io(self.path.clone(), error)),
        }
    }

    fn read(&self, offset: usize, size: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; size];
        match self.file.read_exact_at(&mut bytes, offset as u64) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(OpenError::Io(self.path.clone(), error)),
        }
    }
}

fn bucket_offset(device: DeviceIndex) -> usize {
    offset_of!(UsageFile, buckets) + device.get() * size_of::<TokenBucket>()
}

/// The words of a line: of its record, and of its meter.
fn words_of_line(line: &[u8]) -> [u64; 16] {
    core::array::from_fn(|position| word(line, position * 8))
}

/// The process of a slot that is live now.
fn identity_of_record(record: &[u8]) -> Option<Identity> {
    let state = State(word(record, offset_of!(IdentityRecord, state)));
    let name = offset_of!(IdentityRecord, name);
    let words = [
        word(record, offset_of!(IdentityRecord, start_ticks)),
        word(record, offset_of!(IdentityRecord, namespaces)),
        word(record, name),
        word(record, name + 8),
    ];
    state.is_live().then(|| identity_of_words(state, words))
}

fn record_of_line(line: &[u8], head: u64) -> Record {
    let [_, copies @ .., _, _, _] = *words_of_line(line).first_chunk::<8>().unwrap_or(&[0; 8]);
    Record::of_words(head, copies)
}

fn use_of_line(line: &[u8], head: u64) -> DeviceUse {
    let words = words_of_line(line);
    let [.., peak_bytes, denied, overhead_bytes] = *words.first_chunk::<8>().unwrap_or(&[0; 8]);
    let record = record_of_line(line, head);
    let meter = Meter::of_words(words.last_chunk::<8>().unwrap_or(&[0; 8]));
    DeviceUse {
        used_bytes: record.used_bytes(),
        peak_bytes,
        overhead_bytes,
        denied,
        launches: meter.launches(),
        charged_ns: meter.charged_ns.load(Ordering::Relaxed),
        holds: u64::from(meter.holds.load(Ordering::Relaxed)),
        held_ns: meter.held_ns.load(Ordering::Relaxed),
        debt_admits: u64::from(meter.debt_admits.load(Ordering::Relaxed)),
        mispredicted_ns: meter.mispredicted_ns.load(Ordering::Relaxed),
        in_flight_ns: meter.in_flight_ns(),
        in_flight_launches: u64::from(meter.in_flight_launches()),
    }
}

/// The word at `offset`, 0 beyond the end.
fn word(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}
/// Whether a process that is not in the slots `dead` holds an object, whose record this is, or something else may keep it.
fn is_kept(object: &[u8], dead: &[usize]) -> bool {
    const SLOTS_A_WORD: usize = 32;
    let outlives = word(object, offset_of!(ObjectRecord, outlives));
    let is_held_by = |slot: usize| {
        let holders = offset_of!(ObjectRecord, holders) + slot / SLOTS_A_WORD * 8;
        word(object, holders) >> (slot % SLOTS_A_WORD) & 1 != 0
    };
    outlives != 0 || (0..MAX_SLOTS).any(|slot| is_held_by(slot) && !dead.contains(&slot))
}
