//! The API: requests are checked and turned into the manager's types, results into answers.

mod convert;
mod deadline;
mod grants;
mod node;
mod show;
mod stream;

pub use grants::GrantsService;
pub use node::{About, NodeService};
