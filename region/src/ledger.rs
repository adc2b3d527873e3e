//! The ledger of memory: reserve, commit or drop, release.
//!
//! See [`Record`] for the protocol.

use core::fmt;

use crate::layout::SlotDevice;
use crate::primitive::{AtomicU64, Ordering, fence};

/// One process's bytes on one device.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    pub(crate) head: AtomicU64,
    pub(crate) copies: [Amounts; 2],
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) overhead_bytes: AtomicU64,
}

/// One of the two copies of a record.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) used_bytes: AtomicU64,
    pub(crate) asked_bytes: AtomicU64,
}

/// A reservation was refused: with it the container would exceed its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// What was asked for.
    pub requested_bytes: u64,
    /// What the container's processes had on the device.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes refused: {} of the limit of {} bytes are in use; free memory or raise the limit with `vcuda set`",
            self.requested_bytes, self.used_bytes, self.limit_bytes
        )
    }
}

impl std::error::Error for Denied {}

/// What the processes with these records have (bytes), unfinished reservations left out.
pub(crate) fn used_bytes(records: &[SlotDevice]) -> u64 {
    let _ = fence;
    records
        .iter()
        .map(|record| record.ledger.head.load(Ordering::Acquire))
        .sum()
}

/// Bytes counted before the driver is asked. Dropped, they are given back; committed, they stay until
/// [`crate::slots::Slot::release`].
#[cfg(not(loom))]
#[must_use = "dropping it gives the bytes back"]
#[derive(Debug)]
pub struct Reservation<'s, 'u> {
    slot: &'s crate::slots::Slot<'u>,
    device: crate::DeviceIndex,
    bytes: u64,
}

#[cfg(not(loom))]
impl Reservation<'_, '_> {
    /// The bytes counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device they are counted on.
    #[must_use]
    pub fn device(&self) -> crate::DeviceIndex {
        self.device
    }

    /// Changes the amount to what the driver really took (a pitch, a granularity).
    ///
    /// # Errors
    /// It takes more, and that does not fit: the reservation is unchanged.
    pub fn resize(&mut self, bytes: u64, limit_bytes: u64) -> Result<(), Denied> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            self.slot.reserve(self.device, more, limit_bytes)?.commit();
        } else {
            self.slot.release(self.device, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The allocation exists: the bytes stay counted. Cannot fail.
    #[inline]
    pub fn commit(self) {
        core::mem::forget(self);
    }
}

#[cfg(not(loom))]
impl Drop for Reservation<'_, '_> {
    fn drop(&mut self) {
        self.slot.release(self.device, self.bytes);
    }
}
