//! Present failures of the manager's parts, for `GetStatus` and `/readyz`.

use parking_lot::Mutex;
use vcuda_manager_api::v1::Problem;
use vcuda_manager_api::v1::problem::Part;

/// The reason why the configuration was not read again, until it is.
#[derive(Debug, Default)]
pub struct Refusal(Mutex<Option<String>>);

impl Refusal {
    /// Replaces or withdraws the reason.
    pub fn set(&self, why: Option<String>) {
        *self.0.lock() = why;
    }

    /// The present problem, if there is one.
    pub fn problem(&self) -> Option<Problem> {
        Some(problem(Part::Configuration, self.0.lock().as_ref()?))
    }
}

/// A failure of a part. The text begins with the name of the part.
pub fn problem(part: Part, why: &str) -> Problem {
    let name = match part {
        Part::Unspecified => "manager",
        Part::Gpus => "GPUs",
        Part::Ledger => "ledger",
        Part::Shim => "shim",
        Part::Configuration => "configuration",
        Part::Cordons => "rebuilt ledger",
    };
    Problem { part: part.into(), text: format!("{name}: {why}") }
}
