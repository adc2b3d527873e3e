//! GPU memory that this process uses, counted in the tenant's ledger: allocations, pools, mappings, shared objects,
//! graphs' memory, and the driver's own.

pub(crate) mod allocations;
pub(crate) mod charge;
pub(crate) mod code;
pub(crate) mod exported;
pub(crate) mod graph_memory;
pub(crate) mod mappings;
pub(crate) mod overhead;
pub(crate) mod pool_accounts;
mod refresh;
pub(crate) mod reserve;
pub(crate) mod sparse_mappings;
pub(crate) mod state;
