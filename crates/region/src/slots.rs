//! `usage`: one slot per process of the tenant. A slot is claimed, cleared once its process is dead, and never moved.
//!
//! A slot's state is one word: incarnation, PID and status. So a claim is one exchange that also names its owner. Any
//! process may clear a dead one. Several may do so at once, and each may be killed meanwhile: every step can be
//! repeated, and the slot is freed last. Its memory records are emptied by exchanges that fail once a next owner has
//! written. The next owner itself clears the rest.

use core::fmt;
use std::path::Path;

use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::ledger::Ledger;
use crate::map::{Mapped, Mapping};
use crate::open::{OpenError, open_to_write};
use crate::primitive::{AtomicU32, Ordering};
use crate::process::{Identity, ProcessView};
use crate::shared::Objects;
#[cfg(not(loom))]
use crate::suspension::SuspendState;
use crate::{DeviceIndex, MAX_DEVICES, MAX_SLOTS};
use vcuda_limiter::queue::Queue;
use vcuda_limiter::token_bucket::{Meter, TokenBucket};

mod ending;
mod held;
mod slot;
mod state;
pub use ending::{RELEASED_AFTER_NS, Reaped};
use held::Held;
pub(crate) use held::is_locked;
pub use slot::Slot;
use state::{FREE, LIVE};
pub(crate) use state::{State, identity_of_words};

/// Time without a report of its worker after which a living process with work in flight is silent (ns): it is stopped,
/// or gets no processor. (An idle worker reports every 250 ms, a busy one every 16 ms.)
pub const SILENT_NS: u64 = 400_000_000;
/// Time after which a process that begins to use GPU time touches `usage` again (ns): see [`Usage::touch`]. An arbiter
/// watches a tenant for longer than that after its last sign of activity.
pub const TOUCH_NS: u64 = 1_000_000_000;

/// A process that takes a slot, and the number of its tenant's devices.
#[derive(Debug, Clone, Copy)]
struct Claimant<'a> {
    me: &'a Identity,
    devices: usize,
}

/// A tenant's usage, mapped for reading and writing.
#[derive(Debug)]
pub struct Usage {
    mapping: Mapping<UsageFile>,
    held: Held,
}

impl Usage {
    /// Opens and checks `usage` in `directory`.
    ///
    /// # Errors
    /// Missing, a link, not a file, of another version or size, with a hole that a full disk cannot fill: see [`OpenError`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_to_write::<UsageFile>(&path)?;
        let mapping = Mapping::of_file(&file, true).map_err(|error| OpenError::Io(path, error))?;
        let held = Held::of_file(&file);
        Ok(Self { mapping, held })
    }

    /// Usage in memory that this process shares with its later children only, for tests and simulations.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn in_memory() -> std::io::Result<Self> {
        let mapping = Mapping::anonymous()?;
        fill(&mapping);
        let held = Held::none();
        Ok(Self { mapping, held })
    }

    /// Takes a slot for the process `me`. If `me` holds one already (from before an `exec`, or taken for it by `vcuda
    /// run`), that one is emptied and taken over. Called once per process.
    ///
    /// # Errors
    /// Fails if all slots are held by living processes.
    pub fn claim(&self, me: &Identity) -> Result<Slot<'_>, SlotsFull> {
        self.claim_on(me, MAX_DEVICES)
    }

    /// As [`Self::claim`], for a tenant with so many devices: no process of it has ever used another. The start of a process
    /// then touches no page of the others.
    pub fn claim_on(&self, me: &Identity, devices: usize) -> Result<Slot<'_>, SlotsFull> {
        let claimant = Claimant { me, devices };
        let found = self.claim_own(claimant).or_else(|| self.claim_free(claimant));
        if let Some(slot) = found {
            return Ok(slot);
        }
        self.reap_dead_and_wait(&ProcessView::new(*me));
        self.claim_free(claimant).ok_or(SlotsFull)
    }

    fn claim_own(&self, claimant: Claimant<'_>) -> Option<Slot<'_>> {
        self.identities().find_map(|(index, record)| {
            let state = record.state();
            if !record.identity(state)?.is_same(claimant.me) {
                return None;
            }
            // A child of the program before an `exec` has the driver's descriptors, and may keep that program's
            // memory.
            if record.locked_state.load(Ordering::Relaxed) == state.0 && !self.held.is_unlocked(index) {
                return None;
            }
            // The memory of the program before an `exec` is cleared like a dead process's.
            let is_cleared = self.clear(index, record, state);
            self.objects().sweep();
            (is_cleared && self.claim_slot(index, record, record.state(), claimant)).then(|| self.slot(index))
        })
    }

    fn claim_free(&self, claimant: Claimant<'_>) -> Option<Slot<'_>> {
        self.mapping.identities.iter().enumerate().find_map(|(index, record)| {
            let state = record.state();
            self.claim_slot(index, record, state, claimant).then(|| self.slot(index))
        })
    }

    /// Makes the slot the claimant's, if it is free and its state is still `state`.
    fn claim_slot(
        &self,
        index: usize,
        record: &IdentityRecord,
        state: State,
        claimant: Claimant<'_>,
    ) -> bool {
        let Claimant { me, devices } = claimant;
        if state.status() != FREE {
            return false;
        }
        // Raised before the slot is held, and so before anything is announced in it: sums and clearing must cover it.
        let needed = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.mapping.slots_used.fetch_max(needed, Ordering::SeqCst);
        let claimed = state.claimed_for(me.pid);
        if !record.exchange(state, claimed) {
            return false;
        }
        record.write(me);
        for (device, bucket) in DeviceIndex::all().zip(&self.mapping.buckets).take(devices) {
            let line = self.slot_device(device, index);
            // That of the slot's process before, which is kept nowhere else.
            bucket.note_peak(line.ledger.peak_bytes.load(Ordering::Relaxed));
            line.ledger.begin();
            line.meter.begin(bucket);
            self.queue(device).leave(index);
        }
        let live = claimed.with_status(LIVE);
        let locked_state = if self.held.try_lock(index) { live.0 } else { 0 };
        record.locked_state.store(locked_state, Ordering::Relaxed);
        record.gone.store(0, Ordering::Relaxed);
        // Fails if another process took this one for dead: then the slot was never this one's, and another slot will
        // do.
        record.exchange(claimed, live)
    }

    fn slot(&self, index: usize) -> Slot<'_> {
        Slot::new(self, index)
    }

    /// The processes that hold a slot now.
    pub fn processes(&self) -> impl Iterator<Item = (usize, Identity)> + '_ {
        self.identities().filter_map(|(index, record)| Some((index, record.identity(record.state())?)))
    }

    /// Memory of all processes of the tenant on `device` (bytes), unfinished reservations left out.
    #[inline]
    pub fn used_bytes(&self, device: DeviceIndex) -> u64 {
        self.ledger(device).used_bytes()
    }

    /// Memory of the process of a slot on `device`, and the most it had (bytes). Slots are as [`Usage::processes`] numbers
    /// them.
    pub fn used_and_peak_bytes(&self, device: DeviceIndex, slot: usize) -> (u64, u64) {
        if slot >= MAX_SLOTS {
            return (0, 0);
        }
        let record = &self.slot_device(device, slot).ledger;
        (record.used_bytes(), record.peak_bytes.load(Ordering::Relaxed))
    }

    /// The word that changes when `limits` has, for a caller that keeps its address: a process then calls
    /// [`Limits::follow`]. The tenant can write the word, so it is only a hint.
    ///
    /// [`Limits::follow`]: crate::limits::Limits::follow
    #[inline]
    pub fn limits_notice(&self) -> &AtomicU32 {
        &self.mapping.limits_notice
    }

    /// The requests for room: a bit for each device ([`crate::room`]).
    pub(crate) fn room_wanted(&self) -> &AtomicU32 {
        &self.mapping.room_wanted
    }

    /// Number of allocations within the quota that the driver refused.
    pub(crate) fn room_denied(&self) -> &AtomicU32 {
        &self.mapping.room_denied
    }

    /// State of the tenant, as the manager wrote it last. The tenant can write it, too.
    #[cfg(not(loom))]
    pub fn suspend_state(&self) -> SuspendState {
        SuspendState::of_word(self.mapping.suspend_state.load(Ordering::Acquire))
    }

    /// Bytes that no process counts: objects from outside of the tenant, and those whose payer is gone.
    pub fn unpaid_bytes(&self, device: DeviceIndex) -> u64 {
        self.ledger(device).unpaid_bytes()
    }

    /// Wakes an arbiter or manager that sleeps until something changes: one system call. Called by a process that
    /// begins to use GPU time after a rest ([`TOUCH_NS`]), and after a refusal of memory. Else they notice in seconds.
    pub fn touch(&self) {
        self.held.touch();
    }

    /// The tenant's bucket of GPU time on `device`.
    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    pub fn bucket(&self, device: DeviceIndex) -> &TokenBucket {
        &self.mapping.buckets[device.get()]
    }

    /// The tenant's processes that wait for GPU time on `device`.
    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    pub fn queue(&self, device: DeviceIndex) -> &Queue {
        &self.mapping.queues[device.get()]
    }

    /// Number of slots ever used.
    pub fn slots_used(&self) -> usize {
        self.mapping.slots_used.load(Ordering::Relaxed) as usize
    }

    /// Whether more than one process ever held a slot at the same time.
    pub fn had_several(&self) -> bool {
        self.slots_used() > 1
    }

    /// Work of the tenant's processes on `device`, launched and not yet finished: nanoseconds as predicted, and
    /// launches. The work of a dead or silent process does not count, as its end is not reported ([`SILENT_NS`] before
    /// `now_ns`).
    pub fn in_flight(&self, device: DeviceIndex, now_ns: u64) -> (u64, u64) {
        let is_silent = |record: &IdentityRecord| {
            let settled_ns = record.settled_ns.load(Ordering::Relaxed);
            settled_ns != 0 && now_ns.saturating_sub(settled_ns) > SILENT_NS
        };
        let heard = self.living().filter(|(_, record)| !is_silent(record));
        heard.fold((0, 0), |(ns, count), (index, _)| {
            let meter = &self.slot_device(device, index).meter;
            (ns.saturating_add(meter.in_flight_ns()), count + u64::from(meter.in_flight_launches()))
        })
    }

    /// The meters of the processes that hold a slot now, without those that were seen to be dead.
    pub fn meters(&self, device: DeviceIndex) -> impl Iterator<Item = &Meter> {
        self.living().map(move |(index, _)| &self.slot_device(device, index).meter)
    }

    /// The identities of the processes that hold a slot now, without those that were seen to be dead.
    fn living(&self) -> impl Iterator<Item = (usize, &IdentityRecord)> {
        self.identities().filter(|(_, record)| record.state().is_live() && record.gone_ns().is_none())
    }

    /// The identities that were ever used.
    fn identities(&self) -> impl Iterator<Item = (usize, &IdentityRecord)> {
        let used = self.mapping.slots_used.load(Ordering::Acquire) as usize;
        self.mapping.identities.iter().enumerate().take(used)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    pub(crate) fn ledger(&self, device: DeviceIndex) -> Ledger<'_> {
        Ledger {
            records: &self.mapping.devices[device.get()],
            slots_used: &self.mapping.slots_used,
            device: device.get(),
            objects: self.objects(),
            identities: &self.mapping.identities,
        }
    }

    #[inline]
    pub(crate) fn objects(&self) -> Objects<'_> {
        Objects {
            states: &self.mapping.object_states,
            records: &self.mapping.objects,
            used: &self.mapping.objects_used,
        }
    }

    /// The word of a slot's state.
    pub(crate) fn identity_state(&self, slot: usize) -> u64 {
        let record = self.mapping.identities.get(slot);
        record.map_or(0, |record| record.state().0)
    }

    #[expect(clippy::indexing_slicing, reason = "callers have the index from an array of MAX_SLOTS")]
    #[inline]
    fn slot_device(&self, device: DeviceIndex, slot: usize) -> &SlotDevice {
        &self.mapping.devices[device.get()][slot]
    }
}

/// Makes zeroed memory a `usage` in which no slot is held.
pub(crate) fn fill(file: &UsageFile) {
    file.header.fill(UsageFile::MAGIC, size_of::<UsageFile>());
}

/// The error if all slots are held by living processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotsFull;

impl fmt::Display for SlotsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAX_SLOTS} processes of this tenant use a GPU already; end some of them")
    }
}

impl std::error::Error for SlotsFull {}

#[cfg(test)]
mod tests;
