//! Bounds on the amounts that pods of a namespace may choose by annotations and parameters of claims. A user who may create a
//! pod may annotate it, so the operator sets a bound for each namespace. The admission webhook refuses what is outside
//! ([`Bounds::check_change`]), and the manager decides ([`Bounds::check`]). Grants without a namespace (`vcuda grant`) come
//! from users who may open the socket, and are not bounded.

use std::collections::BTreeMap;

use crate::{CoreShare, Policy, Priority, Quota, QuotaChange};

mod table;

pub use table::{Namespace, NamespaceTable, bounds};

/// Key of the bound for namespaces that have none of their own.
pub const ALL_OTHERS: &str = "*";

/// Bound on the amounts that pods of a namespace may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Allowed policies.
    pub policies: Vec<Policy>,
    /// Highest allowed priority.
    pub priority_max: Priority,
    /// Upper limit for the maximum GPU time of `burst` and `best-effort` (thousandths).
    pub cores_max_permille: u32,
    /// Greatest allowed weight.
    pub weight_max: u32,
    /// Whether they may be suspended.
    pub suspendable: bool,
}

impl Default for Bound {
    fn default() -> Self {
        Self {
            policies: Policy::ALL.to_vec(),
            priority_max: Priority::Normal,
            cores_max_permille: 1000,
            // The default weight of a tenant that is promised 100 %.
            weight_max: 1000,
            // Experimental: docs/suspend.md.
            suspendable: false,
        }
    }
}

/// The amounts that a caller chose. All others are defaults, which follow the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The policy.
    pub policy: bool,
    /// The priority.
    pub priority: bool,
    /// The maximum GPU time of `burst`.
    pub cores_max: bool,
}

impl Bound {
    /// `amounts` with their defaults within the bound. Chosen amounts stay as they are.
    fn clamped(&self, amounts: &Quota, chosen: Chosen) -> Quota {
        let mut amounts = *amounts;
        if !chosen.priority {
            amounts.priority = amounts.priority.min(self.priority_max);
        }
        if !chosen.policy
            && !self.policies.contains(&amounts.policy)
            && let Some(first) = self.policies.first()
        {
            amounts.policy = *first;
            amounts.cores_max_permille = match first {
                Policy::Burst => CoreShare::WHOLE.0,
                Policy::Fixed | Policy::BestEffort => amounts.cores_permille,
            };
        }
        if !chosen.cores_max && amounts.policy == Policy::Burst {
            let most = self.cores_max_permille.max(amounts.cores_permille);
            amounts.cores_max_permille = amounts.cores_max_permille.min(most);
        }
        amounts
    }
}

/// The bounds of all namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    own: BTreeMap<String, Bound>,
    others: Bound,
}

impl Bounds {
    /// The bounds by namespace; [`ALL_OTHERS`] is for namespaces without one.
    pub fn new(mut own: BTreeMap<String, Bound>) -> Self {
        let others = own.remove(ALL_OTHERS).unwrap_or_default();
        Self { own, others }
    }

    /// The bound of a namespace, and the key that it is configured under.
    fn bound_of<'a>(&'a self, namespace: &'a str) -> (&'a str, &'a Bound) {
        match self.own.get(namespace) {
            Some(bound) => (namespace, bound),
            None => (ALL_OTHERS, &self.others),
        }
    }

    /// `amounts` of a tenant of `namespace` with defaults within its bound: a default policy becomes the first allowed one,
    /// a default priority or maximum the highest.
    pub fn clamped(&self, namespace: &str, amounts: &Quota, chosen: Chosen) -> Quota {
        match namespace {
            "" => *amounts,
            _ => self.bound_of(namespace).1.clamped(amounts, chosen),
        }
    }

    /// Checks that tenants of `namespace` may have these amounts.
    pub fn check(&self, namespace: &str, amounts: &Quota) -> Result<(), String> {
        let all = QuotaChange {
            policy: Some(amounts.policy),
            priority: Some(amounts.priority),
            cores_max_permille: (amounts.policy != Policy::Fixed).then_some(amounts.cores_max_permille),
            weight: amounts.weight,
            ..QuotaChange::default()
        };
        self.check_change(namespace, &all, amounts.cores_permille)
    }

    /// Checks that tenants of `namespace` may be suspended.
    pub fn check_suspendable(&self, namespace: &str) -> Result<(), String> {
        let (place, bound) = self.bound_of(namespace);
        if namespace.is_empty() || bound.suspendable {
            return Ok(());
        }
        Err(format!(
            "suspendable true: pods of namespace {namespace} may not be suspended; the bound is namespaces.\"{place}\" in the \
             manager's configuration"
        ))
    }

    /// Checks what tenants of `namespace` chose, who are promised `cores_permille` of GPU time. What they left out is a default,
    /// and defaults are always within the bound.
    pub fn check_change(
        &self,
        namespace: &str,
        change: &QuotaChange,
        cores_permille: u32,
    ) -> Result<(), String> {
        if namespace.is_empty() {
            return Ok(());
        }
        if change.suspendable == Some(true) {
            self.check_suspendable(namespace)?;
        }
        let (place, bound) = self.bound_of(namespace);
        let denied = |key: &str, value: String, most: String| {
            Err(format!(
                "{key} {value}: pods of namespace {namespace} may have {most}; the bound is namespaces.\"{place}\" in the \
                 manager's configuration"
            ))
        };
        let at_most = |most: String| format!("at most {most}");
        let share = |permille| CoreShare(permille).to_string();
        match *change {
            QuotaChange { policy: Some(policy), .. } if !bound.policies.contains(&policy) => {
                let allowed: Vec<String> = bound.policies.iter().map(ToString::to_string).collect();
                denied("policy", policy.to_string(), allowed.join(" or "))
            }
            QuotaChange { priority: Some(priority), .. } if priority > bound.priority_max => {
                denied("priority", priority.to_string(), at_most(bound.priority_max.to_string()))
            }
            QuotaChange { cores_max_permille: Some(most), .. }
                if most > bound.cores_max_permille.max(cores_permille) =>
            {
                denied("cores-max", share(most), at_most(share(bound.cores_max_permille)))
            }
            QuotaChange { weight: Some(weight), .. } if weight > bound.weight_max => {
                denied("weight", weight.to_string(), at_most(bound.weight_max.to_string()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(policy: Policy, priority: Priority, most: u32, weight: Option<u32>) -> Quota {
        Quota {
            memory_bytes: Some(1 << 30),
            cores_permille: 300,
            cores_max_permille: most,
            policy,
            priority,
            weight,
        }
    }

    fn bounds() -> Bounds {
        let strict = Bound {
            policies: vec![Policy::Fixed, Policy::Burst],
            priority_max: Priority::Low,
            cores_max_permille: 500,
            weight_max: 300,
            suspendable: false,
        };
        let free =
            Bound { priority_max: Priority::High, weight_max: 10_000, suspendable: true, ..Bound::default() };
        Bounds::new([("*".to_owned(), strict), ("ops".to_owned(), free)].into())
    }

    #[test]
    fn each_bound_holds_and_names_its_place() {
        for (amounts, said) in [
            (
                amounts(Policy::BestEffort, Priority::Low, 300, None),
                "policy best-effort: pods of namespace web may have fixed or burst",
            ),
            (
                amounts(Policy::Fixed, Priority::Normal, 300, None),
                "priority normal: pods of namespace web may have at most low",
            ),
            (
                amounts(Policy::Burst, Priority::Low, 501, None),
                "cores-max 50.1 %: pods of namespace web may have at most 50 %",
            ),
            (
                amounts(Policy::Burst, Priority::Low, 500, Some(301)),
                "weight 301: pods of namespace web may have at most 300",
            ),
        ] {
            let refusal = bounds().check("web", &amounts).unwrap_err();
            assert!(refusal.starts_with(said), "{refusal}");
            assert!(refusal.contains("namespaces.\"*\""), "{refusal}");
            bounds().check("ops", &amounts).unwrap();
            // Users of the socket own the node, and are not bounded.
            bounds().check("", &amounts).unwrap();
        }
        bounds().check("web", &amounts(Policy::Burst, Priority::Low, 500, Some(300))).unwrap();
    }

    #[test]
    fn only_where_the_operator_allows_it_a_pod_may_be_suspended() {
        let with = |suspendable| QuotaChange { suspendable, ..QuotaChange::default() };
        let refusal = bounds().check_change("web", &with(Some(true)), 300).unwrap_err();
        assert!(
            refusal.starts_with("suspendable true: pods of namespace web may not be suspended")
                && refusal.contains("namespaces.\"*\""),
            "{refusal}"
        );
        assert!(Bounds::default().check_suspendable("web").is_err());
        for (namespace, suspendable) in
            [("web", Some(false)), ("web", None), ("ops", Some(true)), ("", Some(true))]
        {
            bounds().check_change(namespace, &with(suspendable), 300).unwrap();
        }
    }

    #[test]
    fn a_default_is_clamped_and_a_wish_is_refused() {
        const NOTHING: Chosen = Chosen { policy: false, priority: false, cores_max: false };
        const ALL: Chosen = Chosen { policy: true, priority: true, cores_max: true };
        let burst_only = Bound {
            policies: vec![Policy::Burst, Policy::BestEffort],
            cores_max_permille: 500,
            ..Bound::default()
        };
        let bounds = Bounds { own: [("burst".to_owned(), burst_only)].into(), ..bounds() };
        let default = amounts(Policy::Fixed, Priority::Normal, 300, None);
        let low = bounds.clamped("web", &default, NOTHING);
        assert_eq!(low, amounts(Policy::Fixed, Priority::Low, 300, None));
        bounds.check("web", &low).unwrap();
        let burst = bounds.clamped("burst", &default, NOTHING);
        assert_eq!(burst, amounts(Policy::Burst, Priority::Normal, 500, None));
        bounds.check("burst", &burst).unwrap();
        // A tenant may always use the share that it was promised.
        let large = Quota { cores_permille: 700, ..amounts(Policy::Burst, Priority::Normal, 1000, None) };
        assert_eq!(bounds.clamped("burst", &large, NOTHING).cores_max_permille, 700);
        for namespace in ["web", "burst"] {
            assert_eq!(bounds.clamped(namespace, &default, ALL), default);
            bounds.check(namespace, &default).unwrap_err();
        }
        assert_eq!(bounds.clamped("", &default, NOTHING), default);
    }

    #[test]
    fn without_configuration_a_pod_may_borrow_and_not_outrank() {
        let none = Bounds::default();
        none.check("web", &amounts(Policy::Burst, Priority::Normal, 1000, Some(1000))).unwrap();
        let refusal = none.check("web", &amounts(Policy::Fixed, Priority::High, 300, None)).unwrap_err();
        assert!(refusal.contains("at most normal"), "{refusal}");
    }

    #[test]
    fn what_was_left_out_is_within_the_bound() {
        let check = |change: QuotaChange, cores| bounds().check_change("web", &change, cores);
        check(QuotaChange::default(), 1000).unwrap();
        let most = |cores_max_permille| QuotaChange {
            policy: Some(Policy::Burst),
            cores_max_permille,
            ..QuotaChange::default()
        };
        check(most(None), 300).unwrap();
        check(most(Some(700)), 700).unwrap();
        check(most(Some(700)), 600).unwrap_err();
    }
}
