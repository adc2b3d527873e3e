//! The files that shim and manager share: on a real file system, with real processes, damaged, and of other releases.
#![cfg(not(any(loom, miri)))]

mod directory;
mod flips;
mod hostile;
mod kept;
mod ledger_model;
mod storm;
mod versions;
