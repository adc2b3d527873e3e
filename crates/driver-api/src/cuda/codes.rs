//! Values of the interface's enumerations and flags.
//!
//! Each is a number of 32 bits with named constants, never a Rust `enum`: callers and drivers pass values that are
//! newer than this list.

pub(super) mod device;
pub(super) mod execution;
pub(super) mod graph;
pub(super) mod memory;
