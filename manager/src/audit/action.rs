//! Action on a process of a tenant that uses a GPU and has not loaded its limits.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The configured action on such a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    #[default]
    Report,
    Kill,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    own: BTreeMap<String, Action>,
    others: Action,
}

impl Actions {
    /// Actions for the namespaces in `own`; `others` applies to all others and to tenants without a namespace.
    pub(crate) fn new(own: BTreeMap<String, Action>, others: Action) -> Self {
        Self { own, others }
    }

    /// The action for a namespace; an empty name stands for none.
    pub(crate) fn for_namespace(&self, namespace: &str) -> Action {
        self.own.get(namespace).copied().unwrap_or(self.others)
    }
}
