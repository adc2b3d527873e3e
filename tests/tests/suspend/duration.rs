//! Time that a suspension and a resume take where the copies take next to none. It is printed, and nothing is asserted of it:
//! it depends on the machine, and on what else runs there.
#![expect(clippy::disallowed_methods, reason = "times, by the wall clock")]

use std::time::Instant;

use vcuda_tests::{Door, Fixture, Manager};

use super::{Program, done, suspendable};

const ROUNDS: u32 = 20;
/// Copies of 1 TB/s.
const FAST: &str = "context_bytes = \"8MiB\"\n[driver]\ncheckpoint_fixed_ns = 0\ncheckpoint_bytes_per_us = 1_000_000\n\
                    restore_bytes_per_us = 1_000_000\n";

/// Number of calls of a method of the API, and their duration together (ms), from the manager's metrics.
fn calls_of(manager: &Manager<'_>, method: &str) -> (f64, f64) {
    let metrics = manager.metrics();
    let value = |part: &str| -> f64 {
        let series = format!("vcuda_api_duration_seconds_{part}{{");
        let named = format!("method=\"Grants/{method}\"");
        let mut lines = metrics.lines().filter(|line| line.starts_with(&series));
        let line = lines.find(|line| line.contains(&named)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (value("count"), value("sum") * 1e3)
}

/// Durations of the calls of a method (ms).
struct Calls {
    method: &'static str,
    so_far: (f64, f64),
    each: Vec<f64>,
}

impl Calls {
    fn of(manager: &Manager<'_>, method: &'static str) -> Self {
        Self {
            method,
            so_far: calls_of(manager, method),
            each: Vec::new(),
        }
    }

    /// Notes the one call since the last look.
    #[track_caller]
    fn note(&mut self, manager: &Manager<'_>) {
        let now = calls_of(manager, self.method);
        assert_eq!(now.0, self.so_far.0 + 1.0, "{}", self.method);
        self.each.push(now.1 - self.so_far.1);
        self.so_far = now;
    }
}

/// The least and the median.
fn figures(mut each: Vec<f64>) -> String {
    each.sort_by(f64::total_cmp);
    format!("{:.1} and {:.1} ms", each[0], each[each.len() / 2])
}

#[test]
fn suspend_resume_and_first_call_without_copies() {
    let fixture = Fixture::with_config(FAST);
    let manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    // The process may just have started, and has up to some seconds to register.
    done(&fixture, "suspend", "a", "a-1", "suspended");
    done(&fixture, "resume", "a", "a-1", "running");
    let mut suspensions = Calls::of(&manager, "Suspend");
    let mut resumes = Calls::of(&manager, "Resume");
    let mut first_calls = Vec::new();
    for _ in 0..ROUNDS {
        done(&fixture, "suspend", "a", "a-1", "suspended");
        suspensions.note(&manager);
        done(&fixture, "resume", "a", "a-1", "running");
        resumes.note(&manager);
        done(&fixture, "suspend", "a", "a-1", "suspended");
        suspensions.note(&manager);
        let began = Instant::now();
        assert_eq!(program.ask("stream-query"), "0 intact");
        first_calls.push(began.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "least and median of {ROUNDS} rounds: suspend {}, resume {}, first call {}",
        figures(suspensions.each),
        figures(resumes.each),
        figures(first_calls)
    );
}
