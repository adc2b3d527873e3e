//! What a container is granted of one GPU.

use core::fmt;

/// The memory limit that is none: the whole card.
pub const NO_MEMORY_LIMIT: u64 = u64::MAX;

/// How a container competes for GPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Its cap, always: never more.
    #[default]
    Fixed,
    /// Its guarantee, and up to its cap of what others leave idle.
    Burst,
    /// Only what others leave idle.
    BestEffort,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Burst, Self::BestEffort];

    /// Its name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Burst => "burst",
            Self::BestEffort => "best-effort",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who comes first where there is not enough GPU time for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// After the others.
    Low,
    /// Neither.
    #[default]
    Normal,
    /// Before the others.
    High,
}

impl Priority {
    /// Every priority, the lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Its name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a container is granted of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Memory limit in bytes, or [`NO_MEMORY_LIMIT`].
    pub memory_limit_bytes: u64,
    /// Share of GPU time that is always there (thousandths, 0 to 1000).
    pub guarantee_permille: u32,
    /// Share of GPU time that is never exceeded (thousandths, 1 to 1000; 1000 is not metered while alone).
    pub cap_permille: u32,
    /// Weight when idle time is divided (1 to 10000).
    pub weight: u32,
    /// How it competes.
    pub policy: Policy,
    /// Who comes first where there is not enough for all.
    pub priority: Priority,
    /// How much unused GPU time may be banked (ns).
    pub burst_ns: u64,
    /// Longest hold of a launch (ns).
    pub hold_max_ns: u64,
    /// Largest debt; more is forgiven and counted (ns).
    pub debt_max_ns: u64,
}

impl DeviceConfig {
    /// A fixed share: `memory_limit_bytes` of memory, `cap_permille` of the time, everything else as THROTTLE's defaults.
    #[must_use]
    pub fn new(memory_limit_bytes: u64, cap_permille: u32) -> Self {
        Self {
            memory_limit_bytes,
            guarantee_permille: cap_permille,
            cap_permille,
            weight: cap_permille.max(1),
            policy: Policy::Fixed,
            priority: Priority::Normal,
            burst_ns: 5_000_000,
            hold_max_ns: 1_000_000_000,
            debt_max_ns: u64::from(cap_permille) * 10_000_000,
        }
    }

    /// The rate of a container of which nobody says what it may borrow (thousandths): what it was promised.
    #[must_use]
    pub fn promised_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed => self.cap_permille,
            Policy::Burst => self.guarantee_permille.min(self.cap_permille),
            Policy::BestEffort => 0,
        }
    }

    /// Whether every field is within the bounds that `limits` may hold.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        const MINUTE_NS: u64 = 60_000_000_000;
        (1..=1000).contains(&self.cap_permille)
            && self.guarantee_permille <= self.cap_permille
            && (1..=10_000).contains(&self.weight)
            && self.burst_ns <= MINUTE_NS
            && self.hold_max_ns <= MINUTE_NS
            && self.debt_max_ns <= MINUTE_NS
    }
}
