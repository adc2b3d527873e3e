//! Ctrl-C and friends: what a stage holds is cleared up before the command ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use vcuda_region::clock;

use crate::failure::{Failure, failed};

/// Turns the signals that ask for an end into an error of the next wait. Tenants inherit the blocked mask, so that a
/// Ctrl-C ends them in order too.
#[derive(Debug)]
pub(crate) struct Interrupt {
    is_asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Blocks the signals here and in every thread started later, and waits for them in one.
    pub(crate) fn catch() -> Result<Interrupt, Failure> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block().map_err(failed)?;
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = is_asked.clone();
        let waiter = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if signals.wait().is_ok() {
                asked.store(true, Ordering::Release);
            }
        });
        waiter.map_err(failed)?;
        Ok(Interrupt { is_asked })
    }

    /// Sleeps, unless the user wants to end.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), Failure> {
        const STEP: Duration = Duration::from_millis(20);
        let end_ns = clock::now_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        loop {
            if self.is_asked.load(Ordering::Acquire) {
                return Err(Failure::Failed(
                    "interrupted; everything is cleared up".to_owned(),
                ));
            }
            let left_ns = end_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 {
                return Ok(());
            }
            thread::sleep(STEP.min(Duration::from_nanos(left_ns)));
        }
    }
}
