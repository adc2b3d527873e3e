//! `libvcuda_virtual_clock.so`: preloaded into a program, it answers for libc wherever time goes by, from the table of a world
//! (crate `vcuda-clock`). Without one it does what libc does.
//!
//! | module | what |
//! |---|---|
//! | `part` | whether this process takes part, and as which thread |
//! | `time` | clocks, sleeping, giving way |
//! | `futex` | `syscall`, by which Rust's and parking_lot's locks wait |
//! | `threads` | threads and processes that begin and end |
//!
//! Not seen: waiting inside of libc itself (`pthread_mutex_lock`, `read` from a pipe) and the cycle counter. A thread
//! that waits so while it has the turn stops the world if what it waits for needs the turn.

#![allow(unreachable_pub, reason = "libc's functions are exported by name")]

mod futex;
mod part;
mod threads;
mod time;
