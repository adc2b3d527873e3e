//! Memory of graphs' allocation nodes. A graph's bytes are found at its instantiation, from its nodes and those of
//! its child graphs. They are counted before the launch (or upload) in which the driver puts memory behind them: the
//! stream is not known earlier (CUDA C++ Programming Guide, "Graph Memory Nodes").
//!
//! A launch of a graph without such nodes costs one load here. A program without any pays nothing at instantiation.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::driver::{Relaxed, graph, real};
use crate::memory::pool_accounts::PoolAccount;
use crate::runtime::by_number::ByNumber;
use crate::runtime::shim::Shim;
use crate::runtime::shim::devices::{Denied, Device, is_device};

/// Set once an allocation node may have been made in this process.
static HAS_NODES: AtomicBool = AtomicBool::new(false);

/// Number of executable graphs with allocation nodes, by a hash of the handle. Most launches find 0.
static ALLOCATING_BY_HANDLE: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

/// The memory that an executable graph allocates on one device.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: u64,
    pool_account: Arc<PoolAccount>,
    /// Time of its last launch, in the pool account's count; 0 for never.
    epoch: AtomicU64,
}

/// The executable graphs that allocate memory.
#[derive(Debug, Default)]
pub(crate) struct Executables {
    known: Mutex<HashMap<CUgraphExec, Arc<[Part]>, ByNumber>>,
}

/// Declares that graphs may have allocation nodes, which are sought when graphs are instantiated.
pub(crate) fn expect_nodes() {
    HAS_NODES.store(true, Ordering::Relaxed);
}

/// Whether any graph may have allocation nodes.
#[inline]
pub(crate) fn has_nodes() -> bool {
    HAS_NODES.load(Ordering::Relaxed)
}

/// Whether this executable graph may allocate memory. `false` is certain.
#[inline]
pub(crate) fn may_allocate(graph: CUgraphExec) -> bool {
    allocating_like(graph).load(Ordering::Relaxed) != 0
}

#[expect(clippy::indexing_slicing, reason = "reduced to the length of the array")]
#[inline]
fn allocating_like(graph: CUgraphExec) -> &'static AtomicU32 {
    let spread = (graph.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &ALLOCATING_BY_HANDLE[(spread >> 54) as usize]
}

impl Executables {
    /// Notes the memory of an executable graph, if it has any.
    pub(crate) fn note(&self, graph: CUgraphExec, parts: Vec<Part>) {
        let parts: Arc<[Part]> = parts.into();
        let mut known = self.known.lock();
        if !parts.is_empty() && known.insert(graph, parts).is_none() {
            allocating_like(graph).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a graph that is about to be destroyed.
    pub(crate) fn remove(&self, graph: CUgraphExec) -> Option<Arc<[Part]>> {
        if !may_allocate(graph) {
            return None;
        }
        let parts = self.known.lock().remove(&graph)?;
        allocating_like(graph).fetch_sub(1, Ordering::Relaxed);
        Some(parts)
    }

    /// Undoes [`Executables::remove`], as the graph was not destroyed.
    pub(crate) fn put_back(&self, graph: CUgraphExec, parts: Arc<[Part]>) {
        if self.known.lock().insert(graph, parts).is_none() {
            allocating_like(graph).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The memory of an executable graph; `None` if it allocates none.
    #[cold]
    pub(crate) fn parts(&self, graph: CUgraphExec) -> Option<Arc<[Part]>> {
        self.known.lock().get(&graph).cloned()
    }
}

/// Counts the memory that a launch or an upload may take, carries it out, and counts what it took.
///
/// # Errors
/// Out of memory if it does not fit; else the driver's own error.
pub(crate) fn with_memory(parts: &[Part], launch: impl FnOnce() -> CUresult) -> CUresult {
    let promised: Result<Vec<_>, Denied> =
        parts.iter().map(|part| part.pool_account.promise_launch(part.bytes, &part.epoch)).collect();
    let promised = promised?;
    launch()?;
    if let Some(part) = parts.first() {
        part.pool_account.device.shim().accounts().pool_accounts.changed();
    }
    for promise in promised {
        // Memory that the driver took beyond its nodes' figures is counted too: the launch is under way.
        let _ = promise.settle();
    }
    Ok(())
}

/// The memory that a graph allocates, by device.
pub(crate) fn parts_of(shim: &'static Shim, graph: CUgraph) -> Vec<Part> {
    let _relaxed = Relaxed::enter();
    let mut found: Vec<(&'static Device, u64)> = Vec::new();
    each_allocation(graph, 0, &mut |ordinal, bytes| {
        let Some(device) = shim.device(ordinal) else {
            return;
        };
        match found.iter_mut().find(|(known, _)| known.ordinal == ordinal) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => found.push((device, bytes)),
        }
    });
    let part = |(device, bytes)| Part {
        bytes,
        pool_account: shim.accounts().pool_accounts.graphs(device),
        epoch: AtomicU64::new(0),
    };
    found.into_iter().map(part).collect()
}

/// Calls `visit` with the device and bytes of each allocation node.
fn each_allocation(graph: CUgraph, depth: u32, visit: &mut dyn FnMut(CUdevice, u64)) {
    if depth > graph::DEEPEST {
        return;
    }
    for node in graph::nodes(graph).unwrap_or_default() {
        let Some(kind) = graph::node_type(node) else {
            continue;
        };
        if kind == CUgraphNodeType::GRAPH {
            if let Some(child) = graph::child_graph(node) {
                each_allocation(child, depth + 1, visit);
            }
        } else if kind == CUgraphNodeType::MEM_ALLOC
            && let Some((location, bytes)) = allocation(node)
            && is_device(location.r#type)
        {
            visit(location.id, bytes);
        }
    }
}

fn allocation(node: CUgraphNode) -> Option<(CUmemLocation, u64)> {
    // SAFETY: numbers and pointers, for which 0 is a value.
    let mut parameters: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
    // SAFETY: an allocation node; the driver writes its parameters or nothing.
    unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut parameters) }.ok()?;
    Some((parameters.poolProps.location, parameters.bytesize as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Vec<Part> {
        let device = Device::for_tests(Shim::for_tests());
        vec![Part {
            bytes: 1,
            pool_account: Shim::for_tests().accounts().pool_accounts.graphs(device),
            epoch: AtomicU64::new(0),
        }]
    }

    #[test]
    fn only_graphs_that_allocate_are_looked_for() {
        let graphs = Executables::default();
        let (with, without) = (CUgraphExec(0x7000_1000), CUgraphExec(0x7000_2000));
        graphs.note(without, Vec::new());
        assert!(!may_allocate(without) && graphs.parts(without).is_none());
        graphs.note(with, part());
        graphs.note(with, part());
        assert!(may_allocate(with) && graphs.parts(with).is_some());
        let taken = graphs.remove(with).unwrap();
        assert!(!may_allocate(with), "counted once however often it was noted");
        graphs.put_back(with, taken);
        assert!(may_allocate(with) && graphs.remove(with).is_some() && graphs.remove(with).is_none());
    }
}
