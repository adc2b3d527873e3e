//! The last look at the tenants, and a fresh one for who asks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use vcuda_region::clock;

use super::Snapshot;
use crate::registration::Registry;

/// Age up to which a look answers a question (ns).
const FRESH_NS: u64 = 50_000_000;
/// Longest wait for a fresh one. The last one is then the answer.
const WAIT: Duration = Duration::from_secs(1);

/// Looks at all tenants, shared by who makes them and who needs them.
///
/// While nothing happens, tenants are looked at every few seconds. An answer must not be that old: so a question that finds
/// the last look older than 50 ms wakes the [`super::Observatory`], and waits for its next one.
#[derive(Debug, Default)]
pub struct Looks {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: Arc<Snapshot>,
    /// Wakes the observatory; none if there is no observatory.
    waker: Option<Arc<Registry>>,
}

impl Looks {
    /// The last one, whatever its age.
    #[must_use]
    pub fn last(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.lock().last)
    }

    /// One that was begun 50 ms ago at most, if there is an observatory and it answers. Blocks for the time of a look, a
    /// second at most.
    #[must_use]
    pub fn fresh(&self) -> Arc<Snapshot> {
        self.begun_after(clock::now_ns().saturating_sub(FRESH_NS))
    }

    /// A look that was begun at `enough_ns` (`CLOCK_MONOTONIC`, ns) or later, as [`Looks::fresh`].
    #[must_use]
    pub fn begun_after(&self, enough_ns: u64) -> Arc<Snapshot> {
        let mut state = self.state.lock();
        while state.last.taken_ns < enough_ns {
            let Some(waker) = &state.waker else { break };
            waker.wake();
            if self.came.wait_for(&mut state, WAIT).timed_out() {
                break;
            }
        }
        Arc::clone(&state.last)
    }

    /// Has the tenants looked at soon.
    pub fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.wake();
        }
    }

    /// Takes over a new one.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.state.lock().last = snapshot;
        self.came.notify_all();
    }

    /// From now on, `waker` wakes an observatory; none: it has ended.
    pub(super) fn follow(&self, waker: Option<Arc<Registry>>) {
        self.state.lock().waker = waker;
        self.came.notify_all();
    }
}
