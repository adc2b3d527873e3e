//! Nodes in order of creation and the edges between them, independent of operations.
//!
//! CUDA Driver API, Graph Management. A node is identified by its handle.

use std::collections::{HashMap, HashSet};

use vcuda_driver_api::CUerror;

use crate::object::capture::{EdgeData, NodeKey};

/// An ordinary dependency: full completion, memory visible.
pub(crate) const PLAIN: EdgeData = [0; 8];

/// An edge, stored at the dependent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The node that it depends on.
    pub(crate) from: NodeKey,
    pub(crate) data: EdgeData,
}

#[derive(Clone, Debug)]
pub(crate) struct Node<P> {
    pub(crate) key: NodeKey,
    pub(crate) payload: P,
    /// Dependencies, in order of addition.
    pub(crate) dependencies: Vec<Edge>,
}

#[derive(Clone, Debug)]
pub(crate) struct Topology<P> {
    nodes: Vec<Node<P>>,
    index: HashMap<NodeKey, usize>,
}

impl<P> Default for Topology<P> {
    fn default() -> Self {
        Topology { nodes: Vec::new(), index: HashMap::new() }
    }
}

impl<P> Topology<P> {
    /// The same nodes and edges with converted payloads.
    pub(crate) fn map<Q>(&self, mut make: impl FnMut(&P) -> Q) -> Topology<Q> {
        let nodes = self.nodes.iter().map(|node| Node {
            key: node.key,
            payload: make(&node.payload),
            dependencies: node.dependencies.clone(),
        });
        Topology { nodes: nodes.collect(), index: self.index.clone() }
    }

    /// The nodes in order of creation.
    pub(crate) fn nodes(&self) -> &[Node<P>] {
        &self.nodes
    }

    pub(crate) fn get(&self, key: NodeKey) -> Option<&Node<P>> {
        self.nodes.get(*self.index.get(&key)?)
    }

    pub(crate) fn get_mut(&mut self, key: NodeKey) -> Option<&mut Node<P>> {
        self.nodes.get_mut(*self.index.get(&key)?)
    }

    /// Checks the dependencies of a node to be added. Error: `INVALID_VALUE` for a node of another graph or a
    /// duplicate.
    pub(crate) fn check(&self, dependencies: &[(NodeKey, EdgeData)]) -> Result<(), CUerror> {
        let mut seen = HashSet::new();
        for (from, _) in dependencies {
            if !self.index.contains_key(from) || !seen.insert(*from) {
                return Err(CUerror::INVALID_VALUE);
            }
        }
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        key: NodeKey,
        payload: P,
        dependencies: &[(NodeKey, EdgeData)],
    ) -> Result<(), CUerror> {
        self.check(dependencies)?;
        let dependencies =
            dependencies.iter().map(|(from, data)| Edge { from: *from, data: *data }).collect();
        self.index.insert(key, self.nodes.len());
        self.nodes.push(Node { key, payload, dependencies });
        Ok(())
    }

    /// Adds edges, all or none. Error: `INVALID_VALUE` for a node of another graph, a node that would depend on itself,
    /// or an existing edge ("specifying an existing dependency will return an error").
    pub(crate) fn add_edges(&mut self, edges: &[(NodeKey, NodeKey, EdgeData)]) -> Result<(), CUerror> {
        let mut seen = HashSet::new();
        for (from, to, data) in edges {
            let node = self.get(*to).ok_or(CUerror::INVALID_VALUE)?;
            let exists = node.dependencies.contains(&Edge { from: *from, data: *data });
            if exists || from == to || !self.index.contains_key(from) || !seen.insert((from, to, data)) {
                return Err(CUerror::INVALID_VALUE);
            }
        }
        for (from, to, data) in edges {
            if let Some(node) = self.get_mut(*to) {
                node.dependencies.push(Edge { from: *from, data: *data });
            }
        }
        Ok(())
    }

    /// Positions of all nodes in an order that respects dependencies, else in order of creation. Error: A node of a
    /// cycle.
    pub(crate) fn order(&self) -> Result<Vec<usize>, NodeKey> {
        let mut waiting: Vec<usize> = self.nodes.iter().map(|node| node.dependencies.len()).collect();
        let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (position, node) in self.nodes.iter().enumerate() {
            for edge in &node.dependencies {
                if let Some(list) = self.index.get(&edge.from).and_then(|from| dependents.get_mut(*from)) {
                    list.push(position);
                }
            }
        }
        let mut ready: std::collections::BTreeSet<usize> = waiting
            .iter()
            .enumerate()
            .filter(|(_, count)| **count == 0)
            .map(|(position, _)| position)
            .collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(position) = ready.pop_first() {
            order.push(position);
            for dependent in dependents.get(position).into_iter().flatten() {
                if let Some(count) = waiting.get_mut(*dependent) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(*dependent);
                    }
                }
            }
        }
        let stuck = waiting.iter().zip(&self.nodes).find(|(count, _)| **count > 0);
        match stuck {
            Some((_, node)) => Err(node.key),
            None => Ok(order),
        }
    }

    /// Whether `node` is in `tail`, or a direct or indirect dependency of it.
    pub(crate) fn is_reachable(&self, tail: &[(NodeKey, EdgeData)], node: NodeKey) -> bool {
        let mut seen = HashSet::new();
        let mut open: Vec<NodeKey> = tail.iter().map(|(key, _)| *key).collect();
        while let Some(key) = open.pop() {
            if key == node {
                return true;
            }
            if seen.insert(key)
                && let Some(found) = self.get(key)
            {
                open.extend(found.dependencies.iter().map(|edge| edge.from));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Topology<&'static str> {
        let mut graph = Topology::default();
        graph.add(1, "top", &[]).expect("no dependencies");
        graph.add(2, "left", &[(1, PLAIN)]).expect("known");
        graph.add(3, "right", &[(1, PLAIN)]).expect("known");
        graph.add(4, "bottom", &[(2, PLAIN), (3, PLAIN)]).expect("known");
        graph
    }

    #[test]
    fn a_diamond_is_ordered_and_reachable() {
        let graph = diamond();
        assert_eq!(graph.order(), Ok(vec![0, 1, 2, 3]));
        assert!(graph.is_reachable(&[(4, PLAIN)], 1));
        assert!(!graph.is_reachable(&[(2, PLAIN)], 3));
    }

    #[test]
    fn wrong_dependencies_are_refused_and_change_nothing() {
        let mut graph = diamond();
        assert_eq!(graph.add(5, "stranger", &[(9, PLAIN)]), Err(CUerror::INVALID_VALUE));
        assert_eq!(graph.add(5, "twice", &[(1, PLAIN), (1, PLAIN)]), Err(CUerror::INVALID_VALUE));
        let good_then_known = [(1, 4, PLAIN), (1, 2, PLAIN)];
        assert_eq!(graph.add_edges(&good_then_known), Err(CUerror::INVALID_VALUE));
        assert_eq!(graph.nodes().iter().map(|node| node.dependencies.len()).sum::<usize>(), 4);
        assert_eq!(graph.nodes().len(), 4);
    }

    #[test]
    fn a_cycle_is_found_when_ordering() {
        let mut graph = diamond();
        graph.add_edges(&[(4, 2, PLAIN)]).expect("an edge like others");
        assert!(matches!(graph.order(), Err(2 | 4)));
    }
}
