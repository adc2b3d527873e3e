//! Queries of and waits for completions.
//!
//! A waiter predicts on a copy of the core when its command completes if nothing more is submitted. It sleeps until shortly
//! before, and polls the clock for the rest. More work can only delay completion. Events that advance it (a rival's death,
//! an opened gate) are found by periodic checks.

use super::Client;
use crate::commit::Change;
use crate::config::ClockKind;
use crate::engine::{Played, foresee};
use crate::ring::{self, PENDING};
use crate::{StreamId, Ticket, sys};

/// Time by which a sleep is shortened, for timer slack and scheduling (ns).
const WAKE_EARLY_NS: u64 = 60_000;
/// Longest sleep while only this waiter's own context has work (ns).
const ALONE_NS: u64 = 50_000_000;
/// Longest sleep if others could end early, or if the end is unknown (ns).
const SHARED_NS: u64 = 2_000_000;
/// Interval between checks for an event that another thread announces by the condition variable (ns).
const NOTIFIED_NS: u64 = 1_000_000;
/// Interval between checks of a virtual clock, which another process may step (ns).
const STEP_NS: u64 = 100_000;
/// Maximum number of events of a prediction.
const HORIZON: u32 = 2_000;

enum Forecast {
    Done,
    At {
        ns: u64,
        is_alone: bool,
    },
    /// After this time.
    After {
        ns: u64,
    },
    /// Not without an action of another process.
    Never,
}

impl Client {
    /// Whether the command has finished. Commands of an ended stream have.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        let shared = self.shared();
        if ring::done_word(&shared.map, ticket.ring(), ticket.seq) != (PENDING | ticket.seq) {
            return true;
        }
        let local = &mut *shared.local.lock();
        if shared.check_processes(local).is_err() {
            return false;
        }
        let command = ticket.command();
        shared
            .transact(local, Some(shared.now()), |core| Change::None(core.is_done(command)))
            .unwrap_or(false)
    }

    /// Completion time of the command (machine clock, ns), if its entry in the ring was not reused (1024 entries).
    pub fn done_ns(&self, ticket: Ticket) -> Option<u64> {
        if !self.is_done(ticket) {
            return None;
        }
        self.producer(ticket.ring())?.lock().time_of(&self.shared().map, ticket)
    }

    /// Completion time if nothing more is submitted (machine clock, ns); `None`: unknown.
    pub fn predict_ns(&self, ticket: Ticket) -> Option<u64> {
        match self.forecast(ticket) {
            Forecast::Done => Some(self.shared().now()),
            Forecast::At { ns, .. } => Some(ns),
            Forecast::After { .. } | Forecast::Never => None,
        }
    }

    /// Waits until the command has finished.
    pub fn wait(&self, ticket: Ticket) {
        while !self.wait_timeout(ticket, u64::MAX) {}
    }

    /// Waits until everything submitted to the stream so far has finished.
    pub fn wait_stream(&self, stream: StreamId) {
        if let Some(ticket) = self.last_ticket(stream) {
            self.wait(ticket);
        }
    }

    /// Waits for at most `timeout_ns` of real time. Returns whether the command has finished.
    pub fn wait_timeout(&self, ticket: Ticket, timeout_ns: u64) -> bool {
        let deadline = sys::monotonic_ns().saturating_add(timeout_ns);
        loop {
            if self.is_done(ticket) {
                return true;
            }
            let now = sys::monotonic_ns();
            if now >= deadline {
                return false;
            }
            self.pause(ticket, now, deadline);
        }
    }

    /// Sleeps a while, at most until the command can be done or until `deadline`.
    fn pause(&self, ticket: Ticket, now: u64, deadline: u64) {
        let shared = self.shared();
        let is_real = shared.config.clock == ClockKind::Real;
        match self.forecast(ticket) {
            Forecast::Done => {}
            Forecast::At { ns, is_alone } if is_real => {
                let longest = if is_alone { ALONE_NS } else { SHARED_NS };
                sleep_or_spin(ns.min(deadline), now, longest);
            }
            Forecast::After { ns } if is_real => sleep_or_spin(ns.min(deadline), now, SHARED_NS),
            Forecast::Never if is_real => shared.await_wake(NOTIFIED_NS.min(deadline.saturating_sub(now))),
            _ => shared.await_wake(STEP_NS.min(deadline.saturating_sub(now))),
        }
    }

    fn forecast(&self, ticket: Ticket) -> Forecast {
        let shared = self.shared();
        let local = &mut *shared.local.lock();
        if shared.refresh(local).is_err() {
            return Forecast::Never;
        }
        local.work.copy_from(&local.base);
        let command = ticket.command();
        if local.work.is_done(command) {
            return Forecast::Done;
        }
        let contexts = &local.base.contexts;
        let own = local.base.stream(ticket.stream.0).map(|row| (row.context, row.gpu));
        let is_alone =
            own.is_some_and(|(context, gpu)| contexts.iter().all(|row| row.id == context || row.gpu != gpu));
        let played =
            foresee(&mut local.work, &shared.map, &shared.rules, &mut local.scratch, command, HORIZON);
        let ns = local.work.now;
        match played {
            Played::Reached => Forecast::At { ns, is_alone },
            Played::Unfinished => Forecast::After { ns },
            Played::CaughtUp { .. } => Forecast::Never,
        }
    }
}

/// Sleeps until shortly before `end`, at most for `longest`; polls the clock for the rest.
fn sleep_or_spin(end: u64, now: u64, longest: u64) {
    let left = end.saturating_sub(now);
    if left > 2 * WAKE_EARLY_NS {
        sys::sleep_until_ns(now + (left - WAKE_EARLY_NS).min(longest));
        return;
    }
    while sys::monotonic_ns() < end {
        std::thread::yield_now();
    }
}
