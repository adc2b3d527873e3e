//! Action on a process of a tenant that uses a GPU and has not loaded its limits.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The action on such a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is told.
    #[default]
    Report,
    /// It is told, and the process is ended.
    Kill,
}

/// The same for each namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    own: BTreeMap<String, Action>,
    others: Action,
}

impl Actions {
    /// `own` by namespace; `others` is for those that have none, and for tenants of no namespace.
    #[must_use]
    pub fn new(own: BTreeMap<String, Action>, others: Action) -> Self {
        Self { own, others }
    }

    /// That of a namespace; empty: of none.
    #[must_use]
    pub fn of(&self, namespace: &str) -> Action {
        self.own.get(namespace).copied().unwrap_or(self.others)
    }
}
