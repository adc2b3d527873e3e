//! Operations of graph nodes.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::object::event::Event;
use crate::object::fill::Fill;
use crate::object::graph::Graph;
use crate::object::graph_memory::GraphBlock;
use crate::object::host_function::HostFunction;
use crate::object::kernel::Kernel;
use crate::object::memory_operation::MemoryOperation;
use crate::object::transfer::Transfer;

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per node, and most of them kernels and copies")]
pub(crate) enum Operation {
    Kernel(Kernel),
    /// Copies, in the context of this handle.
    Copy(Transfer, usize),
    /// Sets memory, in the context of this handle.
    Set(Fill, usize),
    /// Calls a function on the host.
    Host(HostFunction),
    /// Runs an embedded graph, which the node owns.
    Child(Arc<Graph>),
    Empty,
    EventRecord(Arc<Event>),
    EventWait(Arc<Event>),
    /// Allocates memory at a fixed address.
    Alloc(Allocation),
    /// Frees the memory at this address.
    Free(u64),
    /// Waits for and writes values in memory.
    Memory(Vec<MemoryOperation>),
}

/// Request of an allocation node.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) block: GraphBlock,
    /// Devices with access, besides its own.
    pub(crate) access: Arc<[CUmemAccessDesc]>,
}

impl Operation {
    /// Type for `cuGraphNodeGetType`.
    pub(crate) fn kind(&self) -> CUgraphNodeType {
        match self {
            Operation::Kernel(_) => CUgraphNodeType::KERNEL,
            Operation::Copy(..) => CUgraphNodeType::MEMCPY,
            Operation::Set(..) => CUgraphNodeType::MEMSET,
            Operation::Host(_) => CUgraphNodeType::HOST,
            Operation::Child(_) => CUgraphNodeType::GRAPH,
            Operation::Empty => CUgraphNodeType::EMPTY,
            Operation::EventRecord(_) => CUgraphNodeType::EVENT_RECORD,
            Operation::EventWait(_) => CUgraphNodeType::WAIT_EVENT,
            Operation::Alloc(_) => CUgraphNodeType::MEM_ALLOC,
            Operation::Free(_) => CUgraphNodeType::MEM_FREE,
            Operation::Memory(_) => CUgraphNodeType::BATCH_MEM_OP,
        }
    }

    /// Whether it allocates or frees, which restricts what may be done with its graph.
    pub(crate) fn is_memory_node(&self) -> bool {
        matches!(self, Operation::Alloc(_) | Operation::Free(_))
    }
}
