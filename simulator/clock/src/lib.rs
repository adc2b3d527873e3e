//! Virtual time for unchanged programs.
//!
//! The processes of an experiment share a small table in a file. Each of their threads has an entry there, and at any
//! moment at most one of them runs: the one that is earliest in virtual time. It goes on until it has come as far as the
//! next one, sleeps or waits; then the next one's turn comes, and time jumps to it. So an experiment takes as long as what
//! it computes, whatever else the computer does, and comes out nearly the same each time. What is not computing takes no
//! real time, and computing takes little virtual time: each look at the clock costs a fixed amount ([`Costs`]), and what a
//! thread does between two looks costs nothing.
//!
//! | module | what |
//! |---|---|
//! | `table` | the file: entries, whose turn it is |
//! | `schedule` | taking, passing on and giving up the turn; futexes |
//! | `stopping` | processes that SIGSTOP has stopped |
//! | `world` | the owner of an experiment: runs it up to a time, and stops it there |
//! | `kernel` | system calls that no preloaded library sees |
//!
//! The programs get there by `libvcuda_virtual_clock.so` (crate `vcuda-clock-preload`) in `LD_PRELOAD`.

pub mod kernel;
mod schedule;
mod stopping;
mod table;
mod world;

pub use schedule::{FutexKey, Thread, Waited};
pub use table::{Costs, Table};
pub use world::{Stuck, World};

/// Names the table's file to a process that takes part.
pub const ENV_TABLE: &str = "VCUDA_CLOCK";
/// Names the table's file to a process that reads the time while the world stands still, and takes none.
pub const ENV_TABLE_FROZEN: &str = "VCUDA_CLOCK_FROZEN";
