//! A quota as people give it, and the configuration of a GPU that it means.

use crate::{DeviceConfig, NO_MEMORY_LIMIT, Policy, Priority};

/// What a container may use of one GPU, as it was asked for: on the command line, or of the node's manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Memory limit (bytes). None: the whole card.
    pub memory_bytes: Option<u64>,
    /// Share of GPU time (thousandths): the cap of `fixed`, the guarantee of `burst`, the most of `best-effort`.
    pub cores_permille: u32,
    /// The most that a `burst` container has (thousandths); of others it is `cores_permille`.
    pub cores_max_permille: u32,
    /// How it competes.
    pub policy: Policy,
    /// Its part of what nobody was promised. None: as its `cores_permille`.
    pub weight: Option<u32>,
    /// Who comes first.
    pub priority: Priority,
}

impl Quota {
    /// What of the GPU's time is always there (thousandths).
    #[must_use]
    pub fn promised_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed | Policy::Burst => self.cores_permille,
            Policy::BestEffort => 0,
        }
    }

    /// What of the GPU's time is held for it when others are admitted (thousandths): what it was promised. `fixed` of all is
    /// no promise, but all that others were not promised.
    #[must_use]
    pub fn reserved_permille(&self) -> u32 {
        match self.policy {
            Policy::Fixed if self.cores_permille >= 1000 => 0,
            Policy::Fixed | Policy::Burst | Policy::BestEffort => self.promised_permille(),
        }
    }

    /// What it means, with the defaults of [`DeviceConfig::new`] for everything that nobody is asked for.
    #[must_use]
    pub fn config(&self) -> DeviceConfig {
        let memory_limit_bytes = self.memory_bytes.unwrap_or(NO_MEMORY_LIMIT);
        DeviceConfig {
            guarantee_permille: self.promised_permille(),
            weight: self.weight.unwrap_or_else(|| self.cores_permille.max(1)),
            policy: self.policy,
            priority: self.priority,
            ..DeviceConfig::new(memory_limit_bytes, self.cores_max_permille)
        }
    }

    /// What `config` was made from.
    #[must_use]
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
            weight: (config.weight != cores_permille.max(1)).then_some(config.weight),
            priority: config.priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_what_its_configuration_was_made_from() {
        for policy in Policy::ALL {
            for (memory_bytes, cores_permille, weight, priority) in [
                (None, 1000, None, Priority::Low),
                (Some(4 << 30), 300, Some(7), Priority::Normal),
                (Some(1), 1, None, Priority::High),
            ] {
                let cores_max_permille = if policy == Policy::Burst {
                    1000
                } else {
                    cores_permille
                };
                let quota = Quota {
                    memory_bytes,
                    cores_permille,
                    cores_max_permille,
                    policy,
                    weight,
                    priority,
                };
                let config = quota.config();
                assert_eq!(Quota::of(&config), quota);
                assert!(config.is_valid());
                assert_eq!(config.guarantee_permille, quota.promised_permille());
            }
        }
    }
}
