//! Start of a segment whose first launch finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_region::clock::now_ns;

use super::event::{newest_is_done, next_event, publish, record};
use crate::compute::device_limiter::DeviceLimiter;
use crate::compute::stream_state::{FIRST, RESTART, START, StreamState};
use crate::compute::{Launches, settle};
use crate::runtime::stream::Stream;

/// Shortest time between two measurements of a known short kernel on an idle stream (ns). More timing events would
/// cost host-bound programs too much.
const SAMPLE_NS: u64 = 500_000;

impl Launches {
    /// A launch finds its stream idle, as far as can be known. Elapsed time would count the gap: the next segment starts
    /// here, with a timing event of its own if it is to be measured: if `is_due`, or if none was for a while ([`SAMPLE_NS`]). `is_cut`:
    /// the launch is in the middle of a burst. Returns whether a timing event was placed, so that another must follow behind the launch.
    #[cold]
    pub(in crate::compute) fn resume(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        launched_ns: u64,
        (is_due, is_cut): (bool, bool),
    ) -> bool {
        if stream_state.charges_pauses(limiter) {
            return false;
        }
        let Some(_recording) = stream_state.try_recording() else {
            return false;
        };
        if stream_state.pending() > 0 && !newest_is_done(stream_state) {
            // Later than predicted, but not idle: the segment goes on.
            return false;
        }
        if limiter.charges_pauses() {
            limiter.charged_to(launched_ns);
        }
        let launches = end_unseen(limiter, stream_state, launched_ns);
        let follows_event = stream_state.chained.swap(false, Ordering::Relaxed);
        let mark = stream_state.host_waits.mark();
        stream_state.host_waits.segment_from(mark);
        // Bound for a segment without a start event: it begins no earlier than now.
        stream_state.unstarted_since_ns.store(launched_ns, Ordering::Relaxed);
        let sampled_at_ns = stream_state.sampled_at_ns.load(Ordering::Relaxed);
        // Beside neighbours the arbiter must know when there was work. An event costs less than a neighbour's slice.
        let is_due = is_due
            || !limiter.charges_pauses() && launched_ns.saturating_sub(sampled_at_ns) >= SAMPLE_NS
            || limiter.segment_ns() == 0
            || limiter.contended.load(Ordering::Relaxed);
        let is_first = sampled_at_ns == 0;
        let timing_event = is_due.then(|| next_event(stream_state)).flatten();
        // This event settles the launches since the timing event before: see `settle::tail`.
        let is_tail = follows_event && !is_first && timing_event.is_some();
        let launches = if is_tail {
            launches
        } else {
            settle_as_predicted(limiter, launches);
            (0, 0)
        };
        let Some(timing_event) = timing_event else {
            return false;
        };
        timing_event.gap_ns.store(launched_ns, Ordering::Relaxed);
        if !record(stream_state, timing_event, stream) {
            settle_as_predicted(limiter, launches);
            return false;
        }
        let kind = match (is_first, is_cut) {
            (true, _) => first_kind(stream_state),
            (false, true) => RESTART,
            (false, false) => START,
        };
        timing_event.describe(kind, launches, launched_ns);
        stream_state.started_at_ns.store(now_ns(), Ordering::Relaxed);
        stream_state.unstarted_since_ns.store(0, Ordering::Relaxed);
        publish(stream_state);
        stream_state.chained.store(true, Ordering::Relaxed);
        stream_state.sampled_at_ns.store(launched_ns, Ordering::Relaxed);
        true
    }
}

/// Places a stream's first event, if it has none: what was launched before launches are metered ends there, before the stream waits for
/// the host.
pub(super) fn first(stream_state: &StreamState, stream: Stream) {
    let Some(_recording) = stream_state.try_recording() else {
        return;
    };
    if stream_state.sampled_at_ns.load(Ordering::Relaxed) != 0 || stream_state.pending() > 0 {
        return;
    }
    let Some(timing_event) = next_event(stream_state) else {
        return;
    };
    let now = now_ns();
    if record(stream_state, timing_event, stream) {
        timing_event.describe(first_kind(stream_state), (0, 0), now);
        timing_event.gap_ns.store(now, Ordering::Relaxed);
        publish(stream_state);
        stream_state.sampled_at_ns.store(now, Ordering::Relaxed);
    }
}

/// Kind of a stream's first event, which was just recorded. If another thread has put a wait for the host before it, it waits for that.
fn first_kind(stream_state: &StreamState) -> u32 {
    if stream_state.host_waits.were_any() { START } else { FIRST }
}

/// Takes the launches that ended unmeasured before the one at `launched_ns`: their number, and their charge (ns).
fn end_unseen(limiter: &DeviceLimiter, stream_state: &StreamState, launched_ns: u64) -> (u32, u64) {
    let overdue_ns = launched_ns.saturating_sub(stream_state.busy_until_ns());
    let (count, predicted_ns) = stream_state.take_unmeasured();
    if count > 0 && settle::is_longer(limiter, predicted_ns, overdue_ns) {
        limiter.ended_unseen(overdue_ns, launched_ns);
    }
    stream_state.drop_parts();
    (count, predicted_ns)
}

fn settle_as_predicted(limiter: &DeviceLimiter, (count, predicted_ns): (u32, u64)) {
    if count > 0 {
        limiter.settle_as_predicted(predicted_ns, count);
    }
}
