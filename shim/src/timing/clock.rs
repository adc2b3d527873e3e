//! The time of the launch path: the cycle counter where it never changes its pace, else the monotonic clock. It only
//! tells whether a stream has run dry; accounts go by the clock that all processes share.

use vcuda_region::clock;

/// A stream that was predicted to be done for this long is taken to have run dry (ns).
const IDLE_NS: u64 = 20_000;
/// How long the counter is compared with the clock (ns): a thousandth of error is harmless here.
const CALIBRATION_NS: u64 = 100_000;
/// Readings of which the least disturbed counts.
const READINGS: u32 = 8;
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
            let (start_ns, start) = both();
            while clock::now_ns() < start_ns + CALIBRATION_NS {
                core::hint::spin_loop();
            }
            let (end_ns, end) = both();
            let elapsed_ns = end_ns.saturating_sub(start_ns);
            let counted = end.saturating_sub(start);
            if counted > 0 && elapsed_ns > 0 {
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

/// Clock (ns) and counter of one moment: of a few readings the one that was least disturbed, since a thread that loses the
/// processor between the two would take the counter for many times as fast.
fn both() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..READINGS {
        let before_ns = clock::now_ns();
        let ticks = counter();
        let took_ns = clock::now_ns().saturating_sub(before_ns);
        if took_ns < best.0 {
            best = (took_ns, before_ns, ticks);
        }
    }
    (best.1, best.2)
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
        // Whatever the scheduler does in between: the counter's span lies within one of the clock's and around another.
        let outer_ns = clock::now_ns();
        let start = ticks.now();
        let inner_ns = clock::now_ns();
        while clock::now_ns() < inner_ns + 2_000_000 {}
        let inner_ns = clock::now_ns() - inner_ns;
        let elapsed_ns = ticks.to_ns(ticks.now() - start);
        let outer_ns = clock::now_ns() - outer_ns;
        let tolerance_ns = outer_ns / 20;
        assert!(
            elapsed_ns + tolerance_ns >= inner_ns,
            "{elapsed_ns} in {inner_ns}"
        );
        assert!(
            elapsed_ns <= outer_ns + tolerance_ns,
            "{elapsed_ns} in {outer_ns}"
        );
    }
}
