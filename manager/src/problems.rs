//! Present failures of the manager's parts, for `GetStatus`: each part reports its own, and takes it back.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Present failures, by the part that reports them.
#[derive(Debug, Default)]
pub struct Problems(Mutex<BTreeMap<&'static str, String>>);

impl Problems {
    /// `part` has this problem, or none any more.
    pub fn set(&self, part: &'static str, problem: Option<String>) {
        let mut problems = self.0.lock();
        match problem {
            Some(text) => problems.insert(part, text),
            None => problems.remove(part),
        };
    }

    /// A line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let problems = self.0.lock();
        problems
            .iter()
            .map(|(part, text)| format!("{part}: {text}"))
            .collect()
    }
}
