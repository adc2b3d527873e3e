//! Signals that end a command which draws on the whole terminal. The terminal is restored first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossterm::event;
use signal_hook::consts::{SIGHUP, SIGQUIT, SIGTERM};
use signal_hook::flag::register_usize;
use signal_hook::low_level::emulate_default_handler;
use vcuda_region::clock;

const LOOK: Duration = Duration::from_millis(100);

/// The signal that came, if one did.
#[derive(Debug)]
pub(crate) struct Ended(Arc<AtomicUsize>);

impl Ended {
    /// Listens from now on; none of the signals ends the process any more.
    pub(crate) fn listen() -> io::Result<Ended> {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGHUP, SIGQUIT] {
            register_usize(signal, Arc::clone(&came), usize::try_from(signal).unwrap_or(0))?;
        }
        Ok(Ended(came))
    }

    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Waits for an event of the terminal for at most `wait`, or until a signal comes. Returns whether there is an event.
    pub(crate) fn poll(&self, wait: Duration) -> io::Result<bool> {
        let until_ns = clock::now_ns().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
            if self.is_so() {
                return Ok(false);
            }
            if event::poll(left.min(LOOK))? {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Ends the process as the signal would have, if one came. The terminal must be restored.
    pub(crate) fn finish(&self) {
        if let Ok(signal @ 1..) = i32::try_from(self.0.load(Ordering::Relaxed)) {
            // It fails for a signal that cannot be known, and the command ends as ever.
            let _ = emulate_default_handler(signal);
        }
    }
}
