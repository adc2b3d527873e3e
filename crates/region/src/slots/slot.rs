//! A process's own slot: its reservations, releases and meters.

use super::Usage;
use crate::ledger::{Denied, Ledger, Record};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, pause};
use crate::reservation::Reservation;
use crate::shared::Holds;
use crate::suspension::Gate;
use crate::{DeviceIndex, MAX_DEVICES};
use vcuda_limiter::token_bucket::Meter;

/// A process's place in `usage`, shared by its threads. Dropping does not give it back: a process that dies is found
/// dead, and a forked child must leave its parent's slot alone.
#[derive(Debug)]
pub struct Slot<'u> {
    usage: &'u Usage,
    index: usize,
    devices: [OwnRecord<'u>; MAX_DEVICES],
    pub(crate) holds: Holds,
}

/// The slot's record of a device, in cache lines of its own: waiting threads disturb neither other devices' locks nor
/// words that all threads read.
#[repr(align(128))]
struct OwnRecord<'u> {
    /// Locked by the thread that writes the record, for some 30 ns. In this process's own memory: the kernel never
    /// runs half of a process, and a forked child claims a slot, and with it locks, of its own.
    lock: AtomicU32,
    record: &'u Record,
    ledger: Ledger<'u>,
}

impl core::fmt::Debug for OwnRecord<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.record.fmt(f)
    }
}

impl OwnRecord<'_> {
    #[inline]
    fn lock(&self) -> Locked<'_> {
        if self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            wait_for(&self.lock);
        }
        Locked(&self.lock)
    }
}

impl<'u> Slot<'u> {
    pub(super) fn new(usage: &'u Usage, index: usize) -> Self {
        let devices = DeviceIndex::ALL.map(|device| OwnRecord {
            lock: AtomicU32::new(0),
            record: &usage.slot_device(device, index).ledger,
            ledger: usage.ledger(device),
        });
        Self { usage, index, devices, holds: Holds::default() }
    }

    /// Counts `bytes` on `device` if the tenant stays within `limit_bytes`. Two callers never pass together, and no
    /// process is refused what would have fitted. A refusal that is final is counted with [`Slot::count_denied`].
    ///
    /// # Errors
    /// Fails if it would not fit.
    #[inline(always)]
    pub fn reserve(
        &self,
        device: DeviceIndex,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<Reservation<'_, 'u>, Denied> {
        let own = self.own(device);
        let outcome = {
            let _lock = own.lock();
            own.ledger.reserve(self.index, own.record, bytes, limit_bytes)
        };
        outcome.map(|()| Reservation::new(self, device, bytes))
    }

    /// Publishes the reasons why calls of the process reached the driver past the shim, as bits
    /// ([`crate::bypass::Bypass::bit`]).
    pub fn tell_bypasses(&self, bypasses: u64) {
        if let Some(identity) = self.usage.mapping.identities.get(self.index) {
            identity.bypasses.store(bypasses, Ordering::Relaxed);
        }
    }

    /// The gate that the calls of this process may pass on their way to the driver. `None` for a slot beyond the file, which
    /// is none of this process.
    pub fn gate(&self) -> Option<Gate<'u>> {
        let file = &self.usage.mapping;
        let identity = file.identities.get(self.index)?;
        Some(Gate::new(&file.suspend_state, &file.resume_wanted, &identity.inside))
    }

    /// Declares that all calls of this process pass its gate.
    pub fn declare_gate(&self) {
        if let Some(identity) = self.usage.mapping.identities.get(self.index) {
            identity.gate_state.store(identity.state().0, Ordering::SeqCst);
        }
    }

    /// Declares that all work finished by `now_ns` (`CLOCK_MONOTONIC`) is charged. If that is not repeated, the
    /// arbiter charges the time since then.
    pub fn tell_settled(&self, now_ns: u64) {
        if let Some(identity) = self.usage.mapping.identities.get(self.index) {
            identity.settled_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Counts one refusal on `device`, for this process and for the tenant. Called by the shim, which alone knows
    /// whether it tries again after clearing the dead or giving back memory of its own.
    #[cold]
    pub fn count_denied(&self, device: DeviceIndex, denied: &Denied) {
        self.record(device).denied.fetch_add(1, Ordering::Relaxed);
        self.usage.bucket(device).count_denied(denied.requested_bytes, denied.used_bytes);
        self.usage.touch();
    }

    /// Gives back `bytes` that a committed reservation had counted.
    #[inline]
    pub fn release(&self, device: DeviceIndex, bytes: u64) {
        let own = self.own(device);
        let _lock = own.lock();
        own.record.release(bytes);
    }

    /// Gives back `bytes` that an object counts from the same instant on, unless no process holds it.
    pub(crate) fn hand_over(&self, device: DeviceIndex, bytes: u64, until: &AtomicU64) {
        let _lock = self.lock(device);
        self.record(device).hand_over(bytes, until);
    }

    /// Sets the driver's own use for this process on `device` (context, modules, local memory; bytes). No limit
    /// applies to it; use beyond the limit denies new reservations.
    pub fn set_overhead(&self, device: DeviceIndex, bytes: u64) {
        let _lock = self.lock(device);
        self.record(device).set_overhead(bytes);
    }

    /// Makes a committed reservation of `bytes` part of the overhead on `device`: the sum stays as it is.
    pub fn count_as_overhead(&self, device: DeviceIndex, bytes: u64) {
        let _lock = self.lock(device);
        self.record(device).overhead_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the overhead on `device` (bytes); see [`Slot::set_overhead`].
    pub fn charge_overhead(&self, device: DeviceIndex, bytes: u64) {
        let _lock = self.lock(device);
        let record = self.record(device);
        record.set_overhead(record.overhead_bytes.load(Ordering::Relaxed).saturating_add(bytes));
    }

    /// Takes from the overhead on `device` (bytes); see [`Slot::set_overhead`].
    pub fn release_overhead(&self, device: DeviceIndex, bytes: u64) {
        let _lock = self.lock(device);
        let record = self.record(device);
        record.set_overhead(record.overhead_bytes.load(Ordering::Relaxed).saturating_sub(bytes));
    }

    /// Memory of this process on `device`: all of it, and the overhead in it (bytes, of one moment).
    pub fn amounts(&self, device: DeviceIndex) -> (u64, u64) {
        let _lock = self.lock(device);
        (self.used_bytes(device), self.overhead_bytes(device))
    }

    /// The driver's own use for this process on `device`, as last set (bytes).
    pub fn overhead_bytes(&self, device: DeviceIndex) -> u64 {
        self.record(device).overhead_bytes.load(Ordering::Relaxed)
    }

    /// Memory of this process on `device`, overhead included (bytes).
    pub fn used_bytes(&self, device: DeviceIndex) -> u64 {
        self.record(device).used_bytes()
    }

    /// This process's GPU time on `device`.
    #[inline]
    pub fn meter(&self, device: DeviceIndex) -> &'u Meter {
        &self.usage.slot_device(device, self.index).meter
    }

    /// The tenant's usage.
    #[inline]
    pub fn usage(&self) -> &'u Usage {
        self.usage
    }

    /// Position of the slot, which identifies a process within the tenant's files only.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Gives the slot back, emptied: for an orderly end.
    pub fn leave(self) {
        if let Some(record) = self.usage.mapping.identities.get(self.index) {
            self.usage.clear(self.index, record, record.state());
            self.usage.held.unlock(self.index);
            self.usage.objects().sweep();
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    fn own(&self, device: DeviceIndex) -> &OwnRecord<'u> {
        &self.devices[device.get()]
    }

    fn record(&self, device: DeviceIndex) -> &'u Record {
        self.own(device).record
    }

    fn lock(&self, device: DeviceIndex) -> Locked<'_> {
        self.own(device).lock()
    }
}

/// Waits for another thread of this process. That one holds the lock for nanoseconds. If it lost its processor
/// meanwhile, it is offered this one, and then left alone with it for a moment (it may have the lower real-time
/// priority).
#[cold]
fn wait_for(word: &AtomicU32) {
    let mut turn = 0;
    // Reads before it tries: a try would take the cache line away from the thread that is about to open the lock.
    while word.load(Ordering::Relaxed) != 0
        || word.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        if turn < 4096 {
            pause(turn);
        } else {
            std::thread::sleep(core::time::Duration::from_micros(50));
        }
        turn = turn.saturating_add(1);
    }
}

struct Locked<'s>(&'s AtomicU32);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the acquiring exchange in `lock`.
        self.0.store(0, Ordering::Release);
    }
}
