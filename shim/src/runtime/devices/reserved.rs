//! Bytes that are counted before the driver is asked for them.

use vcuda_region::reservation::Reservation;

use super::{Denied, Device};

/// Bytes counted on a device for an allocation that is about to be made.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(super) device: &'static Device,
    pub(super) reservation: Reservation<'static, 'static>,
}

impl Reserved {
    /// The bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// The device.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Counts what the driver really took.
    ///
    /// # Errors
    /// It took more, and that does not fit.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), Denied> {
        let device = self.device;
        device.insist(|| self.reservation.resize(bytes, device.memory_limit_bytes()))
    }

    /// The bytes are the driver's own use from now on: they count as overhead, and no moment as nothing or twice.
    pub(crate) fn become_overhead(self) {
        let (device, bytes) = (self.device, self.bytes());
        self.reservation.commit();
        if let Some((index, slot)) = device.place() {
            slot.count_as_overhead(index, bytes);
        }
    }

    /// The allocation exists: its bytes stay counted until [`Device::release`].
    #[inline]
    pub(crate) fn commit(self) {
        self.reservation.commit();
    }
}
