//! Tables of namespaces. Their form is shared with the webhook (`vcuda_quota::pods::bounds`), but for the audit's actions.

use std::collections::BTreeMap;

use serde::Deserialize;
use vcuda_quota::pods::bounds::{ALL_OTHERS, Bounds, Namespace, NamespaceTable, bounds};

use crate::audit::{Action, Actions};

/// What holds for the pods of each namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<Namespace, NamespaceTable<Action>>")]
pub struct Namespaces {
    /// Bounds on the amounts that its pods may choose.
    pub bounds: Bounds,
    actions: BTreeMap<String, Action>,
}

impl From<BTreeMap<Namespace, NamespaceTable<Action>>> for Namespaces {
    fn from(tables: BTreeMap<Namespace, NamespaceTable<Action>>) -> Self {
        let action = |(name, table): (&Namespace, &NamespaceTable<Action>)| {
            Some((name.0.clone(), table.audit_action?))
        };
        Self { actions: tables.iter().filter_map(action).collect(), bounds: bounds(tables) }
    }
}

impl Namespaces {
    /// Actions for the audit; `others` applies to namespaces without a setting.
    pub(super) fn actions(&self, others: Action) -> Actions {
        let mut own = self.actions.clone();
        let others = own.remove(ALL_OTHERS).unwrap_or(others);
        Actions::new(own, others)
    }
}
