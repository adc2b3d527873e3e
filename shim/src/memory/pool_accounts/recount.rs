//! The times at which the driver is asked what it holds: after an event that may have changed it, and before a
//! denial.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Weak;

use super::{IS_ANY, PoolAccounts, is_any};
use crate::driver::Relaxed;
use crate::runtime::shim;
use crate::runtime::shim::devices::Device;

/// Not 0 while a synchronisation may give something back: [`NOTED`], and [`COUNT`] for each thread that counts, which may have asked a
/// pool before. It is a static, so that a synchronisation in a program without pools costs one load.
static MAY_SHRINK: AtomicU32 = AtomicU32::new(0);
const NOTED: u32 = 1;
const COUNT: u32 = 2;

/// Notes that a synchronisation may give something back.
pub(super) fn may_shrink() {
    MAY_SHRINK.fetch_or(NOTED, Ordering::Relaxed);
}

impl PoolAccounts {
    /// Notes that the driver may hold another amount from now on: it serves a request, or a graph runs.
    #[inline]
    pub(crate) fn changed(&self) {
        if is_any() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Notes that a free was ordered, or a pool's threshold lowered: a synchronisation may give something back.
    pub(crate) fn note_shrinking(&self) {
        IS_ANY.store(true, Ordering::Relaxed);
        may_shrink();
    }

    /// Counts anew, as the application has waited for the GPU, if that may have given something back.
    #[inline]
    pub(crate) fn synchronised(&self) {
        if is_shrinking() {
            self.count_all();
        }
    }

    /// Counts what the driver holds now, before an answer. A pool grows when memory is requested of it, which is
    /// counted at once. It shrinks when the application waits, trims or destroys. It shrinks by itself only while it
    /// holds more than it must. If none of this has happened since the last look, the count is true.
    #[inline]
    pub(crate) fn recount(&self) {
        if is_any()
            && (is_shrinking()
                || self.changes.load(Ordering::Acquire) != self.counted.load(Ordering::Relaxed))
        {
            self.count_all();
        }
    }

    /// Bytes counted on the device that may be given back already: those of destroyed pools, which cannot be asked,
    /// and frees that no event has proved yet.
    pub(crate) fn uncertain_bytes(&self, device: &Device) -> u64 {
        let bytes = self.unproved_bytes(device);
        self.uncertain_before.store(self.uncertain.swap(bytes, Ordering::Relaxed), Ordering::Relaxed);
        bytes
    }

    /// The largest of [`PoolAccounts::uncertain_bytes`] now and at the last two looks. The driver's figure between
    /// two looks may include them.
    pub(crate) fn uncertain_of_late_bytes(&self, device: &Device) -> u64 {
        [&self.uncertain, &self.uncertain_before]
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .into_iter()
            .fold(self.unproved_bytes(device), u64::max)
    }

    fn unproved_bytes(&self, device: &Device) -> u64 {
        if !is_any() {
            return 0;
        }
        let destroyed: Vec<_> = self.destroyed.lock().iter().filter_map(Weak::upgrade).collect();
        let here = destroyed.iter().filter(|pool_account| pool_account.device.ordinal == device.ordinal);
        let destroyed_bytes: u64 = here.map(|pool_account| pool_account.counted_bytes()).sum();
        destroyed_bytes.saturating_add(self.ordered.deferred_bytes(device))
    }

    /// Counts what the driver holds on the device now, even if nothing has happened.
    pub(crate) fn recount_on(&self, device: &Device) {
        if !is_any() {
            return;
        }
        let _relaxed = Relaxed::enter();
        self.ordered.poll();
        for pool_account in self.accounts_of(Some(device)) {
            pool_account.recount();
        }
    }

    #[cold]
    fn count_all(&self) {
        let _unsettled = shim::built().map(|shim| shim.in_flight.unsettled());
        let _relaxed = Relaxed::enter();
        // Both are read first: what happens from here on is looked at again.
        let changes = self.changes.load(Ordering::Acquire);
        MAY_SHRINK.fetch_add(COUNT, Ordering::Relaxed);
        MAY_SHRINK.fetch_and(!NOTED, Ordering::Relaxed);
        let mut is_shrinking = self.ordered.poll();
        for pool_account in self.accounts_of(None) {
            pool_account.recount();
            is_shrinking |= pool_account.is_shrinking();
        }
        if is_shrinking {
            may_shrink();
        }
        MAY_SHRINK.fetch_sub(COUNT, Ordering::Relaxed);
        self.counted.store(changes, Ordering::Relaxed);
    }

    /// Has the driver give back unused memory on the device, before a denial.
    #[cold]
    pub(crate) fn make_room(&self, device: &Device) {
        if !is_any() {
            return;
        }
        let _relaxed = Relaxed::enter();
        self.ordered.poll();
        for pool_account in self.accounts_of(Some(device)) {
            pool_account.trim();
        }
    }
}

/// Whether a synchronisation has to look at the pools.
#[inline]
pub(crate) fn is_shrinking() -> bool {
    MAY_SHRINK.load(Ordering::Relaxed) != 0
}
