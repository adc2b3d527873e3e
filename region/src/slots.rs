//! `usage`: one slot per process of the container.

use core::fmt;
use std::path::Path;

use crate::DeviceIndex;
use crate::account::{Account, Meter};
use crate::layout::{IdentityRecord, SlotDevice, UsageFile, VERSION};
use crate::ledger::{Denied, Record, Reservation};
use crate::map::{Mapped, Mapping, OpenError, open_checked};
use crate::primitive::{AtomicU32, Ordering};
use crate::process::{Identity, ProcessView};

/// A container's usage, mapped for reading and writing.
#[derive(Debug)]
pub struct Usage {
    mapping: Mapping<UsageFile>,
}

impl Usage {
    /// Opens and checks `usage` in `directory`.
    ///
    /// # Errors
    /// Missing, a link, not a file, of another version or size: see [`OpenError`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_checked::<UsageFile>(&path, true)?;
        let mapping = Mapping::of_file(&file, true).map_err(|error| OpenError::Io(path, error))?;
        Ok(Self { mapping })
    }

    /// Usage in memory that this process shares with its later children only, for tests and models of a machine.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn in_memory() -> std::io::Result<Self> {
        let mapping = Mapping::anonymous()?;
        fill(&mapping);
        Ok(Self { mapping })
    }

    /// Takes a slot for the process `me`. A slot that `me` already holds (from before an `exec`, or taken for it by
    /// `vcuda run`) is emptied and taken over. Call it once per process.
    ///
    /// # Errors
    /// All slots are held by living processes.
    pub fn claim(&self, me: &Identity) -> Result<Slot<'_>, SlotsFull> {
        let _ = me;
        Err(SlotsFull)
    }

    /// Empties and frees the slots of processes that are gone. Returns how many. Any number of processes may do this
    /// at the same time, and be killed in it.
    pub fn reap_dead(&self, view: &ProcessView) -> usize {
        let _ = view;
        0
    }

    /// What all processes of the container have on `device` (bytes), unfinished reservations left out.
    #[must_use]
    pub fn used_bytes(&self, device: DeviceIndex) -> u64 {
        crate::ledger::used_bytes(self.records(device))
    }

    /// The container's account of GPU time on `device`.
    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    #[must_use]
    pub fn account(&self, device: DeviceIndex) -> &Account {
        &self.mapping.accounts[device.get()]
    }

    /// Work of all living processes of the container on `device`, launched and not yet finished: nanoseconds as
    /// predicted, and launches.
    #[must_use]
    pub fn in_flight(&self, device: DeviceIndex) -> (u64, u64) {
        self.meters(device).fold((0, 0), |(ns, count), meter| {
            (
                ns + meter.in_flight_ns(),
                count + u64::from(meter.in_flight_launches()),
            )
        })
    }

    /// The meters of the processes that hold a slot.
    pub fn meters(&self, device: DeviceIndex) -> impl Iterator<Item = &Meter> {
        self.records(device).iter().map(|record| &record.meter)
    }

    /// The lines of `device` that were ever used.
    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    fn records(&self, device: DeviceIndex) -> &[SlotDevice] {
        let records = &self.mapping.devices[device.get()];
        let used = self.mapping.slots_used.load(Ordering::Acquire) as usize;
        records.get(..used).unwrap_or(records)
    }
}

pub(crate) fn fill(file: &UsageFile) {
    file.header.version.store(VERSION, Ordering::Relaxed);
    file.header.size_bytes.store(
        u32::try_from(size_of::<UsageFile>()).unwrap_or(0),
        Ordering::Relaxed,
    );
    file.header.magic.store(UsageFile::MAGIC, Ordering::Release);
}

/// All slots are held by living processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotsFull;

impl fmt::Display for SlotsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes of this container use a GPU already; end some",
            crate::MAX_SLOTS
        )
    }
}

impl std::error::Error for SlotsFull {}

/// A process's place in `usage`. All its threads share it. It is not given back by a drop: whoever dies is found dead, and
/// a forked child must leave its parent's slot alone.
#[derive(Debug)]
pub struct Slot<'u> {
    usage: &'u Usage,
    index: usize,
    lock: AtomicU32,
}

impl<'u> Slot<'u> {
    /// Counts `bytes` on `device` if the container stays within `limit_bytes`. Two callers never pass together, and
    /// nobody is refused what would have fitted.
    ///
    /// # Errors
    /// It would not fit.
    #[inline]
    pub fn reserve(
        &self,
        device: DeviceIndex,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<Reservation<'_, 'u>, Denied> {
        let _ = (device, &self.lock);
        Err(Denied {
            requested_bytes: bytes,
            used_bytes: 0,
            limit_bytes,
        })
    }

    /// Gives back `bytes` that a committed reservation had counted.
    pub fn release(&self, device: DeviceIndex, bytes: u64) {
        let _ = (device, bytes);
    }

    /// Sets what the driver itself takes for this process on `device` (context, modules, local memory; bytes). No limit
    /// holds it up; what is beyond the limit denies new reservations.
    pub fn set_overhead(&self, device: DeviceIndex, bytes: u64) {
        let _ = (device, bytes);
    }

    /// What the driver itself takes for this process on `device`, as last set (bytes).
    #[must_use]
    pub fn overhead_bytes(&self, device: DeviceIndex) -> u64 {
        self.record(device).overhead_bytes.load(Ordering::Relaxed)
    }

    /// What this process has on `device`, overhead included (bytes).
    #[must_use]
    pub fn used_bytes(&self, device: DeviceIndex) -> u64 {
        let _ = device;
        0
    }

    /// This process's GPU time on `device`.
    #[inline]
    #[must_use]
    pub fn meter(&self, device: DeviceIndex) -> &'u Meter {
        &self.slot_device(device).meter
    }

    /// The container's usage.
    #[inline]
    #[must_use]
    pub fn usage(&self) -> &'u Usage {
        self.usage
    }

    /// Where the slot stands: names a process within the container's files only.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Gives the slot back, emptied: for an orderly end.
    pub fn leave(self) {}

    #[inline]
    fn record(&self, device: DeviceIndex) -> &'u Record {
        &self.slot_device(device).ledger
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex and a slot's index are below the lengths of the arrays"
    )]
    #[inline]
    fn slot_device(&self, device: DeviceIndex) -> &'u SlotDevice {
        &self.usage.mapping.devices[device.get()][self.index]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a slot's index is below MAX_SLOTS, the length of the array"
    )]
    fn identity(&self) -> &'u IdentityRecord {
        &self.usage.mapping.identities[self.index]
    }
}
