//! One pool account: a pool, or the memory of a device's graphs.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use vcuda_driver_api::prelude::*;
use vcuda_region::slots::Slot;
use vcuda_region::{DeviceIndex, ledger};

use super::balance::{Balance, Correction};
use super::freeing::{Freeing, Place};
use crate::driver::{Relaxed, real};
use crate::hooks::own as hooked;
use crate::runtime::devices::{Denied, Device};
use crate::runtime::stream::Stream;

/// How often a request that does not fit looks again while others of this process are on their way, whose share of
/// what is held is not known before they are back.
const LOOKS: u32 = 64;

/// Who holds the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A pool of stream-ordered memory.
    Pool(CUmemoryPool),
    /// The graphs of the device.
    Graphs,
    /// A pool that was destroyed while memory of it lived: it cannot be asked any more, and ends with that memory.
    Orphan,
}

/// Memory that the driver holds. What is counted for it is given back with it.
#[derive(Debug)]
pub(crate) struct PoolAccount {
    /// Where the memory is.
    pub(crate) device: &'static Device,
    /// What is allocated from it and not yet freed by the application, each piece rounded up (bytes).
    live_bytes: AtomicU64,
    /// Managed memory, which NVML does not count with the process as far as evidence goes.
    is_managed: bool,
    /// Where pieces of it were freed that may not be back yet; of a pool that can be destroyed.
    freeing: Option<Freeing>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    holder: Holder,
    balance: Balance,
}

/// A request on its way to the driver. Dropped, it was refused.
#[derive(Debug)]
pub(crate) struct Promise<'h> {
    pool_account: &'h PoolAccount,
    bytes: u64,
    growth: u64,
    is_asked: bool,
}

impl PoolAccount {
    /// Of a pool. One that cannot be destroyed is always there to be asked.
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

    /// Of the device's graphs.
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
            state: Mutex::new(State {
                holder,
                balance: Balance::new(),
            }),
        }
    }

    /// Counts what a request of `bytes` may make a pool grow by. A request that the pool can serve from what it holds
    /// needs nothing.
    ///
    /// # Errors
    /// It would not fit, whatever was given back.
    pub(crate) fn promise(&self, bytes: u64) -> Result<Promise<'_>, Denied> {
        let _relaxed = Relaxed::enter();
        self.device.count(bytes, |slot, index, limit_bytes| {
            self.attempt(|state| {
                // Unknown: as if all were in use.
                let used = state.holder.used(self.device);
                let used = used.unwrap_or_else(|| state.balance.charged());
                let (first, least) = state.balance.growth(used, bytes);
                let growth = grow(slot, index, limit_bytes, first).or_else(|denied| {
                    if least < first {
                        grow(slot, index, limit_bytes, least)
                    } else {
                        Err(denied)
                    }
                })?;
                state.balance.promise(bytes, growth);
                Ok(Promise {
                    pool_account: self,
                    bytes,
                    growth,
                    is_asked: true,
                })
            })
        })
    }

    /// Counts what the launch of a graph that allocates `bytes` may take. `epoch` is when the graph was last mapped.
    ///
    /// # Errors
    /// It would not fit, whatever was given back.
    pub(crate) fn promise_launch(&self, bytes: u64, epoch: &AtomicU64) -> Result<Promise<'_>, Denied> {
        self.device.count(bytes, |slot, index, limit_bytes| {
            self.attempt(|state| {
                let is_mapped = epoch.load(Ordering::Relaxed) == state.balance.epoch;
                let most = state.balance.growth_of_graph(bytes, is_mapped);
                let growth = grow(slot, index, limit_bytes, most).or_else(|denied| {
                    // Graphs share memory while they do not run at the same time: what is in use may leave enough.
                    let used = state.holder.used(self.device).unwrap_or(u64::MAX);
                    match state.balance.growth(used, bytes) {
                        (_, least) if least < most => grow(slot, index, limit_bytes, least),
                        _ => Err(denied),
                    }
                })?;
                if !is_mapped {
                    state.balance.map(bytes);
                    epoch.store(state.balance.epoch, Ordering::Relaxed);
                }
                state.balance.promise(bytes, growth);
                Ok(Promise {
                    pool_account: self,
                    bytes,
                    growth,
                    // A graph that runs again in memory of its own is launched without further questions (I6).
                    is_asked: growth > 0 || most > 0,
                })
            })
        })
    }

    fn attempt<T>(
        &self,
        mut admit: impl FnMut(&mut State) -> Result<T, ledger::Denied>,
    ) -> Result<T, ledger::Denied> {
        let mut looks = 0;
        loop {
            let mut state = self.state.lock();
            match admit(&mut state) {
                Err(_) if state.balance.is_busy() && looks < LOOKS => {
                    drop(state);
                    looks += 1;
                    std::thread::yield_now();
                }
                outcome => return outcome,
            }
        }
    }

    /// Counts what the driver says that it holds.
    pub(crate) fn recount(&self) {
        let mut state = self.state.lock();
        if !state.balance.is_empty() {
            // More than was counted is counted all the same: it is taken.
            let held = state.holder.held(self.device);
            let _ = self.follow(&mut state, held);
        }
    }

    /// Whether it may yet give something back by itself.
    pub(crate) fn is_shrinking(&self) -> bool {
        let state = self.state.lock();
        !state.balance.is_empty() && self.may_shrink(&state)
    }

    /// Asks the driver to give back what nobody uses, and counts what is left.
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

    /// The pool is about to be destroyed: from now on nobody asks it anything. What it holds beyond what lives in it
    /// goes with it in any case, and goes now, while the driver can still say how much.
    pub(crate) fn orphan(&self) {
        let mut state = self.state.lock();
        if !state.balance.is_empty() {
            self.trim_now(&mut state);
        }
        state.holder = Holder::Orphan;
    }

    /// Of what is counted here, whoever asked gives `bytes` back to the ledger. `false` if so much is not counted.
    pub(super) fn export(&self, bytes: u64) -> bool {
        self.state.lock().balance.export(bytes)
    }

    /// Counts `bytes` that were exported here too, in the pool, for as long as the driver or a destroyed pool may keep them.
    pub(super) fn take_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        // First: at no time is less counted than the driver holds. The object counts until it is let go of.
        let _ = self.device.charge_taken(bytes);
        state.balance.take_back(bytes);
    }

    /// Undoes [`PoolAccount::take_back`]. `false` if so much is not counted.
    pub(super) fn export_again(&self, bytes: u64) -> bool {
        let is_exported = self.export(bytes);
        if is_exported {
            self.device.release(bytes);
        }
        is_exported
    }

    /// What is counted (bytes).
    pub(super) fn counted_bytes(&self) -> u64 {
        self.state.lock().balance.charged()
    }

    /// The pool was not destroyed after all.
    pub(crate) fn join_foreign(&self, pool: CUmemoryPool) {
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

    /// A piece is about to be freed in the order of `stream`. `false` if it matters and cannot be noted.
    pub(crate) fn frees_in(&self, stream: Stream) -> bool {
        self.freeing.as_ref().is_none_or(|freeing| freeing.note(stream))
    }

    /// Takes out the streams in whose order pieces were freed, and of which this holds.
    pub(super) fn take_streams(&self, is_meant: impl Fn(Place) -> bool) -> Vec<Place> {
        self.freeing
            .as_ref()
            .map_or_else(Vec::new, |freeing| freeing.take(is_meant))
    }

    /// Puts back what was taken out for an end that did not come.
    pub(super) fn put_streams_back(&self, places: Vec<Place>) {
        if let Some(freeing) = &self.freeing {
            freeing.put_back(places);
        }
    }

    /// A piece of `bytes` is allocated.
    pub(super) fn lives(&self, bytes: u64) {
        self.live_bytes.fetch_add(rounded(bytes), Ordering::Relaxed);
    }

    /// A piece of `bytes` is freed by the application.
    pub(super) fn freed(&self, bytes: u64) {
        self.live_bytes.fetch_sub(rounded(bytes), Ordering::Relaxed);
    }

    /// Makes the balance say what the driver says.
    ///
    /// # Errors
    /// It holds more than was counted for it, and that is beyond the limit. It is counted all the same.
    fn follow(&self, state: &mut State, held: Option<u64>) -> Result<u64, (u64, Denied)> {
        let Some(held) = held else {
            return Ok(0);
        };
        let is_busy = state.balance.is_busy();
        let is_graphs = state.holder == Holder::Graphs;
        // Unknown: as if all were in use.
        let used = if is_busy || is_graphs {
            state.holder.used(self.device).unwrap_or(held)
        } else {
            0
        };
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
            Correction::Charge(bytes) => self
                .device
                .charge_taken(bytes)
                .map(|()| bytes)
                .map_err(|d| (bytes, d)),
        }
    }

    /// A request has come back, answered or refused.
    fn settle(&self, promise: &Promise<'_>, was_refused: bool) -> Result<(), Denied> {
        let _relaxed = Relaxed::enter();
        let mut state = self.state.lock();
        state.balance.fulfil(promise.bytes, promise.growth);
        if !promise.is_asked && !was_refused {
            return Ok(());
        }
        let held = state.holder.held(self.device);
        if was_refused && held.is_none() {
            self.device.release(state.balance.undo(promise.growth));
            return Ok(());
        }
        let followed = self.follow(&mut state, held);
        let (Ok(missing) | Err((missing, _))) = followed;
        if missing > 0 {
            state.balance.learn(promise.bytes, promise.growth, missing);
        }
        followed.map(drop).map_err(|(_, denied)| denied)
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

impl Promise<'_> {
    /// The driver has answered: counts what it holds now.
    ///
    /// # Errors
    /// It took more than was counted, and that is beyond the limit. It is counted all the same, until it is gone.
    pub(crate) fn settle(self) -> Result<(), Denied> {
        let settled = self.pool_account.settle(&self, false);
        core::mem::forget(self);
        settled
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let _ = self.pool_account.settle(self, true);
    }
}

impl Holder {
    /// What is held (bytes); nothing if nobody can tell.
    fn held(self, device: &Device) -> Option<u64> {
        match self {
            Self::Pool(pool) => pool_figure(pool, CUmemPool_attribute::RESERVED_MEM_CURRENT),
            Self::Graphs => graph_figure(device, CUgraphMem_attribute::RESERVED_MEM_CURRENT),
            Self::Orphan => None,
        }
    }

    /// What is in use of it (bytes).
    fn used(self, device: &Device) -> Option<u64> {
        match self {
            Self::Pool(pool) => pool_figure(pool, CUmemPool_attribute::USED_MEM_CURRENT),
            Self::Graphs => graph_figure(device, CUgraphMem_attribute::USED_MEM_CURRENT),
            Self::Orphan => None,
        }
    }

    /// Gives back what is not in use.
    fn trim(self, device: &Device) {
        match self {
            // SAFETY: the pool is not destroyed while the pool account's lock is held.
            Self::Pool(pool) => drop(unsafe { hooked::cuMemPoolTrimTo(pool, 0) }),
            // SAFETY: an ordinal of the driver's own.
            Self::Graphs => drop(unsafe { hooked::cuDeviceGraphMemTrim(device.ordinal) }),
            Self::Orphan => {}
        }
    }
}

/// Counts `bytes` for growth.
fn grow(slot: &Slot<'_>, index: DeviceIndex, limit_bytes: u64, bytes: u64) -> Result<u64, ledger::Denied> {
    if bytes > 0 {
        slot.reserve(index, bytes, limit_bytes)?.commit();
    }
    Ok(bytes)
}

/// A pool hands memory out in pieces of 512 bytes at the most.
fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(512).unwrap_or(bytes)
}

fn pool_figure(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
    let mut bytes = 0_u64;
    let place: *mut c_void = (&raw mut bytes).cast();
    // SAFETY: the driver writes 64 bits for these attributes, 32 for the type of memory, or nothing.
    unsafe { real::cuMemPoolGetAttribute(pool, attribute, place) }.ok()?;
    Some(bytes)
}

fn graph_figure(device: &Device, attribute: CUgraphMem_attribute) -> Option<u64> {
    let mut bytes = 0_u64;
    let place: *mut c_void = (&raw mut bytes).cast();
    // SAFETY: the driver writes 64 bits for these attributes or nothing.
    unsafe { real::cuDeviceGetGraphMemAttribute(device.ordinal, attribute, place) }.ok()?;
    Some(bytes)
}
