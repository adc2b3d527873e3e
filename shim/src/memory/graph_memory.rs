//! Memory of graphs' allocation nodes. A graph's own bytes are found when it is instantiated, by walking its nodes and
//! those of its child graphs; they are counted before the launch (or upload) that has the driver put memory behind them,
//! since the stream is not known earlier (CUDA C++ Programming Guide, "Graph Memory Nodes").
//!
//! A launch of a graph without such nodes pays a load for this; a program without any pays nothing at instantiation.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::driver::{Relaxed, real};
use crate::memory::pool_accounts::PoolAccount;
use crate::runtime::devices::{Denied, Device, is_device};
use crate::runtime::shim::Shim;

/// An allocation node was made in this process, or may have been.
static HAS_NODES: AtomicBool = AtomicBool::new(false);

/// How many executable graphs with allocation nodes have a handle of this remainder: most launches find none.
static EVENTS_MAX: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

/// What an executable graph allocates on one device.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: u64,
    pool_account: Arc<PoolAccount>,
    /// When it was last launched, in the pool account's count; 0 for never.
    epoch: AtomicU64,
}

/// The executable graphs that allocate.
#[derive(Debug, Default)]
pub(crate) struct Executables {
    known: Mutex<HashMap<CUgraphExec, Arc<[Part]>>>,
}

/// From now on graphs are looked at when they are instantiated.
pub(crate) fn expect_nodes() {
    HAS_NODES.store(true, Ordering::Relaxed);
}

/// Whether any graph may have allocation nodes.
#[inline]
pub(crate) fn has_nodes() -> bool {
    HAS_NODES.load(Ordering::Relaxed)
}

/// Whether this executable graph may allocate: `false` is certain.
#[inline]
pub(crate) fn may_allocate(graph: CUgraphExec) -> bool {
    event_of(graph).load(Ordering::Relaxed) != 0
}

#[expect(clippy::indexing_slicing, reason = "reduced to the length of the array")]
#[inline]
fn event_of(graph: CUgraphExec) -> &'static AtomicU32 {
    let spread = (graph.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &EVENTS_MAX[(spread >> 54) as usize]
}

impl Executables {
    /// The executable graph allocates this much. Nothing is noted for one that allocates nothing.
    pub(crate) fn note(&self, graph: CUgraphExec, parts: Vec<Part>) {
        let parts: Arc<[Part]> = parts.into();
        let mut known = self.known.lock();
        if !parts.is_empty() && known.insert(graph, parts).is_none() {
            event_of(graph).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes out one that is about to be destroyed.
    pub(crate) fn take(&self, graph: CUgraphExec) -> Option<Arc<[Part]>> {
        if !may_allocate(graph) {
            return None;
        }
        let parts = self.known.lock().remove(&graph)?;
        event_of(graph).fetch_sub(1, Ordering::Relaxed);
        Some(parts)
    }

    /// It was not destroyed after all.
    pub(crate) fn put_back(&self, graph: CUgraphExec, parts: Arc<[Part]>) {
        if self.known.lock().insert(graph, parts).is_none() {
            event_of(graph).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What an executable graph allocates, if it does.
    #[cold]
    pub(crate) fn parts(&self, graph: CUgraphExec) -> Option<Arc<[Part]>> {
        self.known.lock().get(&graph).cloned()
    }
}

/// Counts what a launch or an upload may take, does it, and counts what it took.
///
/// # Errors
/// Out of memory where it does not fit; else the driver's own.
pub(crate) fn with_memory(parts: &[Part], launch: impl FnOnce() -> CUresult) -> CUresult {
    let promised: Result<Vec<_>, Denied> = parts
        .iter()
        .map(|part| part.pool_account.promise_launch(part.bytes, &part.epoch))
        .collect();
    let promised = promised?;
    launch()?;
    if let Some(part) = parts.first() {
        part.pool_account.device.shim().pool_accounts.changed();
    }
    for promise in promised {
        // What the driver took beyond what its nodes say is counted: the launch is under way.
        let _ = promise.settle();
    }
    Ok(())
}

/// What a graph allocates, by device.
pub(crate) fn parts_of(shim: &'static Shim, graph: CUgraph) -> Vec<Part> {
    let _relaxed = Relaxed::enter();
    let mut found: Vec<(&'static Device, u64)> = Vec::new();
    walk(graph, 0, &mut |ordinal, bytes| {
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
        pool_account: shim.pool_accounts.graphs(device),
        epoch: AtomicU64::new(0),
    };
    found.into_iter().map(part).collect()
}

/// Shows `see` the device and bytes of each allocation node.
fn walk(graph: CUgraph, depth: u32, see: &mut dyn FnMut(CUdevice, u64)) {
    /// No program nests graphs this deep; a cycle cannot be made.
    const DEEPEST: u32 = 64;
    if depth > DEEPEST {
        return;
    }
    for node in nodes(graph).unwrap_or_default() {
        let mut kind = CUgraphNodeType::EMPTY;
        // SAFETY: a node that the driver has just named; it writes a type or nothing.
        if unsafe { real::cuGraphNodeGetType(node, &raw mut kind) }.is_err() {
            continue;
        }
        if kind == CUgraphNodeType::GRAPH {
            let mut child = CUgraph::NULL;
            // SAFETY: a child graph node; the driver writes a graph or nothing.
            if unsafe { real::cuGraphChildGraphNodeGetGraph(node, &raw mut child) }.is_ok() {
                walk(child, depth + 1, see);
            }
        } else if kind == CUgraphNodeType::MEM_ALLOC
            && let Some((location, bytes)) = allocation(node)
            && is_device(location.r#type)
        {
            see(location.id, bytes);
        }
    }
}

/// The nodes of a graph.
pub(crate) fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    // SAFETY: without a place for nodes the driver only writes their number.
    unsafe { real::cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) }.ok()?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: room for `count` nodes; the driver writes as many at most.
        unsafe { real::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }.ok()?;
    }
    nodes.truncate(count);
    Some(nodes)
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
            pool_account: Shim::for_tests().pool_accounts.graphs(device),
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
        let taken = graphs.take(with).unwrap();
        assert!(!may_allocate(with), "counted once however often it was noted");
        graphs.put_back(with, taken);
        assert!(may_allocate(with) && graphs.take(with).is_some() && graphs.take(with).is_none());
    }
}
