//! Graph Management: whole graphs (`whole.rs`), nodes and edges (`add.rs`, `node.rs`, `edges.rs`), executable graphs
//! (`executable.rs`), user objects (`user_object.rs`). `parameters.rs` converts nodes' parameters.

pub(crate) mod add;
pub(crate) mod dot;
pub(crate) mod edges;
pub(crate) mod executable;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod parameters;
pub(crate) mod user_object;
pub(crate) mod whole;
