//! A quota as people say it (memory, share, policy), and as the shared region holds it.

use vcuda_region::limits::{DeviceConfig, NO_MEMORY_LIMIT, Policy};

use crate::args::{PolicyName, QuotaArgs};
use crate::quantity::{CoreShare, MemorySize};

/// What a tenant may use of each of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// None: the whole card.
    pub(crate) memory: Option<MemorySize>,
    /// The cap of a `fixed` tenant, the guarantee of a `burst` one, the most that a `best-effort` one takes.
    pub(crate) cores: CoreShare,
    /// How idle time is treated.
    pub(crate) policy: Policy,
}

impl From<&QuotaArgs> for Quota {
    /// The defaults of `vcuda run` for what is not given.
    fn from(args: &QuotaArgs) -> Self {
        Quota {
            memory: None,
            cores: CoreShare::WHOLE,
            policy: Policy::Fixed,
        }
        .changed(args)
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

impl Quota {
    /// What `config` was made from.
    pub(crate) fn of(config: &DeviceConfig) -> Quota {
        let memory =
            (config.memory_limit_bytes != NO_MEMORY_LIMIT).then_some(MemorySize(config.memory_limit_bytes));
        let cores = match config.policy {
            Policy::Burst => config.guarantee_permille,
            Policy::Fixed | Policy::BestEffort => config.cap_permille,
        };
        Quota {
            memory,
            cores: CoreShare(cores),
            policy: config.policy,
        }
    }

    /// This quota with the given options in place of its own.
    pub(crate) fn changed(self, args: &QuotaArgs) -> Quota {
        Quota {
            memory: args.memory.or(self.memory),
            cores: args.cores.unwrap_or(self.cores),
            policy: args.policy.map_or(self.policy, Policy::from),
        }
    }

    /// For the region, with THROTTLE.md's defaults for everything that has no option.
    pub(crate) fn config(self) -> DeviceConfig {
        let memory_limit_bytes = self.memory.map_or(NO_MEMORY_LIMIT, |memory| memory.0);
        let share = self.cores.0;
        let (guarantee_permille, cap_permille) = match self.policy {
            Policy::Fixed => (share, share),
            Policy::Burst => (share, CoreShare::WHOLE.0),
            Policy::BestEffort => (0, share),
        };
        DeviceConfig {
            guarantee_permille,
            weight: share.max(1),
            policy: self.policy,
            ..DeviceConfig::new(memory_limit_bytes, cap_permille)
        }
    }

    /// Whether somebody has to apportion the GPU's time.
    pub(crate) fn is_metered(self) -> bool {
        self.cores != CoreShare::WHOLE || self.policy != Policy::Fixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_survives_the_region() {
        for policy in Policy::ALL {
            for (memory, cores) in [
                (None, 1000),
                (Some(MemorySize(4 << 30)), 300),
                (Some(MemorySize(1)), 1),
            ] {
                let quota = Quota {
                    memory,
                    cores: CoreShare(cores),
                    policy,
                };
                assert_eq!(Quota::of(&quota.config()), quota);
            }
        }
    }

    #[test]
    fn defaults_are_the_whole_card_unmetered() {
        let nothing = QuotaArgs {
            memory: None,
            cores: None,
            policy: None,
        };
        let quota = Quota::from(&nothing);
        assert_eq!(
            quota,
            Quota {
                memory: None,
                cores: CoreShare::WHOLE,
                policy: Policy::Fixed
            }
        );
        assert!(!quota.is_metered());
        let burst = QuotaArgs {
            policy: Some(PolicyName::Burst),
            ..nothing
        };
        assert!(quota.changed(&burst).is_metered());
    }
}
