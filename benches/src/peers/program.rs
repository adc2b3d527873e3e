//! Programs of the comparison's tenants, by the lengths of their kernels, as in the table of `docs/evidence.md`.

/// A launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Duration of the kernel alone (ns).
    pub(crate) duration_ns: u64,
    /// Whether the host waits for it.
    pub(crate) waits: bool,
}

/// A program that saturates its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// Kernels of 10 us.
    Tiny,
    /// 8 us to 5 ms, each order of magnitude equally often.
    Mix,
    /// Mostly 50 us, one in a thousand up to 100 ms (Pareto, exponent 1.2).
    HeavyTail,
    /// 50 ms, each waited for.
    LongAndWait,
    /// 50 us for two seconds, 20 ms for two seconds.
    Phases,
}

impl Program {
    /// All programs, in the order of the table.
    pub(crate) const ALL: [Self; 5] =
        [Self::Tiny, Self::Mix, Self::HeavyTail, Self::LongAndWait, Self::Phases];

    /// Name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "10 us",
            Self::Mix => "mix 8 us-5 ms",
            Self::HeavyTail => "heavy tail",
            Self::LongAndWait => "50 ms + sync",
            Self::Phases => "50 us <-> 20 ms",
        }
    }

    /// The next launch, at time `now_ns`.
    pub(crate) fn next(self, random: &mut fastrand::Rng, now_ns: u64) -> Launch {
        let duration_ns = match self {
            Self::Tiny => 10_000,
            Self::Mix => whole(8_000.0 * 625_f64.powf(random.f64())),
            Self::HeavyTail => whole(50_000.0 * (1.0 - random.f64()).powf(-1.0 / 1.2)).min(100_000_000),
            Self::LongAndWait => 50_000_000,
            Self::Phases if (now_ns / 2_000_000_000).is_multiple_of(2) => 50_000,
            Self::Phases => 20_000_000,
        };
        Launch { duration_ns, waits: self == Self::LongAndWait }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length in ns, far below 2^53")]
fn whole(ns: f64) -> u64 {
    ns.max(0.0) as u64
}
