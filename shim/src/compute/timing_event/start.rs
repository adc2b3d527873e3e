//! Start of a segment whose first launch finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_region::clock::now_ns;

use super::event::{newest_is_done, next_event, publish, record};
use crate::compute::device_limiter::DeviceLimiter;
use crate::compute::stream_state::{EVENTS_MAX, FIRST, RESTART, START, StreamState};
use crate::compute::{Launches, settle};
use crate::runtime::stream::Stream;

/// Greatest age of the last proof that a stream has run dry, at which its work counts as ended when that was predicted (ns).
const PROOF_NS: u64 = 500_000;

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
        if !is_proved_dry(limiter, stream_state, stream, launched_ns) {
            // It runs longer than predicted, or waits for a time slice: the segment goes on, to an event behind this launch.
            stream_state.begins(1);
            if !limiter.contended.load(Ordering::Relaxed) {
                // Or it was idle until the program has put something else into it: its pause is charged then.
                limiter.sampling.doubt(launched_ns.saturating_sub(stream_state.busy_until_ns()), launched_ns);
            }
            return false;
        }
        if stream_state.pending() as usize >= EVENTS_MAX / 2 {
            // The worker is late, and the next samples need places.
            self.settle_own(limiter, stream_state);
        }
        let is_first = !stream_state.has_first.load(Ordering::Relaxed);
        let samples = limiter.sampling.launches(launched_ns);
        let is_due = is_due || is_first || samples > 0;
        let since_ns = stream_state.unmeasured_since_ns();
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
        if samples > 0 {
            limiter.sampling.placed();
        }
        true
    }
}

/// Whether a stream has run dry by a proof that is young enough. Beside neighbours it may wait for a time slice at any moment. With no
/// unmeasured work it was seen to have: its newest event is done.
fn is_proved_dry(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    stream: Stream,
    launched_ns: u64,
) -> bool {
    let age_ns = launched_ns.saturating_sub(stream_state.dry_at_ns.load(Ordering::Relaxed));
    let is_unmeasured = stream_state.unmeasured().0 > 0;
    if is_unmeasured && !limiter.contended.load(Ordering::Relaxed) && age_ns < PROOF_NS {
        return true;
    }
    let is_dry = !is_unmeasured || stream.has_run_dry();
    if is_dry {
        stream_state.dry_at_ns.store(launched_ns, Ordering::Relaxed);
    }
    is_dry
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
