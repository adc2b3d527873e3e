//! Memory of this process: all address ranges that calls may use, with their owners.
//!
//! Device memory is taken in `backing.rs`; `host.rs` has pinned host memory, `pool.rs` stream-ordered memory, `vmm.rs`
//! mapped memory.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use vcuda_driver_api::CUerror;

use crate::object::context::Context;
use crate::object::device::Device;
use crate::object::process::{Process, process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// Memory of `cuMemAllocManaged`.
    Managed,
    /// A module's variable, which ends with the module.
    Global,
    /// Memory of the pool with this handle.
    Pool(usize),
    /// Memory of a graph's allocation node.
    Graph,
    /// A buffer on memory of another interface (`external.rs`).
    External,
    /// A block of another process's pool; the handle is that of the imported pool.
    Imported(usize),
    /// Memory of another process, opened by `cuIpcOpenMemHandle`.
    Ipc,
    /// A mapping of the physical allocation with this handle (`vmm.rs`).
    Mapped(u64),
    /// Memory of `cuMemHostAlloc` with these flags.
    Host(u32),
    /// Memory registered by `cuMemHostRegister` with these flags.
    Registered(u32),
}

impl Kind {
    /// Whether it is pinned host memory.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Kind::Host(_) | Kind::Registered(_))
    }
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    /// Requested size (bytes).
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    /// Its device; for host memory, the device that was current.
    pub(crate) device: &'static Device,
    /// `Context::unique` and handle of its context; 0 for pools and mappings, which have none.
    pub(crate) context: (u64, usize),
    /// Id for `CU_POINTER_ATTRIBUTE_BUFFER_ID`, unique over the life of the process.
    pub(crate) id: u64,
    /// Value of `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) is_synchronous: AtomicBool,
    /// `CUmemAccess_flags` of the owning device; mapped memory begins without access.
    pub(crate) access: AtomicU32,
}

static IDS: AtomicU64 = AtomicU64::new(1);
/// Ranges by first address. They do not overlap.
static MEMORY: RwLock<BTreeMap<u64, Arc<Allocation>>> = RwLock::new(BTreeMap::new());

/// Full access, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: u32 = 3;

pub(crate) fn insert(
    base: u64,
    bytes: u64,
    kind: Kind,
    device: &'static Device,
    context: Option<&Context>,
) -> Arc<Allocation> {
    let allocation = Arc::new(Allocation {
        base,
        bytes,
        kind,
        device,
        context: context.map_or((0, 0), |context| (context.unique, context.handle)),
        id: IDS.fetch_add(1, Ordering::Relaxed),
        is_synchronous: AtomicBool::new(false),
        access: AtomicU32::new(if matches!(kind, Kind::Mapped(_)) { 0 } else { READ_WRITE }),
    });
    MEMORY.write().insert(base, Arc::clone(&allocation));
    allocation
}

/// The range that begins exactly at `base`.
pub(crate) fn at(base: u64) -> Option<Arc<Allocation>> {
    MEMORY.read().get(&base).cloned()
}

/// The range that contains an address.
pub(crate) fn find(address: u64) -> Option<Arc<Allocation>> {
    let memory = MEMORY.read();
    let (_, allocation) = memory.range(..=address).next_back()?;
    (address - allocation.base < allocation.bytes).then(|| Arc::clone(allocation))
}

/// The ranges of a context, by `Context::unique`.
pub(crate) fn of_context(unique: u64) -> Vec<Arc<Allocation>> {
    let memory = MEMORY.read();
    memory.values().filter(|range| range.context.0 == unique).cloned().collect()
}

/// Removes the range that begins at `base`, if `may_end` accepts its kind. The caller that gets it ends it.
pub(crate) fn remove(base: u64, may_end: impl FnOnce(Kind) -> bool) -> Option<Arc<Allocation>> {
    let mut memory = MEMORY.write();
    if !may_end(memory.get(&base)?.kind) {
        return None;
    }
    memory.remove(&base)
}

/// The ranges that overlap `start..start + bytes`, in order.
pub(crate) fn overlapping(start: u64, bytes: u64) -> Vec<Arc<Allocation>> {
    let memory = MEMORY.read();
    let end = start.saturating_add(bytes);
    let before = memory.range(..start).next_back().filter(|(_, range)| range.base + range.bytes > start);
    before.into_iter().chain(memory.range(start..end)).map(|(_, range)| Arc::clone(range)).collect()
}

/// Whether a device may read and write the whole range: one allocation, or adjacent mappings.
pub(crate) fn is_usable(start: u64, bytes: u64) -> bool {
    let Some(end) = start.checked_add(bytes) else {
        return false;
    };
    let memory = MEMORY.read();
    let mut next = start;
    let first = memory.range(..=start).next_back();
    let rest = memory.range(start.saturating_add(1)..end);
    for (&base, range) in first.into_iter().chain(rest) {
        if base > next || range.access.load(Ordering::Relaxed) == 0 {
            return false;
        }
        next = next.max(base + range.bytes);
        if next >= end {
            return true;
        }
        // Adjacent allocations of other kinds do not form one range.
        if !matches!(range.kind, Kind::Mapped(_)) {
            return false;
        }
    }
    next >= end
}

/// Takes device memory with an address, and adds the range. Error: `CUDA_ERROR_OUT_OF_MEMORY`, with nothing taken.
pub(crate) fn allocate(
    bytes: u64,
    kind: Kind,
    device: &'static Device,
    context: Option<&Context>,
) -> Result<u64, CUerror> {
    let taken = taken_bytes(process()?, kind, bytes);
    if kind == Kind::Managed {
        crate::object::backing::take_managed(device, taken)?;
    } else {
        crate::object::backing::take(device, taken)?;
    }
    let Some(base) = device.arena.take(bytes) else {
        free_bytes(process()?, kind, device, taken);
        return Err(CUerror::OUT_OF_MEMORY);
    };
    insert(base, bytes, kind, device, context);
    Ok(base)
}

/// Device memory that an allocation takes (bytes): for `cuMemAlloc` and its relatives, whole units of
/// `driver.allocation_unit_bytes`.
fn taken_bytes(process: &Process, kind: Kind, bytes: u64) -> u64 {
    let unit = process.machine.config().driver.allocation_unit_bytes;
    match kind {
        Kind::Device | Kind::Managed => bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX),
        _ => bytes,
    }
}

fn free_bytes(process: &Process, kind: Kind, device: &Device, bytes: u64) {
    if kind == Kind::Managed {
        process.client.give_managed(device.gpu, bytes);
    } else {
        process.client.give(device.gpu, bytes);
    }
}

/// Frees the memory of [`allocate`], whose range was removed. Memory that other processes hold becomes theirs.
pub(crate) fn release(process: &Process, allocation: &Allocation) {
    let shared = crate::object::sharing::hide(allocation.base);
    allocation.device.arena.give(allocation.base, allocation.bytes);
    let taken = taken_bytes(process, allocation.kind, allocation.bytes);
    let own = if shared.is_none() { taken } else { taken - allocation.bytes };
    free_bytes(process, allocation.kind, allocation.device, own);
}
