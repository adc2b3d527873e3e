//! The only place of the crate that reads the machine's clock.

use crate::sys;

/// `CLOCK_MONOTONIC` in nanoseconds, without a system call where the kernel offers its vDSO.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    sys::monotonic_ns()
}
