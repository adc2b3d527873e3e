//! The API: what comes in is checked and turned into our own words, and answers into its.

mod convert;
mod deadline;
mod grants;
mod node;
mod show;
mod stream;

pub use grants::GrantsService;
pub use node::{About, NodeService};
