//! What the demo claims, and what was measured.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;
use crate::render::clipped;

/// All checks so far, in the order of the acts.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    claim: String,
    expected: String,
    measured: String,
    is_met: bool,
}

impl Checks {
    /// Notes one check and says what was measured.
    pub(crate) fn add(
        &mut self,
        claim: &str,
        expected: impl Into<String>,
        measured: impl Into<String>,
        is_met: bool,
    ) {
        let (expected, measured) = (expected.into(), measured.into());
        // The summary says it again, and there a closed stdout is an error.
        let _ = writeln!(io::stdout(), "   {claim}: {measured}");
        self.checks.push(Check {
            claim: claim.to_owned(),
            expected,
            measured,
            is_met,
        });
    }

    /// A line per check on stdout; an error if one failed.
    pub(crate) fn summary(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let is_terminal = out.is_terminal();
        writeln!(out, "\n      {:<34}{:<26}expected", "check", "measured")?;
        for check in &self.checks {
            let verdict = match (check.is_met, is_terminal) {
                (true, true) => "\x1b[32mPASS\x1b[0m",
                (false, true) => "\x1b[31mFAIL\x1b[0m",
                (true, false) => "PASS",
                (false, false) => "FAIL",
            };
            let Check {
                claim,
                expected,
                measured,
                ..
            } = check;
            let (claim, measured) = (clipped(claim, 33), clipped(measured, 25));
            writeln!(out, "{verdict}  {claim:<34}{measured:<26}{expected}")?;
        }
        let failures = self.checks.iter().filter(|check| !check.is_met).count();
        if failures == 0 {
            writeln!(out, "\nall {} checks passed", self.checks.len())?;
            Ok(())
        } else {
            writeln!(out, "\n{failures} of {} checks failed", self.checks.len())?;
            Err(Failure::Reported)
        }
    }
}
