//! Checks of the demo's claims, and the measured values.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::output::Output;
use vcuda_cli::failure::Failure;
use vcuda_cli::render::clipped;

/// All checks so far, in the order of the scenarios.
#[derive(Debug)]
pub(crate) struct Checks {
    output: Output,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    check: String,
    measured: String,
    expected: String,
    passed: bool,
}

impl Checks {
    pub(crate) fn new(output: Output) -> Checks {
        Checks {
            output,
            checks: Vec::new(),
        }
    }

    /// Records a check and prints its measurement.
    pub(crate) fn add(
        &mut self,
        check: &str,
        expected: impl Into<String>,
        measured: impl Into<String>,
        passed: bool,
    ) {
        let (check, expected, measured) = (check.to_owned(), expected.into(), measured.into());
        // An error is ignored, as the summary repeats the check.
        let _ = self.output.say(format_args!("   {check}: {measured}"));
        self.checks.push(Check {
            check,
            measured,
            expected,
            passed,
        });
    }

    /// Prints a line per check, or JSON, on stdout. Fails if a check failed.
    pub(crate) fn summary(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.output.is_json() {
            #[derive(Serialize)]
            struct Document<'a> {
                checks: &'a [Check],
            }
            serde_json::to_writer_pretty(&mut out, &Document { checks: &self.checks })?;
            writeln!(out)?;
        } else {
            self.table(&mut out)?;
        }
        if self.checks.iter().all(|check| check.passed) {
            Ok(())
        } else {
            Err(Failure::Reported)
        }
    }

    fn table(&self, out: &mut io::StdoutLock<'_>) -> Result<(), Failure> {
        let is_terminal = out.is_terminal();
        writeln!(out, "\n      {:<34}{:<26}expected", "check", "measured")?;
        for Check {
            check,
            measured,
            expected,
            passed,
        } in &self.checks
        {
            let verdict = match (passed, is_terminal) {
                (true, true) => "\x1b[32mPASS\x1b[0m",
                (false, true) => "\x1b[31mFAIL\x1b[0m",
                (true, false) => "PASS",
                (false, false) => "FAIL",
            };
            let (check, measured) = (clipped(check, 33), clipped(measured, 25));
            writeln!(out, "{verdict}  {check:<34}{measured:<26}{expected}")?;
        }
        let failures = self.checks.iter().filter(|check| !check.passed).count();
        match failures {
            0 => writeln!(out, "\nall {} checks passed", self.checks.len())?,
            _ => writeln!(out, "\n{failures} of {} checks failed", self.checks.len())?,
        }
        Ok(())
    }
}
