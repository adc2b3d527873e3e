//! Conversion between quotas and the API's messages ([`v1::Amounts`]).

use thiserror::Error;
use vcuda_quota::{Policy, Priority, Quota, WEIGHTS};

use crate::v1;

/// An amount outside the range of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("amounts.{field} {value}: {remedy}")]
pub struct InvalidAmount {
    field: &'static str,
    value: i128,
    remedy: &'static str,
}

impl From<v1::Policy> for Policy {
    fn from(policy: v1::Policy) -> Self {
        match policy {
            v1::Policy::Unspecified | v1::Policy::Fixed => Self::Fixed,
            v1::Policy::Burst => Self::Burst,
            v1::Policy::BestEffort => Self::BestEffort,
        }
    }
}

impl From<Policy> for v1::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fixed => Self::Fixed,
            Policy::Burst => Self::Burst,
            Policy::BestEffort => Self::BestEffort,
        }
    }
}

impl From<v1::Priority> for Priority {
    fn from(priority: v1::Priority) -> Self {
        match priority {
            v1::Priority::Low => Self::Low,
            v1::Priority::Unspecified | v1::Priority::Normal => Self::Normal,
            v1::Priority::High => Self::High,
        }
    }
}

impl From<Priority> for v1::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => Self::Low,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}

impl From<&Quota> for v1::Amounts {
    fn from(quota: &Quota) -> Self {
        Self {
            memory_bytes: quota.memory_bytes.unwrap_or(0),
            cores_permille: quota.cores_permille,
            cores_max_permille: quota.cores_max_permille,
            policy: v1::Policy::from(quota.policy).into(),
            priority: v1::Priority::from(quota.priority).into(),
            weight: quota.weight.unwrap_or(0),
        }
    }
}

impl From<&v1::Amounts> for Quota {
    /// The quota in an answer of the manager; manager.proto says what zero means. Nothing is checked, and a policy or
    /// priority of a later release is read as the default.
    fn from(amounts: &v1::Amounts) -> Self {
        let share = |permille| if permille == 0 { 1000 } else { permille };
        let policy = amounts.policy().into();
        let cores_permille = share(amounts.cores_permille);
        Self {
            memory_bytes: (amounts.memory_bytes != 0).then_some(amounts.memory_bytes),
            cores_permille,
            cores_max_permille: match policy {
                Policy::Burst => share(amounts.cores_max_permille),
                Policy::Fixed | Policy::BestEffort => cores_permille,
            },
            policy,
            priority: amounts.priority().into(),
            weight: (amounts.weight != 0).then_some(amounts.weight),
        }
    }
}

impl v1::Amounts {
    /// The quota in a request, with every value checked.
    pub fn checked(&self) -> Result<Quota, InvalidAmount> {
        let wrong = |field, value: i128, remedy| Err(InvalidAmount { field, value, remedy });
        let quota = Quota::from(self);
        let (cores, cores_max) = (quota.cores_permille, self.cores_max_permille);
        if v1::Policy::try_from(self.policy).is_err() {
            return wrong("policy", self.policy.into(), "there is none");
        }
        if v1::Priority::try_from(self.priority).is_err() {
            return wrong("priority", self.priority.into(), "there is none");
        }
        if !(1..=1000).contains(&cores) {
            return wrong("cores_permille", cores.into(), "give 1 to 1000, or 0 for 1000");
        }
        if quota.policy != Policy::Burst && cores_max != 0 && cores_max != cores {
            let remedy = "give 0 or cores_permille; more than that is for the policy burst";
            return wrong("cores_max_permille", cores_max.into(), remedy);
        }
        if !(cores..=1000).contains(&quota.cores_max_permille) {
            let remedy = "give cores_permille to 1000, or 0 for 1000";
            return wrong("cores_max_permille", cores_max.into(), remedy);
        }
        if quota.weight.is_some_and(|weight| !WEIGHTS.contains(&weight)) {
            return wrong("weight", self.weight.into(), "give 1 to 10000, or 0 for cores_permille");
        }
        if self.memory_bytes == u64::MAX {
            return wrong("memory_bytes", self.memory_bytes.into(), "give less than 2^64 - 1, or 0 for all");
        }
        Ok(quota)
    }
}

#[cfg(test)]
mod tests {
    use vcuda_quota::QuotaChange;

    use super::*;

    #[test]
    fn a_quota_survives_the_api() {
        for policy in Policy::ALL {
            for priority in Priority::ALL {
                for (memory_bytes, cores, weight) in [(None, 1000, None), (Some(4 << 30), 300, Some(7))] {
                    let change = QuotaChange {
                        memory_bytes,
                        cores_permille: Some(cores),
                        cores_max_permille: (policy == Policy::Burst).then_some(cores.max(900)),
                        policy: Some(policy),
                        priority: Some(priority),
                        weight,
                        suspendable: None,
                    };
                    let quota = Quota::UNLIMITED.merge(&change).unwrap();
                    let amounts = v1::Amounts::from(&quota);
                    assert_eq!(Quota::from(&amounts), quota);
                    assert_eq!(amounts.checked(), Ok(quota));
                }
            }
        }
    }

    #[test]
    fn zeros_are_the_defaults_that_the_proto_says() {
        assert_eq!(v1::Amounts::default().checked(), Ok(Quota::UNLIMITED));
        let burst =
            v1::Amounts { cores_permille: 300, policy: v1::Policy::Burst.into(), ..v1::Amounts::default() };
        assert_eq!(burst.checked().unwrap().cores_max_permille, 1000);
    }

    #[test]
    fn what_cannot_be_is_named_with_its_range() {
        let with = |change: fn(&mut v1::Amounts)| {
            let mut amounts = v1::Amounts::default();
            change(&mut amounts);
            amounts
        };
        for (amounts, said) in [
            (with(|a| a.cores_permille = 1001), "cores_permille 1001: give 1 to 1000, or 0 for 1000"),
            (
                with(|a| a.cores_max_permille = 999),
                "cores_max_permille 999: give 0 or cores_permille; more than that is for the policy burst",
            ),
            (
                with(|a| {
                    a.policy = v1::Policy::Burst.into();
                    a.cores_permille = 500;
                    a.cores_max_permille = 400;
                }),
                "cores_max_permille 400: give cores_permille to 1000, or 0 for 1000",
            ),
            (with(|a| a.weight = 10_001), "weight 10001: give 1 to 10000, or 0 for cores_permille"),
            (with(|a| a.policy = 77), "policy 77: there is none"),
            (with(|a| a.priority = -1), "priority -1: there is none"),
            (
                with(|a| a.memory_bytes = u64::MAX),
                "memory_bytes 18446744073709551615: give less than 2^64 - 1, or 0 for all",
            ),
        ] {
            assert_eq!(amounts.checked().unwrap_err().to_string(), format!("amounts.{said}"));
        }
    }
}
