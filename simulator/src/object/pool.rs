//! Memory pools (CUDA Driver API, "Stream Ordered Memory Allocator"; CUDA C++ Programming Guide, same name).
//!
//! `semantics/pool.rs` frees blocks. A block's address and memory are taken at the call, which is allowed ("the allocation
//! may be used once the stream has reached it"), and returned when the stream reaches the free. A pool's memory beyond its
//! release threshold is freed at the next synchronisation of a stream, an event or a context.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind as HandleKind, Table};
use crate::object::backing::Reserve;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};
use crate::object::process::{device, process};
use crate::object::sharing::Shared;

pub(crate) static POOLS: Table<Pool> = Table::new(HandleKind::Pool);
/// Whether there ever was a pool; if not, synchronisations skip them.
static HAS_POOLS: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: usize,
    /// Its device. Managed memory stays there.
    pub(crate) device: &'static Device,
    /// `CUmemPoolProps.location`; for managed memory the preferred one, or none.
    pub(crate) location: CUmemLocationType,
    /// `CUmemPoolProps.allocType`.
    pub(crate) kind: CUmemAllocationType,
    /// Memory in use and kept.
    pub(crate) reserve: Arc<Reserve>,
    /// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`, bytes.
    pub(crate) threshold: AtomicU64,
    /// `CU_MEMPOOL_ATTR_REUSE_*`: follow event dependencies, opportunistic, internal dependencies.
    pub(crate) reuse: [AtomicBool; 3],
    /// `CUmemPoolProps.maxSize`, bytes; `u64::MAX` for the system's limit.
    pub(crate) limit: u64,
    /// `CUmemPoolProps.handleTypes`.
    pub(crate) handle_types: CUmemAllocationHandleType,
    /// Whether it is imported: "imported memory pools do not support creating new allocations".
    pub(crate) is_imported: bool,
    /// Number of pointers imported from it and not freed.
    pub(crate) imports: AtomicU32,
    /// Object for other processes, made by this one or imported (`export/pool_share.rs`).
    pub(crate) object: Mutex<Option<Arc<Shared>>>,
    /// `CUmemAccess_flags` of other devices by ordinal (`cuMemPoolSetAccess`).
    pub(crate) access: Mutex<BTreeMap<CUdevice, u32>>,
}

impl Pool {
    /// Makes a pool with these properties on a device.
    pub(crate) fn create(device: &'static Device, properties: &CUmemPoolProps) -> Arc<Pool> {
        Pool::keep(device, properties, None)
    }

    /// Makes a pool for one of another process.
    pub(crate) fn import(shared: Shared) -> Arc<Pool> {
        let properties = own_properties(CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
        Pool::keep(shared.device, &properties, Some(Arc::new(shared)))
    }

    fn keep(
        device: &'static Device,
        properties: &CUmemPoolProps,
        imported: Option<Arc<Shared>>,
    ) -> Arc<Pool> {
        HAS_POOLS.store(true, Ordering::Relaxed);
        POOLS
            .insert_with(|handle| Pool {
                handle,
                device,
                location: properties.location.r#type,
                kind: properties.allocType,
                reserve: Reserve::new(device, properties.allocType == CUmemAllocationType::MANAGED),
                threshold: AtomicU64::new(0),
                reuse: [const { AtomicBool::new(true) }; 3],
                // "If set to 0, the maximum size defaults to a system dependent value."
                limit: match properties.maxSize {
                    0 => u64::MAX,
                    bytes => bytes as u64,
                },
                handle_types: properties.handleTypes,
                is_imported: imported.is_some(),
                imports: AtomicU32::new(0),
                object: Mutex::new(imported),
                access: Mutex::default(),
            })
            .1
    }

    /// Allocates a block. Returns its address. Errors: `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` for an
    /// imported pool.
    pub(crate) fn allocate(self: &Arc<Pool>, bytes: u64) -> Result<u64, CUerror> {
        if self.is_imported {
            return Err(CUerror::INVALID_VALUE);
        }
        if let Err(error) = self.reserve.begin_use(bytes, self.limit) {
            // Unused memory of other pools may help.
            if !crate::object::backing::release_unused(self.device) {
                return Err(error);
            }
            self.reserve.begin_use(bytes, self.limit)?;
        }
        let Some(base) = self.device.arena.take(bytes) else {
            self.reserve.end_use(bytes);
            return Err(CUerror::OUT_OF_MEMORY);
        };
        memory::insert(base, bytes, Kind::Pool(self.handle), self.device, None);
        BLOCKS.lock().insert(base, Arc::clone(self));
        Ok(base)
    }

    /// Frees unused memory beyond `keep` (`cuMemPoolTrimTo`).
    pub(crate) fn trim(&self, keep: u64) {
        self.reserve.trim(keep);
    }
}

/// Properties for a pool of pinned memory on a device.
fn own_properties(handle_types: CUmemAllocationHandleType) -> CUmemPoolProps {
    // SAFETY: integers and a raw pointer only, for which zero is a value.
    let mut properties: CUmemPoolProps = unsafe { core::mem::zeroed() };
    properties.allocType = CUmemAllocationType::PINNED;
    properties.handleTypes = handle_types;
    properties.location.r#type = CUmemLocationType::DEVICE;
    properties
}

/// Pool of each block in use, by address, as a destroyed pool has no handle.
static BLOCKS: Mutex<BTreeMap<u64, Arc<Pool>>> = Mutex::new(BTreeMap::new());

/// The pool of a block in use.
pub(crate) fn of_block(address: u64) -> Option<Arc<Pool>> {
    BLOCKS.lock().get(&address).cloned()
}

/// Removes a block in use. Returns its pool.
pub(crate) fn take_block(address: u64) -> Option<Arc<Pool>> {
    BLOCKS.lock().remove(&address)
}

pub(crate) fn all() -> Vec<Arc<Pool>> {
    if HAS_POOLS.load(Ordering::Relaxed) { POOLS.all() } else { Vec::new() }
}

/// The pool behind a handle. Errors: `CUDA_ERROR_NOT_INITIALIZED`; `CUDA_ERROR_INVALID_VALUE` for a handle that is none
/// (as documented for the pool functions).
pub(crate) fn pool(handle: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    process()?;
    POOLS.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}

/// A device's default pool, made when first requested.
pub(crate) fn default_pool(ordinal: CUdevice) -> Result<Arc<Pool>, CUerror> {
    let device = device(ordinal)?;
    let mut pools = device.pools.lock();
    if pools.default == 0 {
        pools.default = Pool::create(device, &own_properties(CUmemAllocationHandleType::NONE)).handle;
    }
    POOLS.get(pools.default).ok_or(CUerror::UNKNOWN)
}

/// A device's current pool, from which `cuMemAllocAsync` allocates; initially the default pool.
pub(crate) fn current_pool(ordinal: CUdevice) -> Result<Arc<Pool>, CUerror> {
    let chosen = device(ordinal)?.pools.lock().current;
    match POOLS.get(chosen) {
        Some(pool) => Ok(pool),
        None => default_pool(ordinal),
    }
}
