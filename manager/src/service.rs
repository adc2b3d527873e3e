//! Implementation of the API: checks requests, calls the manager, converts results.

mod convert;
mod deadline;
mod grants;
mod node;
mod owner;
mod show;
mod stream;

pub use grants::GrantsService;
pub use node::{About, NodeService};
