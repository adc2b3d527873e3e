//! Bytes counted before the driver is asked for them.

use crate::DeviceIndex;
use crate::ledger::Denied;
use crate::slots::Slot;

/// Bytes counted before the driver is asked. Dropping gives them back. Once committed they stay until
/// [`Slot::release`].
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
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device that they are counted on.
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Changes the amount to what the driver really took (a pitch, a granularity).
    ///
    /// # Errors
    /// Fails if that is more and does not fit; the reservation is then unchanged.
    pub fn resize(&mut self, bytes: u64, limit_bytes: u64) -> Result<(), Denied> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            self.slot.reserve(self.device, more, limit_bytes)?.commit();
        } else {
            self.slot.release(self.device, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Keeps the bytes counted, as the allocation exists now. Cannot fail.
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
