//! The form of a quota in the file `limits`.

use crate::{Policy, Priority, WEIGHTS};

/// The memory limit of a tenant that may use all memory of the GPU.
pub const NO_MEMORY_LIMIT: u64 = u64::MAX;

/// Ten minutes (ns).
const DEBT_MAX_NS: u64 = 600_000_000_000;

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
    /// Time after which a launch that waits for tokens or for its turn may proceed on debt, if work may wait for it (ns). Such launches
    /// proceed at the tenant's rate, however many wait. A new default reaches a tenant with its next quota.
    pub hold_max_ns: u64,
    /// Largest debt (ns); more is forgiven, and counted as forgiven. No program has such kernels: it bounds what a wrong clock does.
    pub debt_max_ns: u64,
}

impl DeviceConfig {
    /// A fixed share: `memory_limit_bytes` of memory, `cap_permille` of the time, all else by default.
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
            debt_max_ns: DEBT_MAX_NS,
        }
    }

    /// The tenant's promised rate (thousandths), which applies while no arbiter says what it may borrow.
    pub fn promised_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed => self.cap_permille,
            Policy::Burst => self.guarantee_permille.min(self.cap_permille),
            Policy::BestEffort => 0,
        }
    }

    /// Whether every field is within the bounds that `limits` may hold.
    pub fn is_valid(&self) -> bool {
        const MINUTE_NS: u64 = 60_000_000_000;
        (1..=1000).contains(&self.cap_permille)
            && self.guarantee_permille <= self.cap_permille
            && WEIGHTS.contains(&self.weight)
            && self.burst_ns <= MINUTE_NS
            && self.hold_max_ns <= MINUTE_NS
            && self.debt_max_ns <= DEBT_MAX_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    fn burst() -> DeviceConfig {
        DeviceConfig { guarantee_permille: 200, policy: Policy::Burst, ..DeviceConfig::new(1 << 30, 500) }
    }

    /// A file may hold a guarantee above the cap. The cap is never exceeded all the same.
    #[test]
    fn the_promise_is_the_guarantee_and_never_above_the_cap() {
        let promised = |policy, guarantee_permille| {
            let config = DeviceConfig { policy, guarantee_permille, ..burst() };
            config.promised_permille()
        };
        assert_eq!(promised(Policy::Burst, 200), 200);
        assert_eq!(promised(Policy::Burst, 700), 500);
        assert_eq!(promised(Policy::Fixed, 200), 500);
        assert_eq!(promised(Policy::BestEffort, 200), 0);
    }

    #[test]
    fn each_field_has_its_bounds() {
        let least = DeviceConfig {
            memory_limit_bytes: 0,
            guarantee_permille: 0,
            cap_permille: 1,
            weight: *WEIGHTS.start(),
            burst_ns: 0,
            hold_max_ns: 0,
            debt_max_ns: 0,
            ..burst()
        };
        let most = DeviceConfig {
            memory_limit_bytes: NO_MEMORY_LIMIT,
            guarantee_permille: 1000,
            cap_permille: 1000,
            weight: *WEIGHTS.end(),
            burst_ns: MINUTE_NS,
            hold_max_ns: MINUTE_NS,
            debt_max_ns: DEBT_MAX_NS,
            ..burst()
        };
        assert!(burst().is_valid() && least.is_valid() && most.is_valid());
        type Spoil = fn(&mut DeviceConfig);
        let bad: [(&str, Spoil); 8] = [
            ("no cap", |config| {
                (config.cap_permille, config.guarantee_permille) = (0, 0);
            }),
            ("a cap of more than a GPU", |config| config.cap_permille = 1001),
            ("a guarantee above the cap", |config| {
                config.guarantee_permille = config.cap_permille + 1;
            }),
            ("a weight of 0", |config| config.weight = WEIGHTS.start() - 1),
            ("a weight too large", |config| config.weight = WEIGHTS.end() + 1),
            ("a burst too long", |config| config.burst_ns = MINUTE_NS + 1),
            ("a wait too long", |config| config.hold_max_ns = MINUTE_NS + 1),
            ("a debt too large", |config| config.debt_max_ns = DEBT_MAX_NS + 1),
        ];
        for (what, change) in bad {
            let mut config = burst();
            change(&mut config);
            assert!(!config.is_valid(), "{what}: {config:?}");
        }
    }
}
