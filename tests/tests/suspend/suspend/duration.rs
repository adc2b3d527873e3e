//! Time that a suspension and a resume take where the copies take next to none. What is left are messages and steps of the driver, so
//! the three times are of one size: a wait or a poll in one of them shows as a multiple of another. The least of all rounds are
//! compared, as a busy machine makes single ones longer.
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
        Self { method, so_far: calls_of(manager, method), each: Vec::new() }
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

/// Most that the least of one time may be of the least of another: it is up to twice.
const TIMES: f64 = 4.0;

/// The least and the median (ms).
fn figures(mut each: Vec<f64>) -> [f64; 2] {
    each.sort_by(f64::total_cmp);
    [each[0], each[each.len() / 2]]
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
    let all = [suspensions.each, resumes.each, first_calls].map(figures);
    println!("least and median of {ROUNDS} rounds of suspend, resume, first call (ms): {all:.1?}");
    let mut least = all.map(|[least, _]| least);
    least.sort_by(f64::total_cmp);
    assert!(least[2] <= TIMES * least[0], "{all:.1?}");
}
