//! A pool account: of a pool, or of the memory of a device's graphs.

use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use vcuda_driver_api::prelude::*;

use super::balance::{Balance, Correction};
use super::freeing::{Freeing, Place};
use super::holder::{Holder, pool_figure};
use crate::driver::real;
use crate::runtime::shim::devices::{Denied, Device};
use crate::runtime::stream::Stream;

mod promise;

/// Memory that the driver holds. Its charge is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct PoolAccount {
    /// The device of the memory.
    pub(crate) device: &'static Device,
    /// Bytes allocated from it that the application has not freed, each piece rounded up.
    live_bytes: AtomicU64,
    /// Managed memory, which NVML does not count with the process as far as evidence goes.
    is_managed: bool,
    /// The streams in which pieces were freed that may not be back yet; only for a pool that can be destroyed.
    freeing: Option<Freeing>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    holder: Holder,
    balance: Balance,
}

impl PoolAccount {
    /// The account of a pool. `can_end`: whether the pool can be destroyed.
    pub(super) fn of_pool(device: &'static Device, pool: CUmemoryPool, can_end: bool) -> Self {
        let mut pool_account = Self::new(device, Holder::Pool(pool), can_end.then(Freeing::default));
        // Drivers before CUDA 13 have no such pools, and do not know the attribute.
        let kind = pool_figure(pool, CUmemPool_attribute::ALLOCATION_TYPE);
        pool_account.is_managed = kind == Some(u64::from(CUmemAllocationType::MANAGED.0));
        pool_account
    }

    /// Whether this is the device's own pool, which cannot be destroyed (CUDA Driver API, `cuMemPoolDestroy`).
    pub(super) fn is_default(device: &Device, pool: CUmemoryPool) -> bool {
        let mut own = CUmemoryPool::NULL;
        // SAFETY: the driver writes a handle or nothing.
        let asked = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut own, device.ordinal) };
        asked.is_ok() && own == pool
    }

    /// The account of the device's graphs.
    pub(super) fn of_graphs(device: &'static Device) -> Self {
        Self::new(device, Holder::Graphs, None)
    }

    /// Whether the driver knows a pool by this handle.
    pub(crate) fn is_pool(pool: CUmemoryPool) -> bool {
        pool_figure(pool, CUmemPool_attribute::RESERVED_MEM_CURRENT).is_some()
    }

    fn new(device: &'static Device, holder: Holder, freeing: Option<Freeing>) -> Self {
        Self {
            device,
            live_bytes: AtomicU64::new(0),
            is_managed: false,
            freeing,
            state: Mutex::new(State { holder, balance: Balance::new() }),
        }
    }

    /// Asks the driver what it holds, and counts that.
    pub(crate) fn recount(&self) {
        let mut state = self.state.lock();
        if !state.balance.is_empty() {
            // More than was counted is counted all the same: it is taken.
            let held = state.holder.held(self.device);
            let _ = self.follow(&mut state, held);
        }
    }

    /// Whether the driver may still give something back by itself.
    pub(crate) fn is_shrinking(&self) -> bool {
        let state = self.state.lock();
        !state.balance.is_empty() && self.may_shrink(&state)
    }

    /// Has the driver give back unused memory, and counts what is left.
    pub(crate) fn trim(&self) {
        let mut state = self.state.lock();
        if !state.balance.is_empty() {
            self.trim_now(&mut state);
        }
    }

    fn trim_now(&self, state: &mut State) {
        state.holder.trim(self.device);
        let held = state.holder.held(self.device);
        let _ = self.follow(state, held);
    }

    /// Prepares for the destruction of the pool, after which the driver cannot be asked about it. Unused memory ends
    /// with the pool in any case. It is given back now, while the driver can still tell how much it is.
    pub(crate) fn orphan(&self) {
        let mut state = self.state.lock();
        if !state.balance.is_empty() {
            self.trim_now(&mut state);
        }
        state.holder = Holder::Orphan;
    }

    /// Leaves it to the caller to give `bytes` of the count back to the ledger. Returns `false` if so many are not
    /// counted.
    pub(super) fn export(&self, bytes: u64) -> bool {
        self.state.lock().balance.export(bytes)
    }

    /// Counts `bytes` that were exported in the pool again, for as long as the driver or a destroyed pool may keep
    /// them.
    pub(super) fn take_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        // Done first, so that the count is never less than the driver holds. The object counts until it is let go.
        let _ = self.device.charge_taken(bytes);
        state.balance.take_back(bytes);
    }

    /// Undoes [`PoolAccount::take_back`]. Returns `false` if so many are not counted.
    pub(super) fn export_again(&self, bytes: u64) -> bool {
        let is_exported = self.export(bytes);
        if is_exported {
            self.device.release(bytes);
        }
        is_exported
    }

    /// Bytes counted.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.state.lock().balance.charged()
    }

    /// Undoes [`PoolAccount::orphan`], as the pool was not destroyed.
    pub(crate) fn undo_orphan(&self, pool: CUmemoryPool) {
        self.state.lock().holder = Holder::Pool(pool);
    }

    /// Whether the memory is managed.
    pub(crate) fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.counted_bytes() == 0
    }

    /// Whether the pool was destroyed.
    pub(crate) fn is_orphan(&self) -> bool {
        self.state.lock().holder == Holder::Orphan
    }

    /// Notes that a piece is about to be freed in the order of `stream`. Returns `false` if it has to be noted and
    /// cannot be.
    pub(crate) fn note_free_in(&self, stream: Stream) -> bool {
        self.freeing.as_ref().is_none_or(|freeing| freeing.note(stream))
    }

    /// Takes out the streams, of those in which pieces were freed, for which `is_meant` is true.
    pub(super) fn take_streams(&self, is_meant: impl Fn(Place) -> bool) -> Vec<Place> {
        self.freeing.as_ref().map_or_else(Vec::new, |freeing| freeing.remove(is_meant))
    }

    /// Puts back streams that were taken out, as they did not end.
    pub(super) fn put_streams_back(&self, places: Vec<Place>) {
        if let Some(freeing) = &self.freeing {
            freeing.put_back(places);
        }
    }

    /// Notes that a piece of `bytes` is allocated.
    pub(super) fn note_allocated(&self, bytes: u64) {
        self.live_bytes.fetch_add(rounded(bytes), Ordering::Relaxed);
    }

    /// Notes that the application freed a piece of `bytes`.
    pub(super) fn freed(&self, bytes: u64) {
        self.live_bytes.fetch_sub(rounded(bytes), Ordering::Relaxed);
    }

    /// Corrects the balance by the driver's figure.
    ///
    /// # Errors
    /// Fails if the driver holds more than was counted and that is beyond the limit. It is counted all the same.
    fn follow(&self, state: &mut State, held: Option<u64>) -> Result<u64, (u64, Denied)> {
        let Some(held) = held else {
            return Ok(0);
        };
        let is_busy = state.balance.is_busy();
        let is_graphs = state.holder == Holder::Graphs;
        // If the driver does not tell, all of it counts as used.
        let used = if is_busy || is_graphs { state.holder.used(self.device).unwrap_or(held) } else { 0 };
        let correction = state.balance.recount(held, used);
        if is_graphs && used == 0 {
            state.balance.graphs_are_idle();
        }
        match correction {
            Correction::None => Ok(0),
            Correction::Release(bytes) => {
                self.device.release(bytes);
                Ok(0)
            }
            Correction::Charge(bytes) => {
                self.device.charge_taken(bytes).map(|()| bytes).map_err(|d| (bytes, d))
            }
        }
    }

    /// Whether a synchronisation may make the driver give memory of a pool back: it holds more than its threshold lets
    /// it keep, and some of it is free or about to be.
    fn may_shrink(&self, state: &MutexGuard<'_, State>) -> bool {
        let Holder::Pool(pool) = state.holder else {
            return false;
        };
        let held = state.balance.charged();
        let threshold = pool_figure(pool, CUmemPool_attribute::RELEASE_THRESHOLD).unwrap_or(0);
        let used = state.holder.used(self.device).unwrap_or(0);
        let is_freeing = used > self.live_bytes.load(Ordering::Relaxed);
        held > threshold && (is_freeing || state.balance.steps(used) < held)
    }
}

impl Drop for PoolAccount {
    fn drop(&mut self) {
        self.device.release(self.state.get_mut().balance.own());
    }
}

/// A pool hands memory out in pieces of 512 bytes at the most.
fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(512).unwrap_or(bytes)
}
