//! Stream-ordered release of memory: of blocks to their pools, and of pools' memory to the device.

use core::sync::atomic::Ordering;

use crate::object::memory::{self, Kind};
use crate::object::pool::{self, POOLS};
use crate::object::process::process;
use crate::object::{graph_memory, sharing};

/// Frees memory after the stream has reached the free (or the program has waited for it): a pool's block returns to its
/// pool, memory of `cuMemAlloc` to the device.
pub(crate) fn free_now(address: u64) {
    if graph_memory::free(address).is_ok() || free_imported(address) {
        return;
    }
    let is_freed_in_order = |kind: &Kind| matches!(kind, Kind::Pool(_) | Kind::Device | Kind::Managed);
    let Some(range) = memory::remove(address, |kind| is_freed_in_order(&kind)) else {
        return;
    };
    if !matches!(range.kind, Kind::Pool(_)) {
        if let Ok(process) = process() {
            memory::release(process, &range);
        }
        return;
    }
    let Some(pool) = pool::take_block(address) else {
        return;
    };
    // If another process still holds the block, which the documentation forbids, the bytes become that process's.
    let is_own = sharing::hide(address).is_none_or(sharing::unmake);
    range.device.arena.give(range.base, range.bytes);
    pool.reserve.end_use(range.bytes);
    if !is_own {
        pool.reserve.lose(range.bytes);
    }
    // "The resources will be released once there are no more outstanding allocations" (`cuMemPoolDestroy`): those of a
    // block with it (docs/hardware.md, "pools' memory").
    if POOLS.get(pool.handle).is_none() {
        pool.trim(0);
    }
}

/// Frees unused memory of pools at a synchronisation: "the allocator will try to release memory back to the OS on the next
/// call to stream, event or context synchronize" (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
pub(crate) fn synchronized() {
    for pool in pool::all() {
        pool.trim(pool.threshold.load(Ordering::Relaxed));
    }
}

/// Ends an imported block; the exporter's is not affected.
fn free_imported(address: u64) -> bool {
    let Some(range) = memory::remove(address, |kind| matches!(kind, Kind::Imported(_))) else {
        return false;
    };
    sharing::end(address);
    if let Kind::Imported(handle) = range.kind
        && let Some(pool) = POOLS.get(handle)
    {
        pool.imports.fetch_sub(1, Ordering::Relaxed);
    }
    true
}
