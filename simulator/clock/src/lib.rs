//! Virtual time for unmodified programs.
//!
//! The processes of an experiment share a table in a file, with an entry for each thread. At most one thread runs at a
//! time: the earliest in virtual time. It has the turn until it reaches the time of the next one, sleeps or waits; then
//! time jumps to the next thread. An experiment thus takes as long as its computations, independent of other load, and its
//! outcome is nearly reproducible. Waiting takes no real time, and computing takes little virtual time: each reading of the
//! clock costs a fixed amount ([`Costs`]), and the computation between two readings costs nothing.
//!
//! | module | what |
//! |---|---|
//! | `table` | the file: entries, and the turn |
//! | `schedule` | taking, passing on and giving up the turn; futexes |
//! | `stopping` | processes stopped by SIGSTOP |
//! | `world` | the owner of an experiment: runs it up to a given time |
//! | `kernel` | system calls without libc |
//!
//! Programs take part through `libvcuda_virtual_clock.so` (crate `vcuda-clock-preload`) in `LD_PRELOAD`.

pub mod kernel;
mod schedule;
mod stopping;
mod table;
mod world;

pub use schedule::{FutexKey, Thread, Waited};
pub use table::{Costs, Table};
pub use world::{Stuck, World};

/// Path of the table's file for a process that takes part.
pub const ENV_TABLE: &str = "VCUDA_CLOCK";
/// Path of the table's file for a process that only reads the time.
pub const ENV_TABLE_FROZEN: &str = "VCUDA_CLOCK_FROZEN";
