//! Models of today's tools and how they hold a tenant to its share, by what they publish: launches are paid in blocks of
//! threads, whatever they take, and the income is steered by NVML's figure of the tenant's recent use.

/// Blocks of threads of every launch: neither size nor duration of a kernel plays a part.
const BLOCKS: i64 = 32;
/// A denied process tries again after this (ns).
pub(crate) const POLL_NS: u64 = 10_000_000;
/// Multiprocessors of the GPU, and the threads that fit on each.
const PROCESSORS: i64 = 132;
const THREADS: i64 = 2048;
/// Threads that the GPU holds at once, times the factor by which the tools scale their bucket.
const TOTAL: i64 = PROCESSORS * THREADS * 32;

/// Steering of the income.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: every tenant alone with its launches.
    Unlimited,
    /// By steps that grow with the square of the number of multiprocessors and with the distance from the cap, every
    /// 120 ms (vcuda-controller; HAMi-core).
    BlockTokens,
    /// By a fixed step up while below the cap, and by half down when above it, every 80 ms (vgpu-manager, `aimd`).
    Aimd,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Unlimited, Self::BlockTokens, Self::Aimd];

    /// As the table names it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "no limiter",
            Self::BlockTokens => "block tokens, NVML",
            Self::Aimd => "block tokens, AIMD",
        }
    }

    /// Between two looks at NVML (ns).
    pub(crate) const fn period_ns(self) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::BlockTokens => 120_000_000,
            Self::Aimd => 80_000_000,
        }
    }
}

/// One tenant's bucket.
#[derive(Debug)]
pub(crate) struct Limiter {
    kind: Kind,
    cap_percent: i64,
    /// Blocks in the bucket.
    level: i64,
    /// Blocks that come into it each period.
    income: i64,
}

impl Limiter {
    /// A full bucket, and the income of one that was never steered.
    pub(crate) fn new(kind: Kind, cap_percent: u32) -> Self {
        Self {
            kind,
            cap_percent: i64::from(cap_percent),
            level: 0,
            income: 0,
        }
    }

    /// Whether a launch may go: a bucket that is not negative lets any launch pass.
    pub(crate) fn admit(&mut self) -> bool {
        if self.kind == Kind::Unlimited {
            return true;
        }
        if self.level < 0 {
            return false;
        }
        self.level -= BLOCKS;
        true
    }

    /// A period is over, and NVML says that the tenant used so much of the GPU (percent).
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
                self.income = (self.income + change).clamp(0, TOTAL);
            }
            Kind::Aimd => {
                self.income = if used < self.cap_percent {
                    self.income + TOTAL / 8192
                } else {
                    self.income / 2
                }
                .clamp(BLOCKS, TOTAL);
            }
        }
        self.level = (self.level + self.income).min(TOTAL);
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
            let before = limiter.income;
            limiter.steer(90);
            assert!(limiter.income < before, "{kind:?}");
        }
    }
}
