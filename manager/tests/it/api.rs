//! Grants from end to end: the API over its socket, the ledger and the directories on a real file system.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod failing_disk;
mod grants;
mod harness;
mod hostile;
mod rebuild;
mod restart;
mod watching;
