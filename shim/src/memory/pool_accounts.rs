//! What the driver holds for this process beyond what it has handed out: the memory of pools and of graphs.
//!
//! The container pays for what is held, not only for what is in use (CUDA Driver API, Stream Ordered Memory Allocator:
//! a pool keeps freed memory up to its release threshold, until a synchronisation or a trim; Graph Management: memory
//! of graphs is kept until `cuDeviceGraphMemTrim`). `pool_accounts/balance.rs` is the arithmetic, `pool_accounts/account.rs` asks
//! the driver, `pool_accounts/ordered.rs` has what is given back when a stream gets there. Nothing here synchronises: what
//! the driver has given back is seen at the next synchronisation of the application's own, before an answer about
//! memory and before a denial. An answer asks the driver only if something has happened since it was last asked.

mod account;
mod balance;
mod exported_piece;
mod freeing;
mod ordered;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_region::shared::ObjectKey;

pub(crate) use account::PoolAccount;
pub(crate) use ordered::{Ordered, Owed};

use crate::driver::Relaxed;
use crate::memory::allocations::ByNumber;
use crate::memory::overhead::in_flight;
use crate::runtime::devices::Device;
use exported_piece::ExportedPiece;

/// A synchronisation may give something back. Outside of the state, since synchronisations of programs without pools
/// pay no more than this load for it.
static MAY_SHRINK: AtomicBool = AtomicBool::new(false);

/// Where a pool's memory is, and who pays.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// On a device of the process.
    Device(Arc<PoolAccount>),
    /// Not on a GPU.
    Host,
    /// In the process that exported the pool, which pays.
    Imported,
}

/// All of this process.
#[derive(Debug, Default)]
pub(crate) struct PoolAccounts {
    is_any: AtomicBool,
    /// There is, or was, a pool of managed memory.
    is_managed: AtomicBool,
    /// How often something happened after which the driver may hold another amount, and nobody has looked.
    changes: AtomicU64,
    /// The changes up to which all has been counted.
    counted: AtomicU64,
    pools: Mutex<HashMap<CUmemoryPool, Home, ByNumber>>,
    graphs: Mutex<HashMap<CUdevice, Arc<PoolAccount>>>,
    /// Pieces of pools, by address: bytes and pool.
    blocks: Mutex<HashMap<CUdeviceptr, Block, ByNumber>>,
    /// Pools that were destroyed, as long as anything of them is counted.
    destroyed: Mutex<Vec<Weak<PoolAccount>>>,
    /// What was uncertain at the last look and at the one before. One thread looks at a time.
    uncertain: AtomicU64,
    uncertain_before: AtomicU64,
    /// What is given back when a stream gets there.
    pub(crate) ordered: Ordered,
}

/// A piece of a pool. It keeps a pool that was destroyed.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its pool.
    pub(crate) pool_account: Arc<PoolAccount>,
    bytes: u64,
    /// What other processes may have imported: it is counted apart.
    exported: Option<ExportedPiece>,
}

/// What is known of the streams of some contexts.
#[derive(Debug)]
#[must_use = "dropping it gives back what waits for these streams"]
pub(crate) struct OfContexts {
    waiting: ordered::Taken,
    freeing: Vec<(Arc<PoolAccount>, Vec<freeing::Place>)>,
}

impl Block {
    /// Whether other processes may import it.
    pub(crate) fn is_exported(&self) -> bool {
        self.exported.is_some()
    }

    /// What is counted on the device for it beside what its pool counts (bytes).
    fn exported_bytes_on(&self, device: &Device) -> u64 {
        let is_here = self.pool_account.device.ordinal == device.ordinal;
        if is_here && self.is_exported() {
            self.bytes
        } else {
            0
        }
    }
}

impl Home {
    /// Whether both are the same pool's.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device(one), Self::Device(other)) => Arc::ptr_eq(one, other),
            (Self::Host, Self::Host) | (Self::Imported, Self::Imported) => true,
            _ => false,
        }
    }
}

impl PoolAccounts {
    /// The memory of this pool, which was just made, is there.
    pub(crate) fn note(&self, pool: CUmemoryPool, home: Home) {
        let before = self.pools.lock().insert(pool, home);
        drop(before);
    }

    /// A pool that was just made, and whose memory is on this device.
    pub(crate) fn note_made_on(&self, pool: CUmemoryPool, device: &'static Device) {
        let home = self.home_on(pool, device, true);
        self.note(pool, home);
    }

    /// A pool that was there before, and whose memory is on this device.
    pub(crate) fn note_on(&self, pool: CUmemoryPool, device: &'static Device) -> Home {
        let can_end = !PoolAccount::is_default(device, pool);
        let home = self.home_on(pool, device, can_end);
        // Another thread may have met it at the same time.
        self.pools.lock().entry(pool).or_insert(home).clone()
    }

    fn home_on(&self, pool: CUmemoryPool, device: &'static Device, can_end: bool) -> Home {
        let pool_account = PoolAccount::of_pool(device, pool, can_end);
        self.is_any.store(true, Ordering::Relaxed);
        if pool_account.is_managed() {
            self.is_managed.store(true, Ordering::Relaxed);
        }
        Home::Device(Arc::new(pool_account))
    }

    /// What is counted on the device for pools of managed memory, but for destroyed ones (bytes).
    pub(crate) fn managed_bytes(&self, device: &Device) -> u64 {
        if !self.is_managed.load(Ordering::Relaxed) {
            return 0;
        }
        let all = self.of(Some(device)).into_iter();
        let managed = all.filter(|pool_account| pool_account.is_managed());
        managed.map(|pool_account| pool_account.counted_bytes()).sum()
    }

    /// Where the pool's memory is, if the pool is known.
    pub(crate) fn home(&self, pool: CUmemoryPool) -> Option<Home> {
        self.pools.lock().get(&pool).cloned()
    }

    /// Forgets a pool that was destroyed. Its handle may be another pool's by now. What was freed in the order of streams
    /// that are not there yet stays counted until they are.
    pub(crate) fn destroyed(&self, pool: CUmemoryPool, home: &Home) {
        let mut pools = self.pools.lock();
        if pools.get(&pool).is_some_and(|known| known.is(home)) {
            pools.remove(&pool);
        }
        drop(pools);
        if let Home::Device(pool_account) = home {
            let mut destroyed = self.destroyed.lock();
            destroyed.retain(|pool_account| pool_account.strong_count() > 0);
            destroyed.push(Arc::downgrade(pool_account));
            drop(destroyed);
            for place in pool_account.take_streams(|_| true) {
                self.ordered.wait_for(place, Owed::Pool(Arc::clone(pool_account)));
            }
        }
    }

    /// The stream is about to end. What it was told to do before goes on; nothing can be marked in it any more.
    pub(crate) fn stream_closing(&self, stream: CUstream) {
        if !self.is_any() {
            return;
        }
        self.ordered.stream_closing(stream);
        for pool_account in self.of(None) {
            for place in pool_account.take_streams(|place| place.stream == stream) {
                self.ordered
                    .wait_for(place, Owed::Pool(Arc::clone(&pool_account)));
            }
        }
    }

    /// Takes out what is known of streams of contexts that are about to end. Dropped, it is given back.
    pub(crate) fn take_streams(&self, contexts: &[CUcontext]) -> OfContexts {
        let waiting = self.ordered.take(contexts);
        let freeing = self.of(None).into_iter().map(|pool_account| {
            let places = pool_account.take_streams(|place| contexts.contains(&place.context));
            (pool_account, places)
        });
        OfContexts {
            waiting,
            freeing: freeing.collect(),
        }
    }

    /// The contexts did not end.
    pub(crate) fn put_streams_back(&self, taken: OfContexts) {
        self.ordered.put_back(taken.waiting);
        for (pool_account, places) in taken.freeing {
            pool_account.put_streams_back(places);
        }
    }

    /// The memory of the device's graphs.
    pub(crate) fn graphs(&self, device: &'static Device) -> Arc<PoolAccount> {
        self.is_any.store(true, Ordering::Relaxed);
        let mut graphs = self.graphs.lock();
        let pool_account = graphs
            .entry(device.ordinal)
            .or_insert_with(|| Arc::new(PoolAccount::of_graphs(device)));
        Arc::clone(pool_account)
    }

    /// A piece of a pool is at this address.
    pub(crate) fn allocated(&self, address: CUdeviceptr, bytes: u64, pool_account: &Arc<PoolAccount>) {
        pool_account.lives(bytes);
        let block = Block {
            pool_account: Arc::clone(pool_account),
            bytes,
            exported: None,
        };
        self.put(address, block);
    }

    /// Takes out the piece of a pool at this address, which is about to be freed.
    pub(crate) fn take(&self, address: CUdeviceptr) -> Option<Block> {
        if !self.is_any() {
            return None;
        }
        let mut block = self.blocks.lock().remove(&address)?;
        if let Some(exported) = &mut block.exported {
            exported.take_back();
        }
        block.pool_account.freed(block.bytes);
        Some(block)
    }

    /// It was not freed after all.
    pub(crate) fn put_back(&self, address: CUdeviceptr, mut block: Block) {
        block.pool_account.lives(block.bytes);
        if let Some(exported) = &mut block.exported {
            exported.export_again();
        }
        self.put(address, block);
    }

    /// Tells the container under which key other processes import the piece at this address.
    pub(crate) fn export(&self, address: CUdeviceptr, key: ObjectKey) {
        if let Some(block) = self.blocks.lock().get_mut(&address)
            && block.exported.is_none()
        {
            block.exported = ExportedPiece::of(&block.pool_account, block.bytes, key);
        }
    }

    fn put(&self, address: CUdeviceptr, block: Block) {
        let before = self.blocks.lock().insert(address, block);
        // Freed without our knowing.
        if let Some(block) = before {
            block.pool_account.freed(block.bytes);
        }
    }

    /// Whether there is anything to look at.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// The driver may hold another amount from now on: it makes room for what it is asked for, and graphs run.
    #[inline]
    pub(crate) fn changed(&self) {
        if self.is_any() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// A free was ordered, or a pool's threshold lowered: a synchronisation may give something back.
    pub(crate) fn note_shrinking(&self) {
        self.is_any.store(true, Ordering::Relaxed);
        MAY_SHRINK.store(true, Ordering::Relaxed);
    }

    /// The application has waited for the GPU.
    pub(crate) fn synchronised(&self) {
        self.count_all();
    }

    /// Before an answer: counts what the driver holds now. Pools grow when memory is asked of them, which counts at once,
    /// and shrink when the application waits, trims or destroys; by themselves only while they hold what they need not. So
    /// as long as none of this has happened, and nothing is on its way back, what is counted is what is held.
    #[inline]
    pub(crate) fn recount(&self) {
        if self.is_any()
            && (is_shrinking()
                || self.changes.load(Ordering::Acquire) != self.counted.load(Ordering::Relaxed))
        {
            self.count_all();
        }
    }

    /// What is counted on the device and may be given back already (bytes): that of destroyed pools, which cannot be asked,
    /// and what a stream frees of which no event has told yet.
    pub(crate) fn uncertain_bytes(&self, device: &Device) -> u64 {
        let bytes = self.untold_bytes(device);
        self.uncertain_before
            .store(self.uncertain.swap(bytes, Ordering::Relaxed), Ordering::Relaxed);
        bytes
    }

    /// The most that [`PoolAccounts::uncertain_bytes`] would say now and said the last two times (bytes): what the driver says
    /// between two looks may include it.
    pub(crate) fn uncertain_of_late_bytes(&self, device: &Device) -> u64 {
        [&self.uncertain, &self.uncertain_before]
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .into_iter()
            .fold(self.untold_bytes(device), u64::max)
    }

    fn untold_bytes(&self, device: &Device) -> u64 {
        if !self.is_any() {
            return 0;
        }
        let destroyed: Vec<_> = self.destroyed.lock().iter().filter_map(Weak::upgrade).collect();
        let here = destroyed
            .iter()
            .filter(|pool_account| pool_account.device.ordinal == device.ordinal);
        let destroyed_bytes: u64 = here.map(|pool_account| pool_account.counted_bytes()).sum();
        destroyed_bytes.saturating_add(self.ordered.owed_bytes(device))
    }

    /// Counts what the driver holds on the device now, whatever has happened.
    pub(crate) fn recount_on(&self, device: &Device) {
        if !self.is_any() {
            return;
        }
        let _relaxed = Relaxed::enter();
        self.ordered.poll();
        for pool_account in self.of(Some(device)) {
            pool_account.recount();
        }
    }

    #[cold]
    fn count_all(&self) {
        let _unsettled = in_flight::unsettled();
        let _relaxed = Relaxed::enter();
        // Both first: what happens from now on is looked at again.
        let changes = self.changes.load(Ordering::Acquire);
        MAY_SHRINK.store(false, Ordering::Relaxed);
        let mut is_shrinking = self.ordered.poll();
        for pool_account in self.of(None) {
            pool_account.recount();
            is_shrinking |= pool_account.is_shrinking();
        }
        if is_shrinking {
            MAY_SHRINK.store(true, Ordering::Relaxed);
        }
        self.counted.store(changes, Ordering::Relaxed);
    }

    /// Before a denial: has the driver give back what nobody uses on the device.
    #[cold]
    pub(crate) fn make_room(&self, device: &Device) {
        if !self.is_any() {
            return;
        }
        let _relaxed = Relaxed::enter();
        self.ordered.poll();
        for pool_account in self.of(Some(device)) {
            pool_account.trim();
        }
    }

    /// The pool accounts, of one device or all. Looked at without the locks held.
    fn of(&self, device: Option<&Device>) -> Vec<Arc<PoolAccount>> {
        let is_there = |pool_account: &&Arc<PoolAccount>| {
            device.is_none_or(|device| device.ordinal == pool_account.device.ordinal)
        };
        let pools = self.pools.lock();
        let pools = pools.values().filter_map(|home| match home {
            Home::Device(pool_account) => Some(pool_account),
            Home::Host | Home::Imported => None,
        });
        let mut found: Vec<_> = pools.filter(is_there).cloned().collect();
        found.extend(self.graphs.lock().values().filter(is_there).cloned());
        found
    }
}

/// Whether synchronisations need looking at.
#[inline]
pub(crate) fn is_shrinking() -> bool {
    MAY_SHRINK.load(Ordering::Relaxed)
}
