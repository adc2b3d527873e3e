//! The last snapshot of the tenants, refreshed on demand.

use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use vcuda_region::clock;

use super::Snapshot;
use crate::registration::Registry;

/// Greatest age of a fresh snapshot (ns).
const FRESH_NS: u64 = 50_000_000;
/// Longest wait for a fresh snapshot. After it the last one is returned.
const WAIT: Duration = Duration::from_secs(1);

/// The last snapshot of the tenants, shared by its producer and its readers.
///
/// While nothing happens, a snapshot is taken every few seconds. An answer must not be that old. So a reader that finds the last
/// snapshot older than 50 ms wakes the [`super::Observatory`] and waits for the next one. A reader that needs one of now ends the
/// observatory's pause, too.
#[derive(Debug, Default)]
pub struct SnapshotCache {
    state: Mutex<State>,
    published: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: Arc<Snapshot>,
    /// Wakes the observatory; `None` if there is none.
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct Waker {
    /// Ends its wait for a change.
    pub(super) registry: Arc<Registry>,
    /// Its thread, which pauses after each snapshot.
    pub(super) thread: Thread,
}

impl SnapshotCache {
    /// The last snapshot, whatever its age.
    pub fn last(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.lock().last)
    }

    /// A snapshot that was begun at most 50 ms ago. It blocks until there is one, at most for a second. Without an observatory,
    /// or if it does not answer in time, it returns the last snapshot.
    pub fn fresh(&self) -> Arc<Snapshot> {
        self.begun_after(clock::now_ns().saturating_sub(FRESH_NS))
    }

    /// A snapshot that was begun at `enough_ns` (`CLOCK_MONOTONIC`, ns) or later; else as [`SnapshotCache::fresh`].
    pub fn begun_after(&self, enough_ns: u64) -> Arc<Snapshot> {
        let mut state = self.state.lock();
        while state.last.taken_ns < enough_ns {
            let Some(waker) = &state.waker else { break };
            waker.registry.wake();
            waker.thread.unpark();
            if self.published.wait_for(&mut state, WAIT).timed_out() {
                break;
            }
        }
        Arc::clone(&state.last)
    }

    /// The last snapshot, once its number is above `number`. `None` if there is none within `wait`, or after
    /// [`SnapshotCache::end_waits`].
    pub fn newer(&self, number: u64, wait: Duration) -> Option<Arc<Snapshot>> {
        let mut state = self.state.lock();
        if state.last.number <= number {
            self.published.wait_for(&mut state, wait);
        }
        (state.last.number > number).then(|| Arc::clone(&state.last))
    }

    /// Ends present calls of [`SnapshotCache::newer`].
    pub fn end_waits(&self) {
        self.published.notify_all();
    }

    /// Wakes the observatory, so that a new snapshot is taken soon.
    pub fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.registry.wake();
        }
    }

    /// Replaces the snapshot, and wakes the waiting readers.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.state.lock().last = snapshot;
        self.published.notify_all();
    }

    /// Sets the waker of the observatory; `None` after its end.
    pub(super) fn set_waker(&self, waker: Option<Waker>) {
        self.state.lock().waker = waker;
        self.published.notify_all();
    }
}
