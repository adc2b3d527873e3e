//! Models of today's tools, by their publications: launches are paid in thread blocks, whatever their duration, and the
//! refill rate is controlled by NVML's figure of the tenant's recent use.

/// Thread blocks of every launch; size and duration of a kernel do not matter.
const BLOCKS: i64 = 32;
/// Interval at which a refused process tries again (ns).
pub(crate) const POLL_NS: u64 = 10_000_000;
/// Multiprocessors of the GPU, and threads per multiprocessor.
const PROCESSORS: i64 = 132;
const THREADS: i64 = 2048;
/// Resident threads of the GPU, times the factor by which the tools scale their bucket.
const TOTAL: i64 = PROCESSORS * THREADS * 32;

/// Control of the refill rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: tenants are not limited.
    Unlimited,
    /// Steps that grow with the square of the number of multiprocessors and with the distance from the cap, every 120 ms
    /// (vcuda-controller; HAMi-core).
    BlockTokens,
    /// A fixed step up while below the cap, half down when above it, every 80 ms (vgpu-manager, `aimd`).
    Aimd,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 3] = [Self::Unlimited, Self::BlockTokens, Self::Aimd];

    /// Name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "no limiter",
            Self::BlockTokens => "block tokens, NVML",
            Self::Aimd => "block tokens, AIMD",
        }
    }

    /// Interval between two readings of NVML (ns).
    pub(crate) const fn period_ns(self) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::BlockTokens => 120_000_000,
            Self::Aimd => 80_000_000,
        }
    }
}

/// Token bucket of a tenant.
#[derive(Debug)]
pub(crate) struct Limiter {
    kind: Kind,
    cap_percent: i64,
    /// Tokens in the bucket (blocks).
    tokens: i64,
    /// Refill per period (blocks).
    refill: i64,
}

impl Limiter {
    /// A full bucket with the initial refill rate.
    pub(crate) fn new(kind: Kind, cap_percent: u32) -> Self {
        Self { kind, cap_percent: i64::from(cap_percent), tokens: 0, refill: 0 }
    }

    /// Whether a launch may proceed: any launch passes while the bucket is not negative.
    pub(crate) fn admit(&mut self) -> bool {
        if self.kind == Kind::Unlimited {
            return true;
        }
        if self.tokens < 0 {
            return false;
        }
        self.tokens -= BLOCKS;
        true
    }

    /// Ends a period, with the tenant's use by NVML (percent).
    pub(crate) fn steer(&mut self, used_percent: u32) {
        let used = i64::from(used_percent);
        match self.kind {
            Kind::Unlimited => return,
            Kind::BlockTokens => {
                let distance = (self.cap_percent - used).abs().max(5);
                let mut step = PROCESSORS * PROCESSORS * THREADS / 256 * distance / 2560;
                if distance > self.cap_percent / 2 {
                    step = step * distance * 2 / (self.cap_percent + 1);
                }
                let change = if used <= self.cap_percent { step } else { -step };
                self.refill = (self.refill + change).clamp(0, TOTAL);
            }
            Kind::Aimd => {
                self.refill =
                    if used < self.cap_percent { self.refill + TOTAL / 8192 } else { self.refill / 2 }
                        .clamp(BLOCKS, TOTAL);
            }
        }
        self.tokens = (self.tokens + self.refill).min(TOTAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_is_not_negative_lets_any_launch_pass() {
        let mut limiter = Limiter::new(Kind::BlockTokens, 50);
        assert!(limiter.admit());
        assert!(!limiter.admit());
        limiter.steer(0);
        assert!(limiter.admit());
    }

    #[test]
    fn both_earn_more_below_the_cap_and_less_above() {
        for kind in [Kind::BlockTokens, Kind::Aimd] {
            let mut limiter = Limiter::new(kind, 50);
            (0..20).for_each(|_| limiter.steer(10));
            let before = limiter.refill;
            limiter.steer(90);
            assert!(limiter.refill < before, "{kind:?}");
        }
    }
}
