//! A quota as people say it (memory, share, policy, weight, priority), and as the shared region holds it.

use vcuda_region::limits::{self, DeviceConfig, Policy, Priority};

use crate::args::{PolicyName, PriorityName, QuotaArgs};
use crate::failure::Failure;
use vcuda_quota::{CoreShare, MemorySize};

/// What a tenant may use of each of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// None: the whole card.
    pub(crate) memory: Option<MemorySize>,
    /// The cap of a `fixed` tenant, the guarantee of a `burst` one, the most that a `best-effort` one takes.
    pub(crate) cores: CoreShare,
    /// The most that a `burst` tenant has; that of others is `cores`.
    pub(crate) cores_max: CoreShare,
    /// How idle time is treated.
    pub(crate) policy: Policy,
    /// Its part of what nobody was promised. None: in proportion to `cores`.
    pub(crate) weight: Option<u32>,
    /// Who comes first.
    pub(crate) priority: Priority,
}

impl TryFrom<&QuotaArgs> for Quota {
    type Error = Failure;

    /// The defaults of `vcuda run` for what is not given.
    fn try_from(args: &QuotaArgs) -> Result<Self, Failure> {
        Quota::UNLIMITED.changed(args)
    }
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Fixed => Policy::Fixed,
            PolicyName::Burst => Policy::Burst,
            PolicyName::BestEffort => Policy::BestEffort,
        }
    }
}

impl From<PriorityName> for Priority {
    fn from(name: PriorityName) -> Self {
        match name {
            PriorityName::Low => Priority::Low,
            PriorityName::Normal => Priority::Normal,
            PriorityName::High => Priority::High,
        }
    }
}

impl Quota {
    /// That of `vcuda run` without options.
    pub(crate) const UNLIMITED: Quota = Quota {
        memory: None,
        cores: CoreShare::WHOLE,
        cores_max: CoreShare::WHOLE,
        policy: Policy::Fixed,
        weight: None,
        priority: Priority::Normal,
    };

    /// What `config` was made from.
    pub(crate) fn of(config: &DeviceConfig) -> Quota {
        let quota = limits::Quota::of(config);
        Quota {
            memory: quota.memory_bytes.map(MemorySize),
            cores: CoreShare(quota.cores_permille),
            cores_max: CoreShare(quota.cores_max_permille),
            policy: quota.policy,
            weight: quota.weight,
            priority: quota.priority,
        }
    }

    /// This quota with the given options in place of its own.
    ///
    /// # Errors
    /// They do not go together.
    pub(crate) fn changed(self, args: &QuotaArgs) -> Result<Quota, Failure> {
        let policy = args.policy.map_or(self.policy, Policy::from);
        let cores = args.cores.unwrap_or(self.cores);
        let cores_max = match policy {
            Policy::Burst if self.policy == Policy::Burst => args.cores_max.unwrap_or(self.cores_max),
            Policy::Burst => args.cores_max.unwrap_or(CoreShare::WHOLE),
            Policy::Fixed | Policy::BestEffort => {
                if let Some(given) = args.cores_max {
                    return Err(Failure::Usage(format!(
                        "--cores-max {given}: a {policy} tenant has at most its --cores; add --policy burst to let it \
                         borrow beyond them"
                    )));
                }
                cores
            }
        };
        if cores_max.0 < cores.0 {
            return Err(Failure::Usage(format!(
                "--cores-max {cores_max} is less than the --cores {cores} that are guaranteed; give it at least these"
            )));
        }
        Ok(Quota {
            memory: args.memory.or(self.memory),
            cores,
            cores_max,
            policy,
            weight: args.weight.or(self.weight),
            priority: args.priority.map_or(self.priority, Priority::from),
        })
    }

    /// What of the GPU's time is always there (thousandths).
    pub(crate) fn guarantee_permille(self) -> u32 {
        self.of_region().promised_permille()
    }

    /// For the region, with the defaults for everything that has no option.
    pub(crate) fn config(self) -> DeviceConfig {
        self.of_region().config()
    }

    fn of_region(self) -> limits::Quota {
        limits::Quota {
            memory_bytes: self.memory.map(|memory| memory.0),
            cores_permille: self.cores.0,
            cores_max_permille: self.cores_max.0,
            policy: self.policy,
            weight: self.weight,
            priority: self.priority,
        }
    }

    /// Whether somebody has to apportion the GPU's time.
    pub(crate) fn is_metered(self) -> bool {
        self.cores != CoreShare::WHOLE
            || self.policy != Policy::Fixed
            || self.weight.is_some()
            || self.priority != Priority::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_survives_the_region() {
        for policy in Policy::ALL {
            for (memory, cores, weight, priority) in [
                (None, 1000, None, Priority::Low),
                (Some(MemorySize(4 << 30)), 300, Some(7), Priority::Normal),
                (Some(MemorySize(1)), 1, None, Priority::High),
            ] {
                let cores = CoreShare(cores);
                let cores_max = if policy == Policy::Burst {
                    CoreShare::WHOLE
                } else {
                    cores
                };
                let quota = Quota {
                    memory,
                    cores,
                    cores_max,
                    policy,
                    weight,
                    priority,
                };
                assert_eq!(Quota::of(&quota.config()), quota);
            }
        }
    }

    #[test]
    fn defaults_are_the_whole_card_unmetered() {
        let nothing = QuotaArgs::default();
        let quota = Quota::try_from(&nothing).unwrap();
        assert_eq!(quota, Quota::UNLIMITED);
        assert!(nothing.is_empty() && !quota.is_metered());
        for args in [
            QuotaArgs {
                policy: Some(PolicyName::Burst),
                ..nothing
            },
            QuotaArgs {
                priority: Some(PriorityName::Low),
                ..nothing
            },
            QuotaArgs {
                weight: Some(1),
                ..nothing
            },
        ] {
            assert!(!args.is_empty() && quota.changed(&args).unwrap().is_metered());
        }
    }

    #[test]
    fn the_cap_of_burst_is_its_own() {
        let burst = QuotaArgs {
            cores: Some(CoreShare(300)),
            cores_max: Some(CoreShare(500)),
            policy: Some(PolicyName::Burst),
            ..QuotaArgs::default()
        };
        let quota = Quota::try_from(&burst).unwrap();
        assert_eq!(
            (quota.config().guarantee_permille, quota.config().cap_permille),
            (300, 500)
        );
        // The weight follows the share unless it was given.
        assert_eq!(quota.config().weight, 300);
        let more = QuotaArgs {
            cores: Some(CoreShare(600)),
            ..QuotaArgs::default()
        };
        let refused = quota.changed(&more).unwrap_err().to_string();
        assert!(refused.contains("--cores-max 50 %"), "{refused}");
        let fixed = QuotaArgs {
            policy: Some(PolicyName::Fixed),
            ..QuotaArgs::default()
        };
        let capped = quota.changed(&fixed).unwrap();
        assert_eq!(capped.config().cap_permille, 300);
        let refused = capped
            .changed(&QuotaArgs {
                policy: None,
                ..burst
            })
            .unwrap_err()
            .to_string();
        assert!(refused.contains("--policy burst"), "{refused}");
    }
}
