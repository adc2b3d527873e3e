//! The thread of `vcuda-checkpoint` that calls the driver, and the time limit of each of its steps.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::unistd::Pid;
use vcuda_region::clock;

use super::driver::{Answer, Driver, Target};
use super::{Outcome, Report, Request, Step};

/// Time for the driver to say that a lock did not come in time.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Stepper {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
}

impl Stepper {
    /// Starts the thread. If it `begins_early`, it starts the driver before the first request.
    pub(super) fn start(library: Option<PathBuf>, begins_early: bool) -> io::Result<Self> {
        let (requests, requested) = channel();
        let (answered, answers) = channel();
        thread::Builder::new().spawn(move || {
            let mut driver = Driver::new(library);
            if begins_early {
                driver.start();
            }
            for request in requested {
                // After the time is over, this fails.
                let _ = answered.send(take(&mut driver, &request));
            }
        })?;
        Ok(Self { requests, answers })
    }

    /// Does a step. After one without an answer the thread may hang in the driver: the program must end.
    pub(super) fn report(&self, request: &Request) -> Report {
        let begun_ns = clock::now_ns();
        let limit = limit(request) + if request.step == Step::Lock { GRACE } else { Duration::ZERO };
        // If the thread is gone, there is no answer either.
        let _ = self.requests.send(*request);
        let answer = self.answers.recv_timeout(limit);
        let answer = answer.unwrap_or_else(|_| Answer::of(Outcome::NoAnswer));
        let took = Duration::from_nanos(clock::now_ns().saturating_sub(begun_ns));
        Report {
            step: request.step,
            pid: request.pid,
            start_ticks: request.start_ticks,
            outcome: answer.outcome,
            state: answer.state,
            error: answer.error,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn limit(request: &Request) -> Duration {
    Duration::from_millis(request.limit_ms.into())
}

fn take(driver: &mut Driver, request: &Request) -> Answer {
    let target = Target { pid: Pid::from_raw(request.pid), start_ticks: request.start_ticks.get() };
    driver.take(request.step, target, limit(request))
}
