//! The audit's actions by namespace. The form of the tables is shared with the webhook
//! (`vcuda_quota::pods::bounds`).

use std::collections::BTreeMap;

use vcuda_quota::pods::bounds::{ALL_OTHERS, Namespace};

use crate::audit::{Action, Actions};

pub(super) type NamespaceTable = vcuda_quota::pods::bounds::NamespaceTable<Action>;

/// Actions for the audit; `others` applies to namespaces without a setting.
pub(super) fn actions(tables: &BTreeMap<Namespace, NamespaceTable>, others: Action) -> Actions {
    let of_table = |(name, table): (&Namespace, &NamespaceTable)| Some((name.0.clone(), table.audit_action?));
    let mut own: BTreeMap<String, Action> = tables.iter().filter_map(of_table).collect();
    let others = own.remove(ALL_OTHERS).unwrap_or(others);
    Actions::new(own, others)
}
