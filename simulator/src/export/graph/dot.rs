//! `cuGraphDebugDotPrint`: a graph in Graphviz's language. The real driver's text is not documented; this one has nodes,
//! types, names of kernels, and edges.

use core::fmt::Write as _;

use vcuda_driver_api::cuda::CUgraphDebugDot_flags;

use crate::object::graph::node::Operation;
use crate::object::graph::topology::Topology;

/// The description; `flags` are `CU_GRAPH_DEBUG_DOT_FLAGS_*`.
pub(crate) fn describe(topology: &Topology<Operation>, flags: u32) -> String {
    let mut text = String::from("digraph dot {\n");
    for node in topology.nodes() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  \"{:#x}\" [label=\"{}\"];", node.key, label(&node.payload, flags));
    }
    for (from, to, _) in topology.edges() {
        let _ = writeln!(text, "  \"{from:#x}\" -> \"{to:#x}\";");
    }
    text.push_str("}\n");
    text
}

fn label(operation: &Operation, flags: u32) -> String {
    let is_verbose = flags & CUgraphDebugDot_flags::VERBOSE.0 != 0;
    match operation {
        Operation::Kernel(kernel) => {
            let name = kernel.function.name.to_string_lossy();
            if is_verbose || flags & CUgraphDebugDot_flags::KERNEL_NODE_PARAMS.0 != 0 {
                let shape = kernel.shape;
                format!("KERNEL {name} grid {:?} block {:?} shared {}", shape.grid, shape.block, shape.shared)
            } else {
                format!("KERNEL {name}")
            }
        }
        Operation::Copy(transfer, _) => format!("MEMCPY {} bytes", transfer.bytes()),
        Operation::Set(fill, _) => format!("MEMSET {:#x} {} bytes", fill.params.dst, fill.bytes()),
        Operation::Host(_) => "HOST".to_owned(),
        Operation::Child(child) => format!("GRAPH {:#x}", child.handle),
        Operation::Empty => "EMPTY".to_owned(),
        Operation::EventRecord(event) => format!("EVENT_RECORD {:#x}", event.handle),
        Operation::EventWait(event) => format!("EVENT_WAIT {:#x}", event.handle),
        Operation::Alloc(allocation) => format!("MEM_ALLOC {} bytes", allocation.block.bytes()),
        Operation::Free(address) => format!("MEM_FREE {address:#x}"),
        Operation::Memory(operations) => format!("BATCH_MEM_OP {}", operations.len()),
    }
}
