//! Checks of the demo's claims, and the measured values.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::output::Output;
use crate::load::why_not_measurable;
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
    /// Reason why a check that did not pass tells nothing here; it does not count as a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measurable: Option<String>,
}

impl Check {
    fn failed(&self) -> bool {
        !self.passed && self.not_measurable.is_none()
    }
}

impl Checks {
    pub(crate) fn new(output: Output) -> Checks {
        Checks { output, checks: Vec::new() }
    }

    /// Records a check and prints its measurement.
    pub(crate) fn add(
        &mut self,
        check: &str,
        expected: impl Into<String>,
        measured: impl Into<String>,
        passed: bool,
    ) {
        self.add_unless(None, check, expected, measured, passed);
    }

    /// Records a check of a time or a share. If it does not pass on a machine with more to do than it has processors, that says
    /// nothing of vcuda.
    pub(crate) fn add_timed(
        &mut self,
        check: &str,
        expected: impl Into<String>,
        measured: impl Into<String>,
        passed: bool,
    ) {
        let why = (!passed).then(why_not_measurable).flatten();
        self.add_unless(why, check, expected, measured, passed);
    }

    fn add_unless(
        &mut self,
        not_measurable: Option<String>,
        check: &str,
        expected: impl Into<String>,
        measured: impl Into<String>,
        passed: bool,
    ) {
        let (check, expected, measured) = (check.to_owned(), expected.into(), measured.into());
        // An error is ignored, as the summary repeats the check.
        let _ = self.output.say(format_args!("   {check}: {measured}"));
        self.checks.push(Check { check, measured, expected, passed, not_measurable });
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
        if self.checks.iter().any(Check::failed) { Err(Failure::Reported) } else { Ok(()) }
    }

    fn table(&self, out: &mut io::StdoutLock<'_>) -> Result<(), Failure> {
        let is_terminal = out.is_terminal();
        writeln!(out, "\n      {:<34}{:<26}expected", "check", "measured")?;
        for Check { check, measured, expected, passed, not_measurable } in &self.checks {
            let verdict = match (passed, not_measurable, is_terminal) {
                (true, _, true) => "\x1b[32mPASS\x1b[0m",
                (true, _, false) => "PASS",
                (false, Some(_), _) => "NONE",
                (false, None, true) => "\x1b[31mFAIL\x1b[0m",
                (false, None, false) => "FAIL",
            };
            let (check, measured) = (clipped(check, 33), clipped(measured, 25));
            writeln!(out, "{verdict}  {check:<34}{measured:<26}{expected}")?;
        }
        Ok(writeln!(out, "\n{}", self.sentence())?)
    }

    /// The sum of the checks, and what to do for those that were not measured.
    fn sentence(&self) -> String {
        let all = self.checks.len();
        let failed = self.checks.iter().filter(|check| check.failed()).count();
        let unmeasured: Vec<&String> =
            self.checks.iter().filter_map(|check| check.not_measurable.as_ref()).collect();
        let sum = match (failed, unmeasured.len()) {
            (0, 0) => format!("all {all} checks passed"),
            (0, count) => format!("{} of {all} checks passed", all - count),
            _ => format!("{failed} of {all} checks failed"),
        };
        let Some(why) = unmeasured.first() else {
            return sum;
        };
        format!(
            "{sum}\n{} not measured, as this machine is busy ({why}): repeat `vcuda demo` when nothing else runs",
            unmeasured.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_told_and_no_failure() {
        let busy = || Some("load 7 on 2 processors".to_owned());
        let mut checks = Checks::new(Output::new(true));
        checks.add_unless(None, "memory", "4 GiB", "4 GiB", true);
        assert_eq!(checks.sentence(), "all 1 checks passed");
        checks.add_unless(busy(), "a share", "30 %", "20 %", false);
        assert_eq!(
            checks.sentence(),
            "1 of 2 checks passed\n1 not measured, as this machine is busy (load 7 on 2 processors): \
             repeat `vcuda demo` when nothing else runs"
        );
        assert!(checks.summary().is_ok());
        checks.add_unless(None, "memory", "refused", "allocated", false);
        assert!(
            checks.sentence().starts_with("1 of 3 checks failed\n1 not measured"),
            "{}",
            checks.sentence()
        );
        assert!(checks.summary().is_err());
    }
}
