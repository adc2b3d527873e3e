//! Whether NVML's figure for a process includes its managed memory. As far as is known it does not. If it does, the
//! figure grows when managed memory is made.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use vcuda_driver_api::prelude::*;

use super::Overhead;
use crate::memory::charge::Charge;
use crate::runtime::shim::devices::Device;

/// Least size that proves something (bytes), as the driver takes some for itself with a process's first managed memory.
const CONCLUSIVE_BYTES: u64 = 8 << 20;
/// Maximum number of trials.
const MAX_TRIALS: u8 = 1;

/// Knowledge about managed memory in NVML's figures.
#[derive(Debug, Default)]
pub(super) struct Managed {
    is_in_figure: AtomicBool,
    trials: AtomicU8,
}

impl Managed {
    /// Whether a figure was seen to include managed memory.
    pub(super) fn is_in_figure(&self) -> bool {
        self.is_in_figure.load(Ordering::Relaxed)
    }

    /// Whether an allocation of `bytes` would prove something.
    fn is_conclusive(&self, bytes: u64) -> bool {
        bytes >= CONCLUSIVE_BYTES && !self.is_in_figure() && self.trials.load(Ordering::Relaxed) < MAX_TRIALS
    }

    /// Learns from an allocation of `bytes` of managed memory, with the figures before and after it.
    fn learn(&self, bytes: u64, before_bytes: u64, after_bytes: u64) {
        self.trials.fetch_add(1, Ordering::Relaxed);
        if after_bytes.saturating_sub(before_bytes) >= bytes / 4 * 3 {
            self.is_in_figure.store(true, Ordering::Relaxed);
        }
    }
}

impl Overhead {
    /// Makes `bytes` of managed memory, and checks whether NVML's figure grows by them.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn watch_managed(
        &'static self,
        device: &'static Device,
        bytes: u64,
        make: impl FnOnce() -> CUresult,
    ) -> CUresult {
        if !self.source.is_known() || !self.managed.is_conclusive(bytes) {
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

/// Bytes counted for managed memory. Dropping gives them back.
#[derive(Debug)]
pub(crate) struct ManagedCharge(Option<Charge>);

impl ManagedCharge {
    /// Notes that what is counted here is managed memory.
    pub(crate) fn new(charge: Charge) -> Self {
        // The charge was counted first, so what is noted as managed is never more than what is counted.
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
        assert!(managed.is_conclusive(8 * MIB) && !managed.is_conclusive(8 * MIB - 1));
        managed.learn(300 * MIB, 480 * MIB, 484 * MIB);
        assert!(!managed.is_in_figure());
        managed.learn(300 * MIB, 480 * MIB, 780 * MIB);
        assert!(managed.is_in_figure() && !managed.is_conclusive(300 * MIB));
        let other = Managed::default();
        (0..MAX_TRIALS).for_each(|_| other.learn(300 * MIB, 480 * MIB, 480 * MIB));
        assert!(!other.is_conclusive(300 * MIB), "it is not asked for ever");
    }
}
