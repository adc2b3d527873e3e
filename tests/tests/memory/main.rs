//! Device memory under a quota: charged to the byte, through kills, forks and faults, by the simulator's exact record.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod answers;
mod driver_limits;
mod forks;
mod given_away;
mod integrated;
mod leaving;
mod left_behind;
mod memory_fuzz;
mod overhead;
mod oversubscription;
mod pools;
mod quota;
mod sharing;
mod starting_container;
#[cfg(target_arch = "x86_64")]
mod stepped;
mod storm;
mod walls;
mod wrong_frees;
