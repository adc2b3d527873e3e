//! Start of a segment whose first launch finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_region::clock::now_ns;

use super::event::{newest_is_done, next_event, publish, record};
use crate::compute::device_limiter::DeviceLimiter;
use crate::compute::stream_state::{FIRST, RESTART, START, StreamState};
use crate::compute::{Launches, settle};
use crate::runtime::stream::Stream;

impl Launches {
    /// A launch finds its stream idle, as far as can be known. Elapsed time would count the gap: the next segment starts
    /// here, with a timing event of its own if it is to be measured: if `is_due`, or as a sample
    /// ([`Sampling`](vcuda_limiter::sampling::Sampling)). `is_cut`: the launch is in the middle of a burst. Returns whether a timing event
    /// was placed, so that another must follow behind the launch.
    #[cold]
    pub(in crate::compute) fn resume(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        launched_ns: u64,
        (is_due, is_cut): (bool, bool),
    ) -> bool {
        let Some(_recording) = stream_state.try_recording() else {
            return false;
        };
        if stream_state.pending() > 0 && !newest_is_done(stream_state) {
            // Later than predicted, but not idle: the segment goes on.
            return false;
        }
        let is_first = !stream_state.has_first.load(Ordering::Relaxed);
        let samples = limiter.sampling.launches(launched_ns);
        let is_due = is_due || is_first || samples > 0;
        if !is_due && limiter.contended.load(Ordering::Relaxed) && !stream.has_run_dry() {
            // It waits for a time slice.
            return false;
        }
        let since_ns = stream_state.at_work_since_ns();
        let launches = stream_state.take_unmeasured();
        stream_state.drop_parts();
        let follows_event = stream_state.chained.swap(false, Ordering::Relaxed);
        let mark = stream_state.host_waits.mark();
        stream_state.host_waits.segment_from(mark);
        // Bound for a segment without a start event: it begins no earlier than now.
        stream_state.unstarted_since_ns.store(launched_ns, Ordering::Relaxed);
        stream_state.begins(samples);
        let timing_event = is_due.then(|| next_event(stream_state)).flatten();
        // This event settles the launches since the timing event before: see `settle::tail`.
        let is_tail = follows_event && !is_first && timing_event.is_some();
        let launches = if is_tail {
            launches
        } else {
            settle::ended_unseen(limiter, stream_state, launches, (since_ns, launched_ns));
            (0, 0)
        };
        let Some(timing_event) = timing_event else {
            return false;
        };
        timing_event.gap_ns.store(launched_ns, Ordering::Relaxed);
        if !record(stream_state, timing_event, stream) {
            settle::ended_unseen(limiter, stream_state, launches, (since_ns, launched_ns));
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
        stream_state.has_first.store(true, Ordering::Relaxed);
        limiter.sampling.placed();
        true
    }
}

/// Places a stream's first event, if it has none: what was launched before launches are metered ends there, before the stream waits for
/// the host.
pub(super) fn first(stream_state: &StreamState, stream: Stream) {
    let Some(_recording) = stream_state.try_recording() else {
        return;
    };
    if stream_state.has_first.load(Ordering::Relaxed) || stream_state.pending() > 0 {
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
        stream_state.has_first.store(true, Ordering::Relaxed);
    }
}

/// Kind of a stream's first event, which was just recorded. If another thread has put a wait for the host before it, it waits for that.
fn first_kind(stream_state: &StreamState) -> u32 {
    if stream_state.host_waits.were_any() { START } else { FIRST }
}
