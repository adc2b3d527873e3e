//! The driver's objects and their state: devices, contexts, streams, memory, code, graphs.
//!
//! An object knows its parts and its owners. The effect of a call on several objects is in `semantics`.

pub(crate) mod arguments;
pub(crate) mod array;
pub(crate) mod attributes;
pub(crate) mod backing;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod current;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod fill;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod green;
pub(crate) mod host;
pub(crate) mod host_function;
pub(crate) mod ipc;
pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod memory_operation;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod pool;
pub(crate) mod primary;
pub(crate) mod process;
pub(crate) mod resource;
pub(crate) mod sharing;
pub(crate) mod sparse;
pub(crate) mod stream;
pub(crate) mod texels;
pub(crate) mod transfer;
pub(crate) mod vmm;
