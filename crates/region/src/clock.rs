//! The only place of the crate that reads the machine's clock.
//!
//! Times in shared files are the host's. A time namespace (time_namespaces(7); CRIU, `timeOffsets` of the OCI runtime specification)
//! adds an offset to a process's clocks, which [`follow_host`] takes off again.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// What this process's time namespace adds to the host's `CLOCK_MONOTONIC` (ns, modulo 2^64).
static OFFSET_NS: AtomicU64 = AtomicU64::new(0);

/// The host's `CLOCK_MONOTONIC` in nanoseconds, without a system call where the kernel offers its vDSO.
#[inline]
pub fn now_ns() -> u64 {
    to_host_ns(sys::monotonic_ns())
}

/// The host's time for a reading of this process's `CLOCK_MONOTONIC`, or of its coarse variant (ns).
#[inline]
pub fn to_host_ns(own_ns: u64) -> u64 {
    own_ns.wrapping_sub(OFFSET_NS.load(Ordering::Relaxed))
}

/// The reading of this process's `CLOCK_MONOTONIC` at a time of the host's (ns).
#[inline]
pub fn to_own_ns(host_ns: u64) -> u64 {
    host_ns.wrapping_add(OFFSET_NS.load(Ordering::Relaxed))
}

/// Finds the offset of this process's time namespace. Called before the process opens a shared file; a forked child, which may be in
/// another namespace, calls it again. A kernel without time namespaces has no offset.
pub fn follow_host() {
    OFFSET_NS.store(own_offset_ns().unwrap_or(0), Ordering::Relaxed);
}

fn own_offset_ns() -> Option<u64> {
    // The file tells the offsets of the namespace of the process's children, which is its own unless it called unshare(2).
    let [own, of_children] =
        ["time", "time_for_children"].map(|name| fs::read_link(format!("/proc/self/ns/{name}")).ok());
    if own != of_children {
        return None;
    }
    offset_ns(&fs::read_to_string("/proc/self/timens_offsets").ok()?)
}

/// The offset of `CLOCK_MONOTONIC` by the text of `timens_offsets`: a name or number of the clock, seconds, nanoseconds.
fn offset_ns(text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next()?, "monotonic" | "1").then_some(())?;
        let seconds: i64 = words.next()?.parse().ok()?;
        let ns: i64 = words.next()?.parse().ok()?;
        Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(ns).cast_unsigned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_may_be_negative_and_clocks_numbers() {
        assert_eq!(
            offset_ns("monotonic           2         5\nboottime            7         0\n"),
            Some(2_000_000_005)
        );
        assert_eq!(offset_ns("7 1 1\n1 -3 0\n").map(u64::cast_signed), Some(-3_000_000_000));
        for text in ["", "boottime 1 0", "monotonic", "monotonic 1", "monotonic x 0"] {
            assert_eq!(offset_ns(text), None, "{text:?}");
        }
    }
}
