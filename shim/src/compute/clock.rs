//! The time of a launch. The clock is read again only once the processor's cycle counter has advanced by more than
//! [`CYCLES`] since the last read for the stream. Until then the last reading is exact enough to notice a pause.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_region::clock::now_ns;

use crate::driver::objects;

/// Cycles that pass within 6 us at most: no processor's counter is slower than 1 GHz. A stream counts as idle after
/// [`super::IDLE_NS`], which is longer.
const CYCLES: u64 = 6_000;

/// [`CYCLES`], or 0 if the counter cannot replace the clock.
static NEAR: AtomicU64 = AtomicU64::new(0);

/// Finds out whether the counter can be used.
pub(super) fn begin() {
    let near = if has_steady_counter() && is_clock_its_own() { CYCLES } else { 0 };
    NEAR.store(near, Ordering::Relaxed);
}

/// Whether `clock_gettime` is the C library's. In a process where another library replaces it (such as libfaketime),
/// that library's time is read at each launch.
fn is_clock_its_own() -> bool {
    let bound = libc::clock_gettime as *const () as usize;
    objects::libc_symbol(c"clock_gettime") == Some(bound)
}

/// Whether the counter runs at one rate at all times (AMD64 Architecture Programmer's Manual 3, CPUID function 8000_0007h,
/// `TscInvariant`; Intel SDM 3B, "Invariant TSC").
#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & 1 << 8 != 0
}

/// Not implemented for this processor: the clock is read at each launch.
#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

/// The cycle counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn cycles() -> u64 {
    // SAFETY: reads a register. A thread that may not (prctl(2), `PR_SET_TSC`) may not ask the C library for the time either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Not used.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn cycles() -> u64 {
    0
}

/// The clock as the launches on one stream see it.
#[derive(Debug)]
pub(super) struct Clock {
    /// The counter when the clock was last asked.
    asked_at: AtomicU64,
    /// Last reading of the clock (`CLOCK_MONOTONIC`, ns).
    said_ns: AtomicU64,
}

impl Clock {
    /// The time of a launch (`CLOCK_MONOTONIC`, ns), up to 6 us old.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        let cycles = cycles();
        // Pairs with the store in `ask`: what the clock said is no older than the counter tells.
        if cycles.wrapping_sub(self.asked_at.load(Ordering::Acquire)) < NEAR.load(Ordering::Relaxed) {
            self.said_ns.load(Ordering::Relaxed)
        } else {
            self.ask(cycles)
        }
    }

    #[cold]
    fn ask(&self, cycles: u64) -> u64 {
        let now_ns = now_ns();
        self.said_ns.store(now_ns, Ordering::Relaxed);
        self.asked_at.store(cycles, Ordering::Release);
        now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_sees_a_time_that_is_hardly_old() {
        begin();
        let clock = Clock { asked_at: AtomicU64::new(0), said_ns: AtomicU64::new(0) };
        let end_ns = now_ns() + 2_000_000;
        loop {
            let before_ns = now_ns();
            let seen_ns = clock.now_ns();
            assert!(seen_ns + CYCLES >= before_ns, "{}", before_ns - seen_ns);
            assert!(seen_ns <= now_ns());
            if before_ns > end_ns {
                break;
            }
        }
        // The test runs with the C library's own clock.
        let is_used = NEAR.load(Ordering::Relaxed) == CYCLES;
        assert_eq!(is_used, has_steady_counter());
    }
}
