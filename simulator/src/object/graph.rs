//! Graphs (CUDA Driver API, "Graph Management"): the objects and their nodes' handles.
//!
//! `topology.rs` has the edges, `node.rs` the operations, `frozen.rs` the content of executable graphs.

pub(crate) mod frozen;
pub(crate) mod node;
pub(crate) mod topology;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind, Table};
use crate::object::capture::{EdgeData, NodeKey};
use crate::object::graph::frozen::{Frozen, Step};
use crate::object::graph::node::Operation;
use crate::object::graph::topology::Topology;

static GRAPHS: Table<Graph> = Table::new(Kind::Graph);
static NODES: Table<Owner> = Table::new(Kind::GraphNode);

/// Entry of a node's handle: its graph, where the handle is the key.
#[derive(Debug)]
struct Owner(Weak<Graph>);

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: usize,
    /// Whether it belongs to a child graph node, so that the program cannot destroy it.
    is_embedded: AtomicBool,
    /// Number of living executable graphs made of it.
    pub(crate) instances: AtomicUsize,
    /// Nodes and edges. The lock may be taken while holding the capture sequences' lock, never the other way.
    topology: Mutex<Topology<Operation>>,
}

impl Graph {
    fn insert(is_embedded: bool) -> Arc<Graph> {
        GRAPHS
            .insert_with(|handle| Graph {
                handle,
                is_embedded: AtomicBool::new(is_embedded),
                instances: AtomicUsize::new(0),
                topology: Mutex::default(),
            })
            .1
    }

    pub(crate) fn create() -> Arc<Graph> {
        Graph::insert(false)
    }

    /// Calls `body` with nodes and edges locked.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut Topology<Operation>) -> R) -> R {
        body(&mut self.topology.lock())
    }

    /// Whether it has allocation or free nodes, directly or in a moved child graph. Then it cannot be embedded, except
    /// by moving.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        self.topology.lock().nodes().iter().any(|node| match &node.payload {
            Operation::Child(child) => child.has_memory_nodes(),
            other => other.is_memory_node(),
        })
    }

    /// Adds a node. Error: `INVALID_VALUE` for foreign or repeated dependencies, for a free node whose address no
    /// allocation node gave or that is freed already, and for a memory node in an embedded graph.
    pub(crate) fn add(
        self: &Arc<Graph>,
        operation: Operation,
        dependencies: &[(NodeKey, EdgeData)],
    ) -> Result<NodeKey, CUerror> {
        let mut topology = self.topology.lock();
        topology.check(dependencies)?;
        if operation.is_memory_node() && self.is_embedded() {
            return Err(CUerror::INVALID_VALUE);
        }
        if let Operation::Free(address) = &operation {
            let frees = |other: &Operation| matches!(other, Operation::Free(freed) if freed == address);
            if topology.nodes().iter().any(|node| frees(&node.payload))
                || !is_from_a_node(*address, &topology)
            {
                return Err(CUerror::INVALID_VALUE);
            }
        }
        let key = NODES.insert(Owner(Arc::downgrade(self)));
        topology.add(key, operation, dependencies)?;
        Ok(key)
    }

    /// Whether it belongs to a child graph node.
    pub(crate) fn is_embedded(&self) -> bool {
        self.is_embedded.load(Ordering::Relaxed)
    }

    /// Marks it as belonging to a child graph node; false if it was already.
    pub(crate) fn embed(&self) -> bool {
        !self.is_embedded.swap(true, Ordering::Relaxed)
    }

    /// Whether it is `other`, or contains it at any depth.
    pub(crate) fn leads_to(&self, other: &Graph) -> bool {
        self.handle == other.handle
            || self.with(|topology| {
                topology.nodes().iter().any(|node| match &node.payload {
                    Operation::Child(child) => child.leads_to(other),
                    _ => false,
                })
            })
    }

    /// Undoes [`Graph::embed`].
    pub(crate) fn unembed(&self) {
        self.is_embedded.store(false, Ordering::Relaxed);
    }

    /// Checks dependencies for a later node.
    pub(crate) fn check_dependencies(&self, dependencies: &[(NodeKey, EdgeData)]) -> CUresult {
        self.topology.lock().check(dependencies)
    }

    /// Whether a node counts as joined at the end of a capture.
    pub(crate) fn is_joined(&self, tail: &[(NodeKey, EdgeData)], node: NodeKey) -> bool {
        self.topology.lock().is_reachable(tail, node)
    }

    /// A copy for a child graph node. Error: `INVALID_VALUE` for a graph with memory nodes.
    pub(crate) fn copy(&self) -> Result<Arc<Graph>, CUerror> {
        if self.has_memory_nodes() {
            return Err(CUerror::INVALID_VALUE);
        }
        Graph::thaw(&self.freeze())
    }

    /// The present content, without handles.
    pub(crate) fn freeze(&self) -> Frozen {
        let topology = self.topology.lock();
        topology.map(|operation| match operation {
            Operation::Child(child) => Step::Embedded(child.freeze()),
            other => Step::Do(other.clone()),
        })
    }

    /// A graph with this content, for a child graph node.
    pub(crate) fn thaw(frozen: &Frozen) -> Result<Arc<Graph>, CUerror> {
        let graph = Graph::insert(true);
        let order = frozen.order().map_err(|_| CUerror::INVALID_VALUE)?;
        let mut topology = graph.topology.lock();
        let mut copies = HashMap::new();
        for node in order.iter().filter_map(|position| frozen.nodes().get(*position)) {
            let operation = match &node.payload {
                Step::Do(operation) => operation.clone(),
                Step::Embedded(child) => Operation::Child(Graph::thaw(child)?),
            };
            let copied = |edge: &topology::Edge| copies.get(&edge.from).map(|from| (*from, edge.data));
            let dependencies: Vec<_> = node.dependencies.iter().filter_map(copied).collect();
            let key = NODES.insert(Owner(Arc::downgrade(&graph)));
            topology.add(key, operation, &dependencies)?;
            copies.insert(node.key, key);
        }
        drop(topology);
        Ok(graph)
    }
}

/// Whether the address comes from an allocation node of this graph, or of another one with memory there now.
fn is_from_a_node(address: u64, topology: &Topology<Operation>) -> bool {
    let gives = |operation: &Operation| matches!(operation, Operation::Alloc(allocation) if allocation.block.address() == address);
    topology.nodes().iter().any(|node| gives(&node.payload))
        || crate::object::memory::at(address)
            .is_some_and(|range| range.kind == crate::object::memory::Kind::Graph)
}

/// Ends a node's handle, and its embedded graph.
fn forget(key: NodeKey, operation: &Operation) {
    NODES.remove(key);
    if let Operation::Child(child) = operation {
        discard(child.handle);
    }
}

/// The living graph of a handle.
pub(crate) fn find(handle: usize) -> Option<Arc<Graph>> {
    GRAPHS.get(handle)
}

/// The graph of a caller's handle. Error: `INVALID_VALUE` for a handle that is none.
pub(crate) fn graph(handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    crate::base::thread::permit()?;
    crate::object::process::process()?;
    find(handle.0).ok_or(CUerror::INVALID_VALUE)
}

/// The node of a caller's handle, and its graph. Error: `INVALID_VALUE` for a handle that is none.
pub(crate) fn node(handle: CUgraphNode) -> Result<(Arc<Graph>, NodeKey), CUerror> {
    crate::base::thread::permit()?;
    crate::object::process::process()?;
    let owner = NODES.get(handle.0).ok_or(CUerror::INVALID_VALUE)?;
    let graph = owner.0.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    Ok((graph, handle.0))
}

/// Ends a graph with its nodes.
pub(crate) fn discard(handle: usize) {
    let Some(graph) = GRAPHS.remove(handle) else {
        return;
    };
    let topology = graph.with(core::mem::take);
    for node in topology.nodes() {
        forget(node.key, &node.payload);
    }
}

/// Counts an executable graph of a graph with memory nodes. Error: `INVALID_VALUE` for a second one ("only one
/// instantiation of the graph may exist at any point in time").
pub(crate) fn count_instance(graph: &Graph) -> CUresult {
    let has_memory_nodes = graph.has_memory_nodes();
    if graph.instances.fetch_add(1, Ordering::Relaxed) > 0 && has_memory_nodes {
        graph.instances.fetch_sub(1, Ordering::Relaxed);
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(())
}
