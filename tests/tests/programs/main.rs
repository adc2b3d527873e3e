//! Programs that we did not write, and those of `scripts/gpu-acceptance.sh`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod acceptance;
mod clients;
mod ordinary;
mod real_binaries;
