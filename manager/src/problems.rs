//! Present failures of the manager's parts, for `GetStatus`. Each part reports and withdraws its own.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Present failures, by the part that reported them.
#[derive(Debug, Default)]
pub struct Problems(Mutex<BTreeMap<&'static str, String>>);

impl Problems {
    /// Replaces or withdraws the failure of `part`.
    pub fn set(&self, part: &'static str, problem: Option<String>) {
        let mut problems = self.0.lock();
        match problem {
            Some(text) => problems.insert(part, text),
            None => problems.remove(part),
        };
    }

    /// The failures, a line each.
    pub fn lines(&self) -> Vec<String> {
        let problems = self.0.lock();
        problems.iter().map(|(part, text)| format!("{part}: {text}")).collect()
    }
}
