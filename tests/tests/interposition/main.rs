//! Calls that reach the shim, and calls that it must leave alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod bypasses;
mod conformance;
mod coverage;
mod devices;
mod doors;
mod filtered;
mod hostile;
#[cfg(target_arch = "x86_64")]
mod interposed;
mod nonsense;
mod plugins;
mod replaced_preload;
mod table;
mod transparent;
