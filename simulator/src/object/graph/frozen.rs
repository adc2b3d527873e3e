//! Content of a graph at one moment, used by executable graphs.

use crate::object::graph::node::Operation;
use crate::object::graph::topology::Topology;

/// Nodes, edges and embedded graphs; keys are the original nodes' handles.
pub(crate) type Frozen = Topology<Step>;

/// A node.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are operations")]
pub(crate) enum Step {
    /// Runs an operation.
    Do(Operation),
    /// Runs an embedded graph.
    Embedded(Frozen),
}
