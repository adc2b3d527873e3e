//! The decision of a process whether launches proceed or wait for tokens. Time is an argument.

use core::sync::atomic::{AtomicBool, Ordering};

use super::{FLOOR_PERMILLE, STALE_BEAT_NS};
use crate::Refinement;
use crate::token_bucket::{Pace, TokenBucket};
use vcuda_quota::{DeviceConfig, Policy};

/// Most predicted work in flight of a tenant that is alone on the GPU (ns).
pub const WINDOW_NS: u64 = 2_000_000;
/// The same, while a tenant of higher priority is at work (ns): its launches wait for so much, and not for a slice.
pub const WINDOW_YIELDING_NS: u64 = 250_000;
/// Most predicted work in flight while neighbours compete (ns): two slices, so that a tenant always has work for its slice. With less,
/// slices would be unequal, and elapsed time could not be apportioned by the busy maps.
const WINDOW_CONTENDED_NS: u64 = 4_000_000;
/// Swing (ns), alone and while neighbours compete: launches proceed until the debt is this large, then wait until there are as many
/// tokens. It is at most `burst_ns`, as the bucket never has more tokens. A larger swing costs less CPU time, but makes short windows
/// less exact. Beside neighbours it is a number of whole slices, like the window.
const SWING_NS: i64 = 1_000_000;
const SWING_CONTENDED_NS: i64 = 4_000_000;
/// Multiple of `burst_ns` that may be saved while neighbours compete: a busy tenant gets no GPU time during their slices, and must get it
/// later. Beside a kernel of 100 ms it gets 100 of 200 ms, and one with 90 % falls 80 ms behind.
const BURST_CONTENDED_TIMES: u64 = 24;
/// Shortest and longest segment that a timing event measures (ns).
const SEGMENT_NS: (u64, u64) = (125_000, 1_000_000);

/// Limits of a device at a moment.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Refill of the bucket.
    pub pace: Pace,
    /// The tenant's quota on the device.
    pub config: DeviceConfig,
    /// Whether other tenants are busy on the device.
    pub contended: bool,
    /// Factor of measured time (thousandths).
    pub scale_permille: u32,
    /// Most predicted work in flight (ns).
    pub window_ns: u64,
    /// Predicted work that a timing event measures (ns).
    pub segment_ns: u64,
}

impl View {
    /// The limits at `now_ns`, from the fields of `limits`. `beat_ns` is the arbiter's last beat; 0 if there was none. Without an arbiter
    /// the overlap is not known, so elapsed time is charged unscaled. Borrowed time would not be taken back either, so the tenant
    /// borrows none from the time on at which the beat is too old.
    pub fn new(pace: Pace, config: DeviceConfig, beat_ns: u64, now_ns: u64) -> Self {
        let arbitrated = beat_ns != 0 && now_ns.saturating_sub(beat_ns) < STALE_BEAT_NS;
        let contended = arbitrated && pace.contended;
        let yields = pace.window_ns < WINDOW_NS;
        let window_ns = if contended && !yields { WINDOW_CONTENDED_NS } else { pace.window_ns };
        let pace = if arbitrated || config.policy == Policy::Fixed {
            pace
        } else {
            let unlent_permille = config.promised_permille().max(FLOOR_PERMILLE.min(config.cap_permille));
            pace.with_rate(unlent_permille, beat_ns.saturating_add(STALE_BEAT_NS))
        };
        Self {
            pace,
            config,
            contended,
            scale_permille: if arbitrated { pace.scale_permille } else { 1000 },
            window_ns,
            segment_ns: (window_ns / 4).clamp(SEGMENT_NS.0, SEGMENT_NS.1),
        }
    }

    /// Most tokens (ns).
    fn burst_ns(&self) -> u64 {
        let times = if self.contended { BURST_CONTENDED_TIMES } else { 1 };
        self.config.burst_ns.saturating_mul(times)
    }

    /// Charge for the elapsed time `elapsed_ns` (ns).
    pub fn scaled(&self, elapsed_ns: u64) -> u64 {
        elapsed_ns.saturating_mul(u64::from(self.scale_permille)) / 1000
    }
}

/// Decision by the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The launch may proceed.
    Go,
    /// The launch may proceed at this time, unless another launch consumes tokens (`CLOCK_MONOTONIC`, ns).
    At(u64),
}

/// State of a process on a device: the running or the waiting half of the swing.
#[derive(Debug)]
pub struct Throttle {
    running: AtomicBool,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { running: AtomicBool::new(true) }
    }
}

impl Throttle {
    /// Decides by the tenant's tokens at `now_ns` whether a launch may proceed. A process that waits proceeds once the tokens reach the
    /// swing, and waits again once the debt does.
    pub fn verdict(&self, bucket: &TokenBucket, view: &View, now_ns: u64) -> Verdict {
        let config = &view.config;
        // With a burst of 0 no launch would ever proceed.
        bucket.clamp(&view.pace, view.burst_ns().max(1), config.debt_max_ns, now_ns);
        let tokens = bucket.tokens(&view.pace, now_ns);
        let swing = if view.contended { SWING_CONTENDED_NS } else { SWING_NS };
        let swing = if Refinement::Swing.is_used() {
            swing.min(i64::try_from(config.burst_ns).unwrap_or(i64::MAX))
        } else {
            0
        };
        let running = self.running.load(Ordering::Relaxed);
        // A swing of 0 means one launch at a time.
        let goes = if running { tokens > -swing } else { tokens >= swing.max(1) };
        if goes != running {
            self.running.store(goes, Ordering::Relaxed);
        }
        if goes {
            return Verdict::Go;
        }
        let missing = u128::from(swing.max(1).saturating_sub(tokens).unsigned_abs());
        let wait = (missing * 1000).div_ceil(u128::from(view.pace.rate_permille.max(1)));
        Verdict::At(now_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate_permille: u32) -> Pace {
        Pace {
            epoch_ns: 0,
            credit_ns: 0,
            rate_permille,
            scale_permille: 500,
            window_ns: 2_000_000,
            metered: true,
            contended: true,
        }
    }

    #[test]
    fn without_a_fresh_beat_time_is_charged_as_it_is() {
        let config = DeviceConfig::new(0, 300);
        let now = 10 * STALE_BEAT_NS;
        let fresh = View::new(pace(300), config, now - 1, now);
        assert_eq!((fresh.scale_permille, fresh.contended, fresh.window_ns), (500, true, 4_000_000));
        for beat in [0, now - STALE_BEAT_NS] {
            let stale = View::new(pace(300), config, beat, now);
            assert_eq!((stale.scale_permille, stale.contended, stale.window_ns), (1000, false, 2_000_000));
        }
    }

    #[test]
    fn without_a_fresh_beat_nothing_is_borrowed() {
        let burst =
            DeviceConfig { guarantee_permille: 200, policy: Policy::Burst, ..DeviceConfig::new(0, 1000) };
        let effort = DeviceConfig { policy: Policy::BestEffort, ..burst };
        let beat = STALE_BEAT_NS;
        let lost = beat + STALE_BEAT_NS;
        let credit = |config, now| {
            let view = View::new(pace(1000), config, beat, now);
            view.pace.credit_at(now)
        };
        for (config, earned_ns) in [(burst, 200_000_000), (effort, 10_000_000)] {
            let before = credit(config, lost - 1);
            assert!((before - 2_000_000_000).abs() <= 1, "{before}");
            // The refill before that time stays.
            assert_eq!(credit(config, lost + 1_000_000_000), 2_000_000_000 + earned_ns);
        }
        let fixed = View::new(pace(300), DeviceConfig::new(0, 300), beat, lost);
        assert_eq!(fixed.pace, pace(300));
    }

    #[test]
    fn a_segment_is_a_quarter_of_the_window_within_its_bounds() {
        let now = 10 * STALE_BEAT_NS;
        for (window_ns, segment_ns) in [
            (0, 125_000),
            (499_999, 125_000),
            (600_000, 150_000),
            (WINDOW_NS, 500_000),
            (3_600_000, 900_000),
            (40_000_000, 1_000_000),
        ] {
            let pace = Pace { window_ns, ..pace(300) };
            let view = View::new(pace, DeviceConfig::new(0, 300), 0, now);
            assert_eq!((view.window_ns, view.segment_ns), (window_ns, segment_ns));
        }
        let contended = View::new(pace(300), DeviceConfig::new(0, 300), now - 1, now);
        assert_eq!((contended.window_ns, contended.segment_ns), (4_000_000, 1_000_000));
    }

    #[test]
    fn it_swings_and_says_when() {
        let config = DeviceConfig::new(0, 500);
        let view = View::new(pace(500), config, 0, 100_000_000);
        let (bucket, throttle) = (TokenBucket::default(), Throttle::default());
        let now = 100_000_000;
        assert_eq!(throttle.verdict(&bucket, &view, now), Verdict::Go);
        // Idle time was not saved beyond the burst of 5 ms; 6 ms of work leave 1 ms of debt.
        bucket.charge(6_000_000);
        assert_eq!(throttle.verdict(&bucket, &view, now), Verdict::At(now + 4_000_000));
        // At half speed, 2 ms of tokens take 4 ms; not a moment earlier, and then at once.
        assert_eq!(throttle.verdict(&bucket, &view, now + 3_999_000), Verdict::At(now + 4_000_000));
        assert_eq!(throttle.verdict(&bucket, &view, now + 4_000_000), Verdict::Go);
    }

    #[test]
    fn more_may_be_saved_while_neighbours_compete() {
        let config = DeviceConfig::new(0, 500);
        for (beat_ns, saved_ns) in [(1, 120_000_000), (0, 5_000_000)] {
            let view = View::new(pace(500), config, beat_ns, 900_000_000);
            let bucket = TokenBucket::default();
            Throttle::default().verdict(&bucket, &view, 900_000_000);
            assert_eq!(bucket.tokens(&view.pace, 900_000_000), saved_ns);
        }
    }

    #[test]
    fn no_burst_still_goes_on() {
        let config = DeviceConfig { burst_ns: 0, ..DeviceConfig::new(0, 100) };
        let view = View::new(pace(100), config, 0, 1_000);
        let (bucket, throttle) = (TokenBucket::default(), Throttle::default());
        let mut now = 1_000;
        let mut launched = 0;
        for _ in 0..1000 {
            match throttle.verdict(&bucket, &view, now) {
                Verdict::Go => {
                    bucket.charge(1_000_000);
                    launched += 1;
                }
                Verdict::At(at) => now = at,
            }
        }
        assert!(launched >= 300, "{launched}");
    }
}
