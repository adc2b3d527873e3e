//! Memory that the driver holds for this process in pools and for graphs, beyond what it has handed out.
//!
//! The tenant pays for all that is held, not only for what is in use. A pool keeps freed memory up to its release
//! threshold, until a synchronisation or a trim (CUDA Driver API, Stream Ordered Memory Allocator). Memory of graphs is
//! kept until `cuDeviceGraphMemTrim` (Graph Management).
//!
//! `balance.rs` is the arithmetic, and `account.rs` asks the driver. `ordered.rs` has memory that is given back once
//! a stream reaches its free. `recount.rs` decides when to look. Nothing here synchronises. What the driver gave back
//! is seen at the application's next synchronisation, before an answer about memory, and before a denial. For an
//! answer the driver is asked only if something has happened since it was last asked.

mod account;
mod balance;
mod block;
mod exported_piece;
mod freeing;
mod holder;
mod ordered;
mod recount;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

pub(crate) use account::PoolAccount;
pub(crate) use block::Block;
pub(crate) use ordered::{DeferredFree, Ordered};
pub(crate) use recount::is_shrinking;

use crate::runtime::by_number::ByNumber;
use crate::runtime::number_map::NumberMap;
use crate::runtime::shim::devices::Device;

/// The place of a pool's memory, and the payer.
#[derive(Debug, Clone)]
pub(crate) enum PoolLocation {
    /// Memory on a device of the process.
    Device(Arc<PoolAccount>),
    /// Memory that is not on a GPU.
    Host,
    /// Memory of the process that exported the pool, which pays.
    Imported,
}

/// Set once there may be a pool account. It is a static, so that an allocation in a program without pools costs one load. A
/// forked child inherits it, and finds no account then.
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// Whether there may be any pool account.
#[inline]
pub(crate) fn is_any() -> bool {
    IS_ANY.load(Ordering::Relaxed)
}

/// All pool accounts of this process.
#[derive(Debug, Default)]
pub(crate) struct PoolAccounts {
    /// Set once there was a pool of managed memory.
    is_managed: AtomicBool,
    /// Number of events after which the driver may hold another amount.
    changes: AtomicU64,
    /// The value of `changes` up to which all is counted.
    counted: AtomicU64,
    /// The pools, by handle.
    pools: Mutex<NumberMap<PoolLocation>>,
    graphs: Mutex<HashMap<CUdevice, Arc<PoolAccount>, ByNumber>>,
    /// Pieces of pools, by address.
    blocks: Mutex<NumberMap<Block>>,
    /// Destroyed pools of which something is still counted.
    destroyed: Mutex<Vec<Weak<PoolAccount>>>,
    /// Uncertain bytes at the last look and at the one before. One thread looks at a time.
    uncertain: AtomicU64,
    uncertain_before: AtomicU64,
    /// Memory that is given back once a stream reaches its free.
    pub(crate) ordered: Ordered,
}

/// The state of the streams of some contexts.
#[derive(Debug)]
#[must_use = "dropping it gives back what waits for these streams"]
pub(crate) struct StreamsOfContexts {
    waiting: ordered::RemovedEntries,
    freeing: Vec<(Arc<PoolAccount>, Vec<freeing::Place>)>,
}

impl PoolLocation {
    /// Whether both mean the same pool.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device(one), Self::Device(other)) => Arc::ptr_eq(one, other),
            (Self::Host, Self::Host) | (Self::Imported, Self::Imported) => true,
            _ => false,
        }
    }
}

impl PoolAccounts {
    /// Notes where the memory of a pool is that was just made.
    pub(crate) fn note(&self, pool: CUmemoryPool, location: PoolLocation) {
        let before = self.pools.lock().insert(pool.0 as u64, location);
        drop(before);
    }

    /// Notes a pool that was just made with memory on this device.
    pub(crate) fn note_made_on(&self, pool: CUmemoryPool, device: &'static Device) {
        let location = self.location_on(pool, device, true);
        self.note(pool, location);
    }

    /// Notes a pool that existed before, with memory on this device.
    pub(crate) fn note_on(&self, pool: CUmemoryPool, device: &'static Device) -> PoolLocation {
        let can_end = !PoolAccount::is_default(device, pool);
        let location = self.location_on(pool, device, can_end);
        let mut pools = self.pools.lock();
        // Another thread may have met it at the same time.
        if let Some(known) = pools.get(pool.0 as u64) {
            return known.clone();
        }
        pools.insert(pool.0 as u64, location.clone());
        location
    }

    fn location_on(&self, pool: CUmemoryPool, device: &'static Device, can_end: bool) -> PoolLocation {
        let pool_account = PoolAccount::of_pool(device, pool, can_end);
        IS_ANY.store(true, Ordering::Relaxed);
        if pool_account.is_managed() {
            self.is_managed.store(true, Ordering::Relaxed);
        }
        PoolLocation::Device(Arc::new(pool_account))
    }

    /// Bytes counted on the device for pools of managed memory, without destroyed ones.
    pub(crate) fn managed_bytes(&self, device: &Device) -> u64 {
        if !self.is_managed.load(Ordering::Relaxed) {
            return 0;
        }
        let all = self.accounts_of(Some(device)).into_iter();
        let managed = all.filter(|pool_account| pool_account.is_managed());
        managed.map(|pool_account| pool_account.counted_bytes()).sum()
    }

    /// The place of the pool's memory, if the pool is known.
    #[inline]
    pub(crate) fn location(&self, pool: CUmemoryPool) -> Option<PoolLocation> {
        self.pools.lock().get(pool.0 as u64).cloned()
    }

    /// Forgets a pool that was destroyed; its handle may be another pool's by now. Frees that wait for their streams
    /// stay counted until these streams reach them.
    pub(crate) fn destroyed(&self, pool: CUmemoryPool, location: &PoolLocation) {
        let mut pools = self.pools.lock();
        if pools.get(pool.0 as u64).is_some_and(|known| known.is(location)) {
            pools.remove(pool.0 as u64);
        }
        drop(pools);
        if let PoolLocation::Device(pool_account) = location {
            let mut destroyed = self.destroyed.lock();
            destroyed.retain(|pool_account| pool_account.strong_count() > 0);
            destroyed.push(Arc::downgrade(pool_account));
            drop(destroyed);
            for place in pool_account.take_streams(|_| true) {
                self.ordered.wait_for(place, DeferredFree::Pool(Arc::clone(pool_account)));
            }
        }
    }

    /// Prepares for the end of a stream. Its earlier work goes on, but no event can be recorded in it any more.
    pub(crate) fn stream_closing(&self, stream: CUstream) {
        if !is_any() {
            return;
        }
        self.ordered.stream_closing(stream);
        for pool_account in self.accounts_of(None) {
            for place in pool_account.take_streams(|place| place.stream == stream) {
                self.ordered.wait_for(place, DeferredFree::Pool(Arc::clone(&pool_account)));
            }
        }
    }

    /// Takes out the state of streams of contexts that are about to end. Dropping it gives their memory back.
    pub(crate) fn take_streams(&self, contexts: &[CUcontext]) -> StreamsOfContexts {
        let waiting = self.ordered.remove(contexts);
        let freeing = self.accounts_of(None).into_iter().map(|pool_account| {
            let places = pool_account.take_streams(|place| contexts.contains(&place.context));
            (pool_account, places)
        });
        StreamsOfContexts { waiting, freeing: freeing.collect() }
    }

    /// Undoes [`PoolAccounts::take_streams`], as the contexts did not end.
    pub(crate) fn put_streams_back(&self, taken: StreamsOfContexts) {
        self.ordered.put_back(taken.waiting);
        for (pool_account, places) in taken.freeing {
            pool_account.put_streams_back(places);
        }
    }

    /// The memory of the device's graphs.
    pub(crate) fn graphs(&self, device: &'static Device) -> Arc<PoolAccount> {
        IS_ANY.store(true, Ordering::Relaxed);
        let mut graphs = self.graphs.lock();
        let pool_account =
            graphs.entry(device.ordinal).or_insert_with(|| Arc::new(PoolAccount::of_graphs(device)));
        Arc::clone(pool_account)
    }

    /// The pool accounts of one device, or all. The caller holds no lock when it looks at them.
    fn accounts_of(&self, device: Option<&Device>) -> Vec<Arc<PoolAccount>> {
        let is_there = |pool_account: &&Arc<PoolAccount>| {
            device.is_none_or(|device| device.ordinal == pool_account.device.ordinal)
        };
        let pools = self.pools.lock();
        let pools = pools.values().filter_map(|location| match location {
            PoolLocation::Device(pool_account) => Some(pool_account),
            PoolLocation::Host | PoolLocation::Imported => None,
        });
        let mut found: Vec<_> = pools.filter(is_there).cloned().collect();
        found.extend(self.graphs.lock().values().filter(is_there).cloned());
        found
    }
}
