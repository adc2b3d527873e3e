//! The program `vcuda-checkpoint`: one step on one process.
//!
//! The step runs in a thread. When it ends, or when its time is over, the program prints what came of it and ends at once,
//! without the driver's exit handlers, which could wait for a call that never ends.

use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use nix::unistd::Pid;
use serde::Serialize;
use vcuda_region::clock;

use super::driver::{Answer, Target, take};
use super::{Outcome, ProcessState, Step};

/// Exit status of wrong use (`EX_USAGE`, sysexits.h).
const USAGE: u8 = 64;
/// Time for the driver to say that a lock did not come in time.
const GRACE: Duration = Duration::from_secs(2);

const STATUSES: &str = "\
Exit status:
   0  done
   2  the lock did not come in time; nothing has changed
   3  the process has memory that the driver cannot move; it stays locked
   4  no room: after a restore the process is lost; after a checkpoint it stays locked
   5  the driver has given the process up
   6  the process is in another state than the step needs
   7  no process has this PID and start time, or it has ended
   8  the process has not started CUDA
   9  no answer in time; what came of the step is not known
  10  the driver refused with another error
  64  wrong use
  69  no driver with checkpoints (release 570 or later)";

/// Move the GPU state of a process to host memory and back, one step at a time (experimental).
///
/// Needs the rights of ptrace(2) over the process. What the driver does: docs/gpu-results.md.
#[derive(Debug, Parser)]
#[command(name = "vcuda-checkpoint", version, after_help = STATUSES)]
struct Flags {
    /// The step.
    step: Step,
    /// PID of the process, in this program's PID namespace.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Start time of the process (field 22 of /proc/PID/stat), so that no other process with its PID is touched.
    #[arg(long, value_name = "TICKS")]
    start_ticks: NonZeroU64,
    /// Time for the step (ms).
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    limit_ms: u32,
    /// Path of the CUDA driver, if not the system's own.
    #[arg(long, value_name = "PATH")]
    cuda_library: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What the program prints with `--json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    step: Step,
    pid: i32,
    start_ticks: NonZeroU64,
    outcome: Outcome,
    /// State of the process afterwards, if the driver told it.
    state: Option<ProcessState>,
    /// The driver's error.
    error: Option<&'a str>,
    /// Duration of the step and of the driver's start.
    took_ms: u128,
}

/// Main function of the program. It returns only for wrong use.
pub fn main() -> ExitCode {
    match Flags::try_parse() {
        Ok(flags) => run(flags),
        Err(error) => {
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(USAGE),
            }
        }
    }
}

fn run(flags: Flags) -> ! {
    let begun_ns = clock::now_ns();
    let limit = Duration::from_millis(flags.limit_ms.into());
    let target = Target {
        pid: Pid::from_raw(flags.pid),
        start_ticks: flags.start_ticks.get(),
    };
    let (answers, answer) = mpsc::channel();
    let (step, library) = (flags.step, flags.cuda_library.clone());
    let started = thread::Builder::new().spawn(move || {
        // If the time is over, this fails.
        let _ = answers.send(take(step, target, limit, library.as_deref()));
    });
    let answer = match started {
        Ok(_) => answer
            .recv_timeout(if step == Step::Lock { limit + GRACE } else { limit })
            .unwrap_or_else(|_| Answer::of(Outcome::NoAnswer)),
        Err(error) => Answer {
            error: Some(format!("no thread: {error}")),
            ..Answer::of(Outcome::Refused)
        },
    };
    let took = Duration::from_nanos(clock::now_ns().saturating_sub(begun_ns));
    print(&flags, &answer, took);
    vcuda_driver_open::end_at_once(answer.outcome.status())
}

/// Prints the result; a failure to print does not change the exit status.
fn print(flags: &Flags, answer: &Answer, took: Duration) {
    if flags.json {
        let report = Report {
            step: flags.step,
            pid: flags.pid,
            start_ticks: flags.start_ticks,
            outcome: answer.outcome,
            state: answer.state,
            error: answer.error.as_deref(),
            took_ms: took.as_millis(),
        };
        let text = serde_json::to_string(&report).unwrap_or_default();
        let _ = writeln!(io::stdout(), "{text}");
        return;
    }
    let (outcome, pid) = (answer.outcome, flags.pid);
    let error = answer.error.as_deref().map(|error| format!(" ({error})"));
    let _ = match (outcome, answer.state) {
        (Outcome::Done, Some(state)) => writeln!(io::stdout(), "{}", format!("{state:?}").to_lowercase()),
        (Outcome::Done, None) => writeln!(io::stdout(), "done"),
        _ => writeln!(
            io::stderr(),
            "vcuda-checkpoint: process {pid}: {outcome}{}",
            error.unwrap_or_default()
        ),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_each_exit_status() {
        let named: Vec<u8> = STATUSES
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        for outcome in Outcome::ALL {
            let count = named.iter().filter(|status| **status == outcome.status()).count();
            assert_eq!(count, 1, "{outcome:?}");
        }
        assert_eq!(named.len(), Outcome::ALL.len() + 1);
    }
}
