//! GPU memory that this process uses, counted in the container's ledger: allocations, pools, mappings, shared
//! objects, graphs' memory, and the driver's own.

pub(crate) mod allocations;
pub(crate) mod charge;
pub(crate) mod exported;
pub(crate) mod graph_memory;
mod look;
pub(crate) mod mappings;
pub(crate) mod overhead;
pub(crate) mod pool_accounts;
pub(crate) mod reserve;
pub(crate) mod sparse_mappings;
pub(crate) mod state;
