//! Time that a suspension and a resume take where the copies take next to none. It is printed, and nothing is asserted of it:
//! it depends on the machine.
#![expect(clippy::disallowed_methods, reason = "times, by the wall clock")]

use std::time::{Duration, Instant};

use vcuda_tests::{Door, Fixture, Manager};

use super::{Program, done, suspendable};

const ROUNDS: u32 = 20;
/// Copies of 1 TB/s.
const FAST: &str = "context_bytes = \"8MiB\"\n[driver]\ncheckpoint_fixed_ns = 0\ncheckpoint_bytes_per_us = 1_000_000\n\
                    restore_bytes_per_us = 1_000_000\n";

/// Number of calls of a method of the API, and their mean duration (s), from the manager's metrics.
fn calls_of(manager: &Manager<'_>, method: &str) -> (f64, f64) {
    let metrics = manager.metrics();
    let value = |part: &str| -> f64 {
        let series = format!("vcuda_api_duration_seconds_{part}{{");
        let named = format!("method=\"Grants/{method}\"");
        let mut lines = metrics.lines().filter(|line| line.starts_with(&series));
        let line = lines.find(|line| line.contains(&named)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (value("count"), value("sum") / value("count"))
}

#[test]
fn suspend_resume_and_first_call_without_copies() {
    let fixture = Fixture::with_config(FAST);
    let manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let mut first_calls = Duration::ZERO;
    for _ in 0..ROUNDS {
        done(&fixture, "suspend", "a", "a-1", "suspended");
        done(&fixture, "resume", "a", "a-1", "running");
        done(&fixture, "suspend", "a", "a-1", "suspended");
        let began = Instant::now();
        assert_eq!(program.ask("stream-query"), "0 intact");
        first_calls += began.elapsed();
    }
    let (suspensions, suspend_s) = calls_of(&manager, "Suspend");
    let (resumes, resume_s) = calls_of(&manager, "Resume");
    assert_eq!((suspensions, resumes), (f64::from(2 * ROUNDS), f64::from(ROUNDS)));
    println!(
        "means of {ROUNDS} rounds: suspend {:.1} ms, resume {:.1} ms, first call {:.1} ms",
        suspend_s * 1e3,
        resume_s * 1e3,
        (first_calls / ROUNDS).as_secs_f64() * 1e3
    );
}
