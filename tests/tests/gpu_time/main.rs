//! Shares of GPU time, by the simulator's exact record, in virtual time where nothing else is said.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod accuracy;
mod capture;
mod jumps;
mod lies;
mod long_kernels;
mod metered;
mod own_manager;
mod policies;
mod ranks;
mod schedule_fuzz;
mod share;
mod stopped_worker;
mod time_namespace;
mod turns;
mod uncharged;
mod unheld;
