//! Bytes counted before the driver is asked for them.

use crate::DeviceIndex;
use crate::ledger::Denied;
use crate::slots::Slot;

/// Bytes counted before the driver is asked. Dropped, they are given back; committed, they stay until [`Slot::release`].
#[must_use = "dropping it gives the bytes back"]
#[derive(Debug)]
pub struct Reservation<'s, 'u> {
    slot: &'s Slot<'u>,
    device: DeviceIndex,
    bytes: u64,
}

impl<'s, 'u> Reservation<'s, 'u> {
    pub(crate) fn new(slot: &'s Slot<'u>, device: DeviceIndex, bytes: u64) -> Self {
        Self { slot, device, bytes }
    }

    /// The bytes counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device they are counted on.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
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

impl Drop for Reservation<'_, '_> {
    fn drop(&mut self) {
        self.slot.release(self.device, self.bytes);
    }
}
