//! The program `vcuda-checkpoint`: one step on one process, or the steps that standard input asks for.
//!
//! The steps run in a thread ([`super::stepper`]). When the last has ended, or when the time of one is over, the program ends at
//! once, without the driver's exit handlers, which could wait for a call that never ends.

use std::io::{self, BufRead as _, Write as _};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use super::stepper::Stepper;
use super::{Outcome, Report, Request, Step};

/// Exit status of wrong use (`EX_USAGE`, sysexits.h).
const USAGE: u8 = 64;
/// Exit status if a thread cannot be started (`EX_OSERR`, sysexits.h).
const NO_THREAD: u8 = 71;

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
  69  no driver with checkpoints (release 570 or later)
  71  no thread could be started

With --serve each request and each report is a line of JSON:
  {\"step\":\"lock\",\"pid\":70,\"start_ticks\":1234,\"limit_ms\":2000}
It ends with 0 when standard input ends, and with 9 after a report of no answer.";

/// Move the GPU state of a process to host memory and back, one step at a time (experimental).
///
/// Needs the rights of ptrace(2) over the process. What the driver does: docs/evidence.md.
#[derive(Debug, Parser)]
#[command(name = "vcuda-checkpoint", version, after_help = STATUSES)]
struct Flags {
    /// The step.
    #[arg(required_unless_present = "serve")]
    step: Option<Step>,
    /// PID of the process, in this program's PID namespace.
    #[arg(long, value_name = "PID", required_unless_present = "serve", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Start time of the process (field 22 of /proc/PID/stat), so that no other process with its PID is touched.
    #[arg(long, value_name = "TICKS", required_unless_present = "serve")]
    start_ticks: Option<NonZeroU64>,
    /// Time for the step (ms).
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    limit_ms: u32,
    /// Path of the CUDA driver, if not the system's own.
    #[arg(long, value_name = "PATH")]
    cuda_library: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Do the steps that standard input asks for, until it ends.
    #[arg(long, conflicts_with_all = ["step", "pid", "start_ticks", "limit_ms", "json"])]
    serve: bool,
}

impl Flags {
    /// The step; `None` with `--serve`.
    fn request(&self) -> Option<Request> {
        Some(Request {
            step: self.step?,
            pid: self.pid?,
            start_ticks: self.start_ticks?,
            limit_ms: self.limit_ms,
        })
    }
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
    let request = flags.request();
    let stepper = match Stepper::start(flags.cuda_library, request.is_none()) {
        Ok(stepper) => stepper,
        Err(error) => {
            let _ = writeln!(io::stderr(), "vcuda-checkpoint: no thread: {error}");
            vcuda_driver_open::end_at_once(NO_THREAD)
        }
    };
    let Some(request) = request else { vcuda_driver_open::end_at_once(serve(&stepper)) };
    let report = stepper.report(&request);
    if flags.json {
        print_json(&report);
    } else {
        print(&report);
    }
    vcuda_driver_open::end_at_once(report.outcome.status())
}

/// Does what standard input asks for. Returns the exit status.
fn serve(stepper: &Stepper) -> u8 {
    for line in io::stdin().lock().lines() {
        let request = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::from));
        let request: Request = match request {
            Ok(request) => request,
            Err(error) => {
                let _ = writeln!(io::stderr(), "vcuda-checkpoint: a request cannot be read: {error}");
                return USAGE;
            }
        };
        let report = stepper.report(&request);
        print_json(&report);
        if report.outcome == Outcome::NoAnswer {
            return report.outcome.status();
        }
    }
    Outcome::Done.status()
}

/// Prints a report as a line of JSON. A failure to print does not change the exit status.
fn print_json(report: &Report) {
    let text = serde_json::to_string(report).unwrap_or_default();
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a report for people, as [`print_json`].
fn print(report: &Report) {
    let (outcome, pid) = (report.outcome, report.pid);
    let error = report.error.as_deref().map(|error| format!(" ({error})"));
    let _ = match (outcome, report.state) {
        (Outcome::Done, Some(state)) => writeln!(io::stdout(), "{}", format!("{state:?}").to_lowercase()),
        (Outcome::Done, None) => writeln!(io::stdout(), "done"),
        _ => {
            writeln!(io::stderr(), "vcuda-checkpoint: process {pid}: {outcome}{}", error.unwrap_or_default())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_each_exit_status() {
        let named: Vec<u8> =
            STATUSES.lines().skip(1).map_while(|line| line.split_whitespace().next()?.parse().ok()).collect();
        for outcome in Outcome::ALL {
            let count = named.iter().filter(|status| **status == outcome.status()).count();
            assert_eq!(count, 1, "{outcome:?}");
        }
        assert_eq!(named.len(), Outcome::ALL.len() + 2);
    }
}
