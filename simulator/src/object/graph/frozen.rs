//! A graph as it was at one moment: what executable graphs are made of.

use crate::object::graph::node::Operation;
use crate::object::graph::topology::Topology;

/// Nodes, edges and embedded graphs; keys are the handles of the nodes that they were.
pub(crate) type Frozen = Topology<Step>;

/// One node.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are operations")]
pub(crate) enum Step {
    /// Does something.
    Do(Operation),
    /// Runs an embedded graph.
    Embedded(Frozen),
}
