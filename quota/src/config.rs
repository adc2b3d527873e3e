//! The form of a quota in the file `limits`.

use crate::{Policy, Priority, WEIGHTS};

/// The memory limit of a tenant that may use all memory of the GPU.
pub const NO_MEMORY_LIMIT: u64 = u64::MAX;

/// Values in `limits` for one tenant on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Memory limit in bytes, or [`NO_MEMORY_LIMIT`].
    pub memory_limit_bytes: u64,
    /// Share of GPU time that is always there (thousandths, 0 to 1000).
    pub guarantee_permille: u32,
    /// Share of GPU time that is never exceeded (thousandths, 1 to 1000; 1000 is not metered while alone).
    pub cap_permille: u32,
    /// Weight when idle time is divided, one of [`WEIGHTS`].
    pub weight: u32,
    /// Way in which the share limits the tenant.
    pub policy: Policy,
    /// Rank among tenants where there is not enough GPU time for all.
    pub priority: Priority,
    /// Most unused GPU time that the token bucket keeps (ns).
    pub burst_ns: u64,
    /// Time after which a launch that waits for tokens or for its turn may proceed on debt (ns). In each such period one
    /// launch of the tenant does so, however many wait. A new default reaches a tenant with its next quota.
    pub hold_max_ns: u64,
    /// Largest debt (ns); more is forgiven, and counted as forgiven.
    pub debt_max_ns: u64,
}

impl DeviceConfig {
    /// A fixed share: `memory_limit_bytes` of memory, `cap_permille` of the time, all else by default.
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

    /// The tenant's promised rate (thousandths), which applies while no arbiter says what it may borrow.
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
            && WEIGHTS.contains(&self.weight)
            && self.burst_ns <= MINUTE_NS
            && self.hold_max_ns <= MINUTE_NS
            && self.debt_max_ns <= MINUTE_NS
    }
}
