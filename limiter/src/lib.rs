//! GPU time as pure arithmetic: what a launch is charged, when it may go, and how tenants share a GPU.
//!
//! Time is an argument, and nothing here makes a system call. What processes share is plain atomic words, the same
//! in a file that is mapped and in a test.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod admit;
#[cfg(not(loom))]
pub mod busy;
#[cfg(not(loom))]
pub mod controller;
#[cfg(not(loom))]
pub mod predict;
mod primitive;
pub mod queue;
mod refinement;
pub mod token_bucket;

#[cfg(not(loom))]
pub use admit::{Admission, COMPLETION_WAIT_MAX_NS, LAUNCHES_MAX, Reason, Snapshot, admit};
pub use refinement::Refinement;

/// How many processes of one tenant can use a GPU at the same time. (Miri and loom follow each word of their records.)
pub const MAX_SLOTS: usize = if cfg!(any(loom, miri)) { 8 } else { 512 };
