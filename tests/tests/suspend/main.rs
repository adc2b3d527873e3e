//! Tenants whose GPU memory is moved to the host's and back.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod checkpoint;
mod suspend;
