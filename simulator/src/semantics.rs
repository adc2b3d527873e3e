//! Rules across objects: order of streams, capture, launches, pools, ends of contexts.
//!
//! A rule takes objects and handles. Results are written by `export`.

pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod context;
pub(crate) mod effects;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod host_thread;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod ordering;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod work;
