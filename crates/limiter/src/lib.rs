//! GPU time as pure arithmetic: the charge of a launch, its admission, and the division of a GPU among tenants.
//!
//! Time is an argument, and no function makes a system call. State that processes share is plain atomic words, which work the
//! same in a mapped file and in a test.
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
#[cfg(not(loom))]
pub mod sampling;
pub mod token_bucket;

#[cfg(not(loom))]
pub use admit::{Admission, COMPLETION_WAIT_MAX_NS, LAUNCHES_MAX, Reason, Snapshot, admit};
pub use refinement::Refinement;

/// Most processes of a tenant that can use GPUs at the same time. (Miri and loom track each word of their records, so fewer there.)
pub const MAX_SLOTS: usize = if cfg!(any(loom, miri)) { 8 } else { 512 };
