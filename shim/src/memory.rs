//! What a process holds of a GPU's memory, counted in the container's ledger: allocations, pools, mappings, shared objects,
//! graphs' memory, and what the driver itself takes.

pub(crate) mod allocations;
pub(crate) mod charge;
pub(crate) mod exported;
pub(crate) mod graph_memory;
pub(crate) mod mappings;
pub(crate) mod overhead;
pub(crate) mod pool_accounts;
pub(crate) mod sparse_mappings;
