//! Whether NVML's figure for a process holds its managed memory. As far as evidence goes it does not; that it does is seen
//! when it grows by managed memory that is made.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use vcuda_driver_api::prelude::*;

use super::Overhead;
use crate::memory::charge::Charge;
use crate::runtime::devices::Device;

/// Less than this proves nothing: the first managed memory of a process makes the driver take some for itself (bytes).
const TELLING_BYTES: u64 = 8 << 20;
/// How often it is looked at.
const LOOKS: u8 = 1;

/// What is known of managed memory in NVML's figures.
#[derive(Debug, Default)]
pub(super) struct Managed {
    is_in_figure: AtomicBool,
    looks: AtomicU8,
}

impl Managed {
    /// Whether a figure was seen to hold managed memory.
    pub(super) fn is_in_figure(&self) -> bool {
        self.is_in_figure.load(Ordering::Relaxed)
    }

    /// Whether making `bytes` is to be watched.
    fn is_telling(&self, bytes: u64) -> bool {
        bytes >= TELLING_BYTES && !self.is_in_figure() && self.looks.load(Ordering::Relaxed) < LOOKS
    }

    /// The figure was `before_bytes` when managed memory of `bytes` was made, and is `after_bytes`.
    fn learn(&self, bytes: u64, before_bytes: u64, after_bytes: u64) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if after_bytes.saturating_sub(before_bytes) >= bytes / 4 * 3 {
            self.is_in_figure.store(true, Ordering::Relaxed);
        }
    }
}

impl Overhead {
    /// Has the driver make `bytes` of managed memory, and sees whether NVML's figure grows by them.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn watch_managed(
        &'static self,
        device: &'static Device,
        bytes: u64,
        make: impl FnOnce() -> CUresult,
    ) -> CUresult {
        if !self.source.tells() || !self.managed.is_telling(bytes) {
            return make();
        }
        let before_bytes = self.quiet_bytes(device);
        make()?;
        if let Some((before_bytes, after_bytes)) = before_bytes.zip(self.quiet_bytes(device)) {
            self.managed.learn(bytes, before_bytes, after_bytes);
        }
        Ok(())
    }
}

/// Bytes that are counted for managed memory, and given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ManagedCharge(Option<Charge>);

impl ManagedCharge {
    /// Notes that what is counted here is managed memory.
    pub(crate) fn new(charge: Charge) -> Self {
        // Counted first: what is noted as managed is never more than what is counted.
        charge.device().note_managed(charge.bytes());
        Self(Some(charge))
    }
}

impl Drop for ManagedCharge {
    fn drop(&mut self) {
        if let Some(charge) = self.0.take() {
            charge.device().forget_managed(charge.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_grows_by_managed_memory_holds_it() {
        const MIB: u64 = 1 << 20;
        let managed = Managed::default();
        assert!(managed.is_telling(8 * MIB) && !managed.is_telling(8 * MIB - 1));
        managed.learn(300 * MIB, 480 * MIB, 484 * MIB);
        assert!(!managed.is_in_figure());
        managed.learn(300 * MIB, 480 * MIB, 780 * MIB);
        assert!(managed.is_in_figure() && !managed.is_telling(300 * MIB));
        let other = Managed::default();
        (0..LOOKS).for_each(|_| other.learn(300 * MIB, 480 * MIB, 480 * MIB));
        assert!(!other.is_telling(300 * MIB), "it is not asked for ever");
    }
}
