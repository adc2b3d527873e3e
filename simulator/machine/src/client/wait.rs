//! Asking and waiting for completions.
//!
//! A waiter computes on a copy of the core when its command will be done if no process submits anything more, sleeps until
//! shortly before, and looks at the clock for the rest. More work can only delay it; what could hasten it (a rival's
//! death, a gate that opens) is covered by looking again now and then.

use super::Client;
use crate::commit::Change;
use crate::config::ClockKind;
use crate::engine::{Played, foresee};
use crate::ring::{self, PENDING};
use crate::{StreamId, Ticket, sys};

/// A sleeper wakes up to this late (timer slack and scheduling), so it sleeps that much less.
const WAKE_EARLY_NS: u64 = 60_000;
/// Longest sleep while only this waiter's own context has work.
const ALONE_NS: u64 = 50_000_000;
/// Longest sleep while others could end early, or the end is unknown.
const SHARED_NS: u64 = 2_000_000;
/// Between looks at something that another thread must do and rings the bell for.
const BELL_NS: u64 = 1_000_000;
/// Between looks at a virtual clock, which another process may step.
const STEP_NS: u64 = 100_000;
/// Events looked ahead.
const HORIZON: u32 = 2_000;

/// When a command will be done.
enum Forecast {
    Done,
    At {
        ns: u64,
        is_alone: bool,
    },
    /// Later than this.
    After {
        ns: u64,
    },
    /// Another process must do something first.
    Never,
}

impl Client {
    /// Whether the command has finished by now. Commands of a stream that has ended have.
    #[must_use]
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
            .transact(local, Some(shared.now()), |core| {
                Change::None(core.is_done(command))
            })
            .unwrap_or(false)
    }

    /// When the command finished, if it has and no later command took its place in the ring (the last 1024 are known).
    #[must_use]
    pub fn done_ns(&self, ticket: Ticket) -> Option<u64> {
        if !self.is_done(ticket) {
            return None;
        }
        self.producer(ticket.ring())?
            .lock()
            .time_of(&self.shared().map, ticket)
    }

    /// When the command will have finished if no process submits anything more, machine clock, ns; `None`: unknown.
    #[must_use]
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

    /// Waits at most `timeout_ns` of real time; says whether the command has finished.
    #[must_use]
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

    /// Lets some time go by, at most until the command can be done or `deadline`.
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
            Forecast::Never if is_real => shared.await_bell(BELL_NS.min(deadline.saturating_sub(now))),
            _ => shared.await_bell(STEP_NS.min(deadline.saturating_sub(now))),
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
        let own = local
            .base
            .stream(ticket.stream.0)
            .map(|row| (row.context, row.gpu));
        let is_alone =
            own.is_some_and(|(context, gpu)| contexts.iter().all(|row| row.id == context || row.gpu != gpu));
        let played = foresee(
            &mut local.work,
            &shared.map,
            &shared.rules,
            &mut local.scratch,
            command,
            HORIZON,
        );
        let ns = local.work.now;
        match played {
            Played::Reached => Forecast::At { ns, is_alone },
            Played::Unfinished => Forecast::After { ns },
            Played::CaughtUp { .. } => Forecast::Never,
        }
    }
}

/// Sleeps until shortly before `end`, at most `longest`; what is left of a short time goes by in looking.
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
