//! `libvcuda_virtual_clock.so`, a preloaded library: replaces libc's functions for time and waiting by those of a virtual
//! world (crate `vcuda-clock`). Without a world it behaves as libc.
//!
//! | module | what |
//! |---|---|
//! | `part` | whether this process takes part, and as which thread |
//! | `time` | clocks, sleeping, yielding |
//! | `futex` | `syscall`, by which Rust's and parking_lot's locks wait |
//! | `threads` | threads and processes that begin and end |
//!
//! An exported function demands of its caller what its manual page does.
//!
//! Not replaced are waits inside libc itself (`pthread_mutex_lock`, `read` from a pipe) and the cycle counter. A thread
//! with the turn that waits inside libc for a thread that needs the turn blocks the world.

#![allow(unreachable_pub, reason = "libc's functions are exported by name")]

mod futex;
mod part;
mod signal;
mod threads;
mod time;
