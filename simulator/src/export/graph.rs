//! Graph Management: `whole.rs` has graphs as a whole, `add.rs`, `node.rs` and `edges.rs` their nodes and edges,
//! `executable.rs` what is launched, `user_object.rs` what graphs keep alive. `parameters.rs` translates nodes' parameters.

pub(crate) mod add;
pub(crate) mod dot;
pub(crate) mod edges;
pub(crate) mod executable;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod parameters;
pub(crate) mod user_object;
pub(crate) mod whole;
