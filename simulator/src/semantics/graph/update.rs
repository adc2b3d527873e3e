//! `cuGraphExecUpdate`: checks that a graph matches an executable one, and replaces the parameters.

use std::collections::HashMap;

use vcuda_driver_api::cuda::CUgraphExecUpdateResult;

use crate::object::capture::NodeKey;
use crate::object::graph::frozen::{Frozen, Step};
use crate::object::graph::node::Operation;

/// Reason why a graph does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// As `CUgraphExecUpdateResultInfo::result`.
    pub(crate) result: CUgraphExecUpdateResult,
    /// The node of the new graph, 0 for none.
    pub(crate) node: NodeKey,
    /// Its dependency that does not match, 0 for none.
    pub(crate) from: NodeKey,
}

impl Misfit {
    fn at(result: CUgraphExecUpdateResult, node: NodeKey) -> Misfit {
        Misfit { result, node, from: 0 }
    }
}

/// Replaces parameters by those of `new`, whose nodes are paired with `old`'s in order of creation; all or none. Error:
/// The first misfit.
pub(crate) fn update(old: &mut Frozen, new: &Frozen) -> Result<(), Misfit> {
    check(old, new)?;
    take(old, new);
    Ok(())
}

fn check(old: &Frozen, new: &Frozen) -> Result<(), Misfit> {
    const TOPOLOGY: CUgraphExecUpdateResult = CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED;
    if old.nodes().len() != new.nodes().len() {
        return Err(Misfit::at(TOPOLOGY, 0));
    }
    let pairs: HashMap<NodeKey, NodeKey> =
        new.nodes().iter().zip(old.nodes()).map(|(new, old)| (new.key, old.key)).collect();
    for (new, old) in new.nodes().iter().zip(old.nodes()) {
        if new.dependencies.len() != old.dependencies.len() {
            return Err(Misfit::at(TOPOLOGY, new.key));
        }
        for (new_edge, old_edge) in new.dependencies.iter().zip(&old.dependencies) {
            if pairs.get(&new_edge.from) != Some(&old_edge.from) || new_edge.data != old_edge.data {
                return Err(Misfit { result: TOPOLOGY, node: new.key, from: new_edge.from });
            }
        }
        match (&old.payload, &new.payload) {
            (Step::Do(old), Step::Do(operation)) => {
                fits(old, operation).map_err(|result| Misfit::at(result, new.key))?;
            }
            (Step::Embedded(old), Step::Embedded(child)) => check(old, child)?,
            _ => {
                return Err(Misfit::at(CUgraphExecUpdateResult::ERROR_NODE_TYPE_CHANGED, new.key));
            }
        }
    }
    Ok(())
}

fn take(old: &mut Frozen, new: &Frozen) {
    let keys: Vec<NodeKey> = old.nodes().iter().map(|node| node.key).collect();
    for (key, new) in keys.into_iter().zip(new.nodes()) {
        match (old.get_mut(key).map(|node| &mut node.payload), &new.payload) {
            (Some(Step::Embedded(old)), Step::Embedded(new)) => take(old, new),
            (Some(step), _) => *step = new.payload.clone(),
            (None, _) => {}
        }
    }
}

/// Whether one node's parameters may replace another's ("Limitations" of `cuGraphExecUpdate`). Error: report of
/// `cuGraphExecUpdate`.
fn fits(old: &Operation, new: &Operation) -> Result<(), CUgraphExecUpdateResult> {
    use CUgraphExecUpdateResult as Result_;
    if old.kind() != new.kind() {
        return Err(Result_::ERROR_NODE_TYPE_CHANGED);
    }
    match (old, new) {
        (Operation::Kernel(old), Operation::Kernel(new)) => {
            if old.function.context != new.function.context {
                return Err(Result_::ERROR_UNSUPPORTED_FUNCTION_CHANGE);
            }
            if old.is_cooperative != new.is_cooperative {
                return Err(Result_::ERROR_ATTRIBUTES_CHANGED);
            }
            Ok(())
        }
        (Operation::Copy(old, old_context), Operation::Copy(new, new_context)) => {
            let (before, after) = (&old.params, &new.params);
            let are_kinds_kept =
                before.srcMemoryType == after.srcMemoryType && before.dstMemoryType == after.dstMemoryType;
            if are_kinds_kept && old_context == new_context {
                Ok(())
            } else {
                Err(Result_::ERROR_PARAMETERS_CHANGED)
            }
        }
        (Operation::Set(old, old_context), Operation::Set(new, new_context)) => {
            let (before, after) = (&old.params, &new.params);
            let is_two_dimensional = before.height > 1 || after.height > 1;
            let is_size_kept = (before.width, before.height, before.elementSize, before.pitch)
                == (after.width, after.height, after.elementSize, after.pitch);
            if old_context == new_context && (is_size_kept || !is_two_dimensional) {
                Ok(())
            } else {
                Err(Result_::ERROR_PARAMETERS_CHANGED)
            }
        }
        // The address of an allocation is part of the executable graph.
        (Operation::Alloc(old), Operation::Alloc(new)) => {
            let is_same = old.block.address() == new.block.address();
            if is_same { Ok(()) } else { Err(Result_::ERROR_PARAMETERS_CHANGED) }
        }
        (Operation::Free(old), Operation::Free(new)) if old != new => Err(Result_::ERROR_PARAMETERS_CHANGED),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::graph::topology::{PLAIN, Topology};

    fn chain(keys: &[NodeKey]) -> Frozen {
        let mut graph = Topology::default();
        let mut before = None;
        for key in keys {
            let dependencies: Vec<_> = before.map(|before| (before, PLAIN)).into_iter().collect();
            graph.add(*key, Step::Do(Operation::Empty), &dependencies).expect("a chain");
            before = Some(*key);
        }
        graph
    }

    #[test]
    fn a_graph_of_the_same_shape_fits() {
        let mut old = chain(&[1, 2, 3]);
        assert_eq!(update(&mut old, &chain(&[11, 12, 13])), Ok(()));
        assert_eq!(old.nodes().iter().map(|node| node.key).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn misfits_are_named() {
        use CUgraphExecUpdateResult as Result_;
        let mut old = chain(&[1, 2]);
        let shorter = update(&mut old, &chain(&[11])).expect_err("one node is missing");
        assert_eq!((shorter.result, shorter.node), (Result_::ERROR_TOPOLOGY_CHANGED, 0));

        let mut loose = Topology::default();
        loose.add(11, Step::Do(Operation::Empty), &[]).expect("alone");
        loose.add(12, Step::Do(Operation::Empty), &[]).expect("alone");
        let loose = update(&mut old, &loose).expect_err("an edge is missing");
        assert_eq!((loose.result, loose.node), (Result_::ERROR_TOPOLOGY_CHANGED, 12));

        let mut other = Topology::default();
        other.add(11, Step::Do(Operation::Free(1)), &[]).expect("alone");
        other.add(12, Step::Do(Operation::Empty), &[(11, PLAIN)]).expect("a chain");
        let other = update(&mut old, &other).expect_err("another type");
        assert_eq!((other.result, other.node), (Result_::ERROR_NODE_TYPE_CHANGED, 11));
    }
}
