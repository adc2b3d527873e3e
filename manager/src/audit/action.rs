//! What is done about a process of a container that uses a GPU and has not loaded its limits.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What is done.
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
    /// `own` by namespace; `others` is for those that have none, and for containers of no namespace.
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
