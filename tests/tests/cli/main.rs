//! The command line, as a user has it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::process::Output;

use vcuda_tests::{Fixture, Running, soon, text};

mod apply;
mod bench;
mod closed_output;
mod completion;
mod grants_for_containers;
mod manager_down;
mod misuse;
mod names;
mod run;
mod set_for;
mod smi;
mod support_bundle;
mod transcripts;
mod usage;
mod user_examples;
mod user_limits;

/// Checks the status, that there is exactly one line on stderr, which contains `words`, and nothing on stdout.
#[track_caller]
fn is_refusal(output: &Output, status: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{}", text(output));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("vcuda: ") && stderr.contains(words), "{stderr:?} does not name {words:?}");
    assert!(output.stdout.is_empty(), "{}", text(output));
}

/// As [`is_refusal`], of `vcuda` with these arguments.
#[track_caller]
fn refused(fixture: &Fixture, args: &[&str], status: i32, words: &str) {
    is_refusal(&fixture.output(args), status, words);
}

/// Starts a tenant that sleeps until it is killed. Returns once its directory exists.
fn sleeper(fixture: &Fixture, quota: &[&str], name: &str) -> Running {
    let running = Running::start(fixture.tenant(&[quota, &["--name", name]].concat(), "sleep").arg("600"));
    let limits = fixture.runtime().join("vcuda/containers").join(name).join("limits");
    soon("the tenant's directory is there", || limits.exists());
    running
}
