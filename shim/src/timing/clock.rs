//! The time of the launch path: the cycle counter where it never changes its pace, else the monotonic clock. It only
//! tells whether a stream has run dry; accounts go by the clock that all processes share.

use vcuda_region::clock;

/// A stream that was predicted to be done for this long is taken to have run dry (ns).
const IDLE_NS: u64 = 20_000;
/// How long the counter is compared with the clock (ns): a thousandth of error is harmless here.
const CALIBRATION_NS: u64 = 100_000;
const SHIFT: u32 = 20;

/// Counter ticks, and how many make a nanosecond.
#[derive(Debug)]
pub(crate) struct Ticks {
    counted: bool,
    /// Ticks per nanosecond, times 2^[`SHIFT`].
    per_ns: u64,
    idle: u64,
}

impl Ticks {
    /// Finds the pace of the counter: 100 microseconds, once per process that is metered.
    pub(crate) fn calibrate() -> Self {
        let mut ticks = Self {
            counted: false,
            per_ns: 1 << SHIFT,
            idle: IDLE_NS,
        };
        if counter_is_invariant() {
            let (start_ns, start) = (clock::now_ns(), counter());
            let mut elapsed_ns = 0;
            while elapsed_ns < CALIBRATION_NS {
                core::hint::spin_loop();
                elapsed_ns = clock::now_ns().saturating_sub(start_ns);
            }
            let counted = counter().saturating_sub(start);
            if counted > 0 {
                ticks = Self {
                    counted: true,
                    per_ns: (counted << SHIFT) / elapsed_ns,
                    idle: 0,
                };
                ticks.idle = ticks.of_ns(IDLE_NS);
            }
        }
        ticks
    }

    /// Now, in ticks.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.counted { counter() } else { clock::now_ns() }
    }

    /// A span of nanoseconds in ticks.
    #[inline]
    pub(crate) fn of_ns(&self, ns: u64) -> u64 {
        ns.saturating_mul(self.per_ns) >> SHIFT
    }

    /// A span of ticks in nanoseconds.
    pub(crate) fn to_ns(&self, ticks: u64) -> u64 {
        (ticks << SHIFT.min(ticks.leading_zeros())) / self.per_ns.max(1)
    }

    /// The span after which a stream is taken to have run dry, in ticks.
    #[inline]
    pub(crate) fn idle(&self) -> u64 {
        self.idle
    }
}

/// Whether the counter runs at one pace in all power states (Intel SDM volume 3, "Invariant TSC"; AMD APM volume 3,
/// CPUID 8000_0007).
#[cfg(target_arch = "x86_64")]
fn counter_is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; a system that forbids it to programs does not run CUDA.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_invariant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_agree() {
        let ticks = Ticks::calibrate();
        for ns in [0, 1_000, 20_000, 1_000_000_000] {
            assert!(ticks.to_ns(ticks.of_ns(ns)).abs_diff(ns) <= 2 + ns / 1000, "{ns}");
        }
        let (start, start_ns) = (ticks.now(), clock::now_ns());
        while clock::now_ns() < start_ns + 2_000_000 {}
        let elapsed = ticks.to_ns(ticks.now() - start);
        assert!((1_900_000..3_000_000).contains(&elapsed), "{elapsed}");
    }
}
