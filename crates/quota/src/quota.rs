//! A tenant's quota, changes to it, and its conversion from and to a GPU's configuration.

use crate::{DeviceConfig, NO_MEMORY_LIMIT, Policy, Priority, WEIGHTS};

/// All of a GPU's time (thousandths).
const WHOLE_PERMILLE: u32 = 1000;

/// Quota of a tenant on each of its GPUs.
///
/// The manager's ledger holds it as JSON under these field names, which therefore never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    /// Memory limit (bytes). None: all memory of the GPU.
    pub memory_bytes: Option<u64>,
    /// Share of GPU time (thousandths, 1 to 1000): the cap of `fixed`, the guarantee of `burst`, the most of `best-effort`.
    pub cores_permille: u32,
    /// The most that a `burst` tenant gets (thousandths). With other policies it equals `cores_permille`.
    pub cores_max_permille: u32,
    /// Way in which the share limits the tenant.
    pub policy: Policy,
    /// Rank among tenants where there is not enough GPU time for all.
    pub priority: Priority,
    /// Weight in the division of time beyond the guarantees, one of [`WEIGHTS`]. `None` means `cores_permille`.
    pub weight: Option<u32>,
}

/// Parts of a quota that a command line or a pod's annotations name. A part that is None stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// Memory limit (bytes).
    pub memory_bytes: Option<u64>,
    /// Share of GPU time (thousandths).
    pub cores_permille: Option<u32>,
    /// The most that a `burst` tenant gets (thousandths).
    pub cores_max_permille: Option<u32>,
    /// Way in which the share limits the tenant.
    pub policy: Option<Policy>,
    /// Rank among tenants.
    pub priority: Option<Priority>,
    /// Weight.
    pub weight: Option<u32>,
    /// Whether the tenant may be suspended. No part of its quota: it is fixed when the tenant is made.
    pub suspendable: Option<bool>,
}

/// Parts of a quota that contradict each other. Each interface says so in the words of its own options or annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    /// A maximum for a policy whose maximum is its share.
    MaximumWithoutBurst {
        /// The maximum (thousandths).
        cores_max_permille: u32,
        /// The policy.
        policy: Policy,
    },
    /// A maximum below the share.
    MaximumBelowShare {
        /// The maximum (thousandths).
        cores_max_permille: u32,
        /// The share (thousandths).
        cores_permille: u32,
    },
}

impl Quota {
    /// All memory, and all GPU time that other tenants were not promised.
    pub const UNLIMITED: Self = Self::fixed(None, WHOLE_PERMILLE);

    /// A `fixed` share of GPU time (thousandths) beside a memory limit (bytes; None: all memory).
    pub const fn fixed(memory_bytes: Option<u64>, cores_permille: u32) -> Self {
        Self {
            memory_bytes,
            cores_permille,
            cores_max_permille: cores_permille,
            policy: Policy::Fixed,
            priority: Priority::Normal,
            weight: None,
        }
    }

    /// This quota with the parts that `change` names in place of its own. A tenant that becomes `burst` may get all GPU time
    /// unless `change` names a maximum.
    pub fn merge(&self, change: &QuotaChange) -> Result<Self, Contradiction> {
        let policy = change.policy.unwrap_or(self.policy);
        let cores_permille = change.cores_permille.unwrap_or(self.cores_permille);
        let cores_max_permille = match (policy, change.cores_max_permille) {
            (Policy::Burst, Some(maximum)) => maximum,
            (Policy::Burst, None) if self.policy == Policy::Burst => self.cores_max_permille,
            (Policy::Burst, None) => WHOLE_PERMILLE,
            (Policy::Fixed | Policy::BestEffort, None) => cores_permille,
            (Policy::Fixed | Policy::BestEffort, Some(cores_max_permille)) => {
                return Err(Contradiction::MaximumWithoutBurst { cores_max_permille, policy });
            }
        };
        if cores_max_permille < cores_permille {
            return Err(Contradiction::MaximumBelowShare { cores_max_permille, cores_permille });
        }
        Ok(Self {
            memory_bytes: change.memory_bytes.or(self.memory_bytes),
            cores_permille,
            cores_max_permille,
            policy,
            priority: change.priority.unwrap_or(self.priority),
            weight: change.weight.or(self.weight),
        })
    }

    /// Whether every value is in its range: for a quota from a file or from another process.
    pub fn is_valid(&self) -> bool {
        self.memory_bytes.is_none_or(|bytes| (1..NO_MEMORY_LIMIT).contains(&bytes))
            && (1..=WHOLE_PERMILLE).contains(&self.cores_permille)
            && (self.cores_permille..=WHOLE_PERMILLE).contains(&self.cores_max_permille)
            && (self.policy == Policy::Burst || self.cores_max_permille == self.cores_permille)
            && self.weight.is_none_or(|weight| WEIGHTS.contains(&weight))
    }

    /// Whether an arbiter has to divide GPU time for this tenant. If not, a tenant alone on its GPU is not metered.
    pub fn is_metered(&self) -> bool {
        *self != Self::fixed(self.memory_bytes, WHOLE_PERMILLE)
    }

    /// Part of the GPU's time that is always there for the tenant (thousandths).
    pub fn promised_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed | Policy::Burst => self.cores_permille,
            Policy::BestEffort => 0,
        }
    }

    /// Part of the GPU's time that is reserved for the tenant when others are admitted (thousandths): what it was promised.
    /// `fixed` with all of the time reserves nothing: it means all that others were not promised.
    pub fn reserved_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed if self.cores_permille >= WHOLE_PERMILLE => 0,
            Policy::Fixed | Policy::Burst | Policy::BestEffort => self.promised_permille(),
        }
    }

    /// The configured weight, or else the share.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or_else(|| self.cores_permille.max(1))
    }

    /// The quota's form in `limits`, with the defaults of [`DeviceConfig::new`] for all that a quota does not name.
    pub fn config(&self) -> DeviceConfig {
        let memory_limit_bytes = self.memory_bytes.unwrap_or(NO_MEMORY_LIMIT);
        DeviceConfig {
            guarantee_permille: self.promised_permille(),
            weight: self.weight(),
            policy: self.policy,
            priority: self.priority,
            ..DeviceConfig::new(memory_limit_bytes, self.cores_max_permille)
        }
    }

    /// The quota whose [`Quota::config`] is `config`.
    pub fn of(config: &DeviceConfig) -> Self {
        let cores_permille = match config.policy {
            Policy::Burst => config.guarantee_permille,
            Policy::Fixed | Policy::BestEffort => config.cap_permille,
        };
        Self {
            memory_bytes: (config.memory_limit_bytes != NO_MEMORY_LIMIT).then_some(config.memory_limit_bytes),
            cores_permille,
            cores_max_permille: config.cap_permille,
            policy: config.policy,
            priority: config.priority,
            weight: (config.weight != cores_permille.max(1)).then_some(config.weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: QuotaChange = QuotaChange {
        memory_bytes: None,
        cores_permille: Some(300),
        cores_max_permille: Some(500),
        policy: Some(Policy::Burst),
        priority: None,
        weight: None,
        suspendable: None,
    };

    #[test]
    fn a_quota_is_what_its_configuration_was_made_from() {
        for policy in Policy::ALL {
            for (memory_bytes, cores_permille, weight, priority) in [
                (None, 1000, None, Priority::Low),
                (Some(4 << 30), 300, Some(7), Priority::Normal),
                (Some(1), 1, None, Priority::High),
            ] {
                let change = QuotaChange {
                    memory_bytes,
                    cores_permille: Some(cores_permille),
                    policy: Some(policy),
                    priority: Some(priority),
                    weight,
                    ..QuotaChange::default()
                };
                let quota = Quota::UNLIMITED.merge(&change).unwrap();
                let config = quota.config();
                assert_eq!(Quota::of(&config), quota);
                assert!(config.is_valid() && quota.is_valid());
                assert_eq!(config.guarantee_permille, quota.promised_permille());
            }
        }
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let burst = Quota::UNLIMITED.merge(&BURST).unwrap();
        assert_eq!(burst.merge(&QuotaChange::default()), Ok(burst));
        let memory = QuotaChange { memory_bytes: Some(1 << 30), ..QuotaChange::default() };
        assert_eq!(burst.merge(&memory), Ok(Quota { memory_bytes: Some(1 << 30), ..burst }));
        assert_eq!((burst.config().guarantee_permille, burst.config().cap_permille), (300, 500));
        // The weight follows the share unless it was given.
        assert_eq!(burst.config().weight, 300);
    }

    #[test]
    fn only_burst_has_a_maximum_and_it_is_the_share_or_more() {
        let burst = Quota::UNLIMITED.merge(&BURST).unwrap();
        let more = QuotaChange { cores_permille: Some(600), ..QuotaChange::default() };
        assert_eq!(
            burst.merge(&more),
            Err(Contradiction::MaximumBelowShare { cores_max_permille: 500, cores_permille: 600 })
        );
        let fixed = QuotaChange { policy: Some(Policy::Fixed), ..QuotaChange::default() };
        let fixed = burst.merge(&fixed).unwrap();
        assert_eq!(fixed.config().cap_permille, 300);
        assert_eq!(
            fixed.merge(&QuotaChange { policy: None, ..BURST }),
            Err(Contradiction::MaximumWithoutBurst { cores_max_permille: 500, policy: Policy::Fixed })
        );
        // A quota that becomes `burst` keeps no earlier maximum.
        let again = QuotaChange { cores_max_permille: None, ..BURST };
        assert_eq!(fixed.merge(&again).unwrap().cores_max_permille, 1000);
    }

    /// For a quota from a file or from another process, which no [`Quota::merge`] has checked.
    #[test]
    fn each_value_out_of_its_range_makes_a_quota_invalid() {
        let burst = Quota::UNLIMITED.merge(&BURST).unwrap();
        let best_effort = Quota { policy: Policy::BestEffort, ..Quota::fixed(None, 300) };
        for good in [burst, best_effort, Quota::fixed(Some(NO_MEMORY_LIMIT - 1), 1)] {
            assert!(good.is_valid(), "{good:?}");
        }
        type Spoil = fn(&mut Quota);
        let bad: [(&str, Spoil); 9] = [
            ("no memory", |quota| quota.memory_bytes = Some(0)),
            ("the mark of no limit", |quota| {
                quota.memory_bytes = Some(NO_MEMORY_LIMIT);
            }),
            ("no time", |quota| quota.cores_permille = 0),
            ("a share of more than a GPU", |quota| {
                (quota.cores_permille, quota.cores_max_permille) = (1001, 1001);
            }),
            ("a maximum below the share", |quota| {
                quota.cores_max_permille = quota.cores_permille - 1;
            }),
            ("a maximum of more than a GPU", |quota| {
                quota.cores_max_permille = 1001;
            }),
            ("a maximum of a fixed share", |quota| quota.policy = Policy::Fixed),
            ("a maximum without a promise", |quota| {
                quota.policy = Policy::BestEffort;
            }),
            ("a weight of 0", |quota| quota.weight = Some(0)),
        ];
        for (what, change) in bad {
            let mut quota = burst;
            change(&mut quota);
            assert!(!quota.is_valid(), "{what}: {quota:?}");
        }
    }

    #[test]
    fn a_maximum_is_refused_for_each_policy_whose_maximum_is_its_share() {
        for policy in [Policy::Fixed, Policy::BestEffort] {
            let change = QuotaChange { policy: Some(policy), ..BURST };
            let refused = Contradiction::MaximumWithoutBurst { cores_max_permille: 500, policy };
            assert_eq!(Quota::UNLIMITED.merge(&change), Err(refused));
        }
        // A maximum of just the share is one too.
        let fixed = Quota::fixed(None, 300)
            .merge(&QuotaChange { cores_max_permille: Some(300), ..QuotaChange::default() });
        assert!(matches!(fixed, Err(Contradiction::MaximumWithoutBurst { .. })));
    }

    #[test]
    fn only_a_quota_that_competes_as_all_do_is_not_metered() {
        let memory_only = Quota::fixed(Some(1), 1000);
        assert!(!Quota::UNLIMITED.is_metered() && !memory_only.is_metered());
        let changes: [fn(&mut QuotaChange); 4] = [
            |change| change.cores_permille = Some(999),
            |change| change.policy = Some(Policy::Burst),
            |change| change.priority = Some(Priority::Low),
            |change| change.weight = Some(1),
        ];
        for set in changes {
            let mut change = QuotaChange::default();
            set(&mut change);
            assert!(memory_only.merge(&change).unwrap().is_metered(), "{change:?}");
        }
    }
}
