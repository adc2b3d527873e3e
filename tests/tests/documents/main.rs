//! What documents say, held against the code.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod beliefs;
mod commands;
mod documents;
mod messages;
mod tutorials;
