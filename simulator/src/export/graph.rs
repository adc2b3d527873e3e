//! Graph Management: whole graphs (`whole.rs`), nodes and edges (`add.rs`, `node.rs`, `edges.rs`), executable graphs
//! (`executable.rs`). `parameters.rs` converts nodes' parameters.

pub(crate) mod add;
pub(crate) mod edges;
pub(crate) mod executable;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod parameters;
pub(crate) mod whole;
