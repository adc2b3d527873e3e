//! The command line, as a user has it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod apply;
mod bench;
mod cli;
mod closed_output;
mod completion;
mod grants_for_containers;
mod manager_down;
mod misuse;
mod names;
mod run;
mod set_for;
mod smi;
mod support_bundle;
mod transcripts;
mod usage;
mod user;
mod user_examples;
mod user_limits;
