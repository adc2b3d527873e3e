//! The expected cost of a graph that was never measured: the sum of its nodes, each as predicted alone.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{Key, LEAST_NS, Transfer, UNKNOWN_NS, transfer_ns};

use crate::compute::COSTS;
use crate::driver::{Relaxed, graph, real};

/// Sets the expected cost of an executable graph that was just made from `graph` to the sum of its nodes.
pub(crate) fn expect(made: CUgraphExec, graph: CUgraph) {
    let _relaxed = Relaxed::enter();
    let key = Key::graph(made.0);
    // The handle may have been another graph's.
    COSTS.forget(key);
    let mut is_known = true;
    let cost_ns = cost_ns(graph, 0, &mut is_known);
    COSTS.insert(key, cost_ns, is_known);
}

/// The sum of the nodes (ns). `is_known` becomes false if one of them was never measured.
fn cost_ns(graph: CUgraph, depth: u32, is_known: &mut bool) -> u64 {
    if depth > graph::DEEPEST {
        *is_known = false;
        return 0;
    }
    let nodes = graph::nodes(graph).unwrap_or_default();
    nodes.into_iter().map(|node| node_ns(node, depth, is_known).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// Cost of a node (ns). Nodes that do not occupy the GPU cost nothing.
fn node_ns(node: CUgraphNode, depth: u32, is_known: &mut bool) -> Option<u64> {
    match graph::node_type(node)? {
        CUgraphNodeType::KERNEL => kernel_ns(node, is_known),
        CUgraphNodeType::MEMSET => {
            // SAFETY: numbers, for which 0 is a value.
            let mut set: CUDA_MEMSET_NODE_PARAMS = unsafe { core::mem::zeroed() };
            // SAFETY: a set node; the driver writes its parameters or nothing.
            unsafe { real::cuGraphMemsetNodeGetParams(node, &raw mut set) }.ok()?;
            let elements = (set.width as u64).saturating_mul(set.height as u64);
            let bytes = elements.saturating_mul(u64::from(set.elementSize));
            Some(known_transfer_ns(Transfer::Set, bytes))
        }
        CUgraphNodeType::MEMCPY => {
            // SAFETY: numbers, handles and pointers, for which 0 is a value.
            let mut copy: CUDA_MEMCPY3D = unsafe { core::mem::zeroed() };
            // SAFETY: a copy node; the driver writes its parameters or nothing.
            unsafe { real::cuGraphMemcpyNodeGetParams(node, &raw mut copy) }.ok()?;
            let is_hosts = |kind| kind == CUmemorytype::HOST;
            if is_hosts(copy.srcMemoryType) || is_hosts(copy.dstMemoryType) {
                return None;
            }
            let rows = (copy.Height as u64).saturating_mul(copy.Depth as u64);
            Some(known_transfer_ns(Transfer::Copy, (copy.WidthInBytes as u64).saturating_mul(rows)))
        }
        CUgraphNodeType::GRAPH => Some(cost_ns(graph::child_graph(node)?, depth + 1, is_known)),
        CUgraphNodeType::CONDITIONAL | CUgraphNodeType::EXTERNAL_ENGINE => {
            // The driver does not return what runs within, or how often.
            *is_known = false;
            None
        }
        _ => None,
    }
}

fn kernel_ns(node: CUgraphNode, is_known: &mut bool) -> Option<u64> {
    // SAFETY: numbers, handles and pointers, for which 0 is a value.
    let mut launch: CUDA_KERNEL_NODE_PARAMS = unsafe { core::mem::zeroed() };
    // SAFETY: a kernel node; the driver writes its parameters or nothing.
    unsafe { real::cuGraphKernelNodeGetParams_v2(node, &raw mut launch) }.ok()?;
    let handle = if launch.func.is_null() { launch.kern.0 } else { launch.func.0 };
    let blocks = [launch.gridDimX, launch.gridDimY, launch.gridDimZ]
        .map(u64::from)
        .into_iter()
        .fold(1, u64::saturating_mul);
    let known = COSTS
        .find(Key::kernel(handle, blocks, launch.sharedMemBytes))
        .or_else(|| COSTS.find(Key::function(handle)));
    *is_known &= known.is_some_and(|known| known.samples > 0);
    Some(known.map_or(UNKNOWN_NS, |known| known.cost_ns))
}

fn known_transfer_ns(kind: Transfer, bytes: u64) -> u64 {
    if bytes == 0 {
        return LEAST_NS;
    }
    let known = COSTS.find(Key::transfer(kind, bytes));
    known.map_or_else(|| transfer_ns(bytes), |known| known.cost_ns)
}
