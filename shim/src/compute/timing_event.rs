//! Recording of timing events. This file ends segments; `start.rs` begins them on idle streams, `host_wait.rs` behind waits for
//! the host.

use core::sync::atomic::Ordering;

use vcuda_region::clock::now_ns;

use super::device_limiter::DeviceLimiter;
use super::settle::Settling;
use super::stream_state::{
    AT_MOST, BOUNDED, EVENTS_MAX, LATE_NS, MEASURED, PAIR, PREDICTED, StreamState, TimingEvent, parts_of,
};
use super::{COSTS, IDLE_NS, Launches};
use crate::runtime::stream::Stream;

mod event;
mod host_wait;
mod start;

pub(super) use event::newest_is_done;
use event::{next_event, publish, record};

/// A launch that is predicted to take this long gets a timing event of its own (ns).
pub(super) const ALONE_NS: u64 = 200_000;
/// Longest delay of the host at which a kernel without any measurement is still measured (ns).
const UNPROVEN_DOUBT_NS: u64 = 1_000_000;

impl Launches {
    /// Records an event behind the unmeasured work of a stream, if there is any and the stream's ring has room.
    /// `window_ns`: for work launched on an idle stream, the host's time from after the start timing event until
    /// after the launch. If the host was so late that the GPU's time is not known, the work stays charged as
    /// predicted.
    pub(super) fn timing_event(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        window_ns: u64,
    ) {
        let Some(_recording) = stream_state.try_recording() else {
            return;
        };
        if stream_state.unmeasured().0 == 0 {
            return;
        }
        if stream_state.pending() as usize >= EVENTS_MAX {
            self.move_newest(stream_state, stream);
            return;
        }
        let Some(timing_event) = next_event(stream_state) else {
            return;
        };
        let since_ns = stream_state.unstarted_since_ns.load(Ordering::Relaxed);
        let (count, predicted_ns) = stream_state.take_unmeasured();
        stream_state.take_parts(timing_event);
        let mark = stream_state.host_waits.mark();
        // Timing event and launch each reach the GPU at the end of their calls, as far as is known: the host's time
        // between them is no work. A launch call that took longer may have waited for its kernel
        // (`CUDA_LAUNCH_BLOCKING`). Its time counts, except for the lateness that the host is forgiven.
        let is_late = window_ns > LATE_NS;
        let is_forgiven = !is_late || limiter.forgives_lateness(window_ns);
        let gap_ns = if is_forgiven { window_ns } else { 0 };
        if record(stream_state, timing_event, stream) {
            let kind = kind_of(stream_state, since_ns);
            let gap_ns = if matches!(kind, BOUNDED | AT_MOST) { since_ns } else { gap_ns };
            timing_event.gap_ns.store(gap_ns, Ordering::Relaxed);
            let doubt_ns = if is_unproven(timing_event) { UNPROVEN_DOUBT_NS } else { LATE_NS };
            // A launch call that waits for its kernel takes about as long as that: the rest would be next to nothing.
            let is_guessed = is_forgiven && window_ns > (predicted_ns / 2).max(doubt_ns);
            let kind = if is_guessed { PREDICTED } else { kind };
            timing_event.describe(kind, (count, predicted_ns), done_ns(stream_state));
            publish(stream_state);
            stream_state.host_waits.segment_from(mark);
            if limiter.wants_event_cost() {
                pair(stream_state, stream);
            }
            stream_state.chained.store(true, Ordering::Relaxed);
            let now = now_ns();
            if stream_state.is_sampled() {
                limiter.sampling.placed();
                stream_state.sample_is_placed(limiter.sampling.is_in_doubt(now));
                // Each launch is measured: the stream is asked, not predicted, to be idle before the next one, whose time may be old.
                stream_state.is_idle_since(now.saturating_sub(2 * IDLE_NS));
            } else {
                if stream_state.is_told_apart() {
                    limiter.sampling.placed();
                }
                stream_state.goes_on(limiter.sampling.launches(now) > 0);
            }
        } else {
            limiter.settle_as_predicted(predicted_ns, count);
            stream_state.chained.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the running segment of a stream: with a timing event, or if the stream has run dry meanwhile, by settling its work as
    /// done. (An event would count the time since as work.)
    pub(super) fn end_segment(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
    ) {
        if stream_state.unmeasured().0 == 0 {
            return;
        }
        if now_ns() > stream_state.busy_until_ns() && stream.has_run_dry() {
            self.drained(stream_state);
        } else {
            self.timing_event(limiter, stream_state, stream, 0);
        }
    }

    /// All timing events of a stream are on the way: the newest, behind a segment that was launched right before the unmeasured work, is
    /// recorded once more, and its segment ends behind that work too.
    fn move_newest(&self, stream_state: &StreamState, stream: Stream) {
        let newest = stream_state.newest();
        let is_segment = matches!(newest.kind.load(Ordering::Relaxed), MEASURED | AT_MOST);
        // The thread that settles may have reached it.
        let settling = Settling::try_take(&self.settling);
        if settling.is_none() || !is_segment || !stream_state.chained.load(Ordering::Relaxed) {
            return;
        }
        if stream_state.pending() == 0 || !record(stream_state, newest, stream) {
            return;
        }
        if stream_state.host_waits.may_be_within() {
            newest.kind.store(AT_MOST, Ordering::Relaxed);
        }
        let (count, predicted_ns) = stream_state.take_unmeasured();
        newest.count.fetch_add(count, Ordering::Relaxed);
        newest.predicted_ns.fetch_add(predicted_ns, Ordering::Relaxed);
        newest.expected_ns.store(done_ns(stream_state), Ordering::Relaxed);
        // Predictions do not learn from a segment of several events.
        stream_state.drop_parts();
    }
}

/// The kind of the timing event behind a stream's unmeasured work, whose first launch was made at `since_ns` (0: not known).
fn kind_of(stream_state: &StreamState, since_ns: u64) -> u32 {
    let kind = match stream_state.chained.load(Ordering::Relaxed) {
        true => MEASURED,
        false if since_ns > 0 => BOUNDED,
        false => return PREDICTED,
    };
    if stream_state.host_waits.may_be_within() { AT_MOST } else { kind }
}

/// Time at which all work that was launched on the stream should be done (`CLOCK_MONOTONIC`, ns).
fn done_ns(stream_state: &StreamState) -> u64 {
    stream_state.busy_until_ns().max(now_ns())
}

/// Records one more start event right behind the timing event of a segment.
fn pair(stream_state: &StreamState, stream: Stream) {
    let Some(timing_event) = next_event(stream_state) else {
        return;
    };
    timing_event.describe(PAIR, (0, 0), done_ns(stream_state));
    if record(stream_state, timing_event, stream) {
        timing_event.gap_ns.store(now_ns(), Ordering::Relaxed);
        publish(stream_state);
    }
}

/// What a segment should take by what is known now (ns); `None` if it has no kernel, or one that was never measured. Its launches were
/// predicted when they were called, which may be before the first of their kind had run.
pub(super) fn measured_cost_ns(timing_event: &TimingEvent) -> Option<u64> {
    let (parts, used) = parts_of(timing_event);
    let parts = parts.get(..used).unwrap_or(&parts);
    let known: u64 = parts.iter().map(|part| u64::from(part.count)).sum();
    let is_measured = known > 0
        && known == u64::from(timing_event.count.load(Ordering::Relaxed))
        && parts.iter().all(|part| COSTS.at(part.index).1 > 0);
    is_measured.then(|| COSTS.cost_of_parts_ns(parts))
}

/// Whether a segment has a kernel that was never measured.
fn is_unproven(timing_event: &TimingEvent) -> bool {
    let (parts, used) = parts_of(timing_event);
    parts.iter().take(used).any(|part| COSTS.at(part.index).1 == 0)
}

/// Whether a kernel of the stream's work that is not settled was never measured: its prediction is a guess.
pub(super) fn is_guess(stream_state: &StreamState) -> bool {
    let head = stream_state.head.load(Ordering::Relaxed);
    let is_on_the_way = (0..stream_state.pending())
        .any(|ahead| is_unproven(stream_state.timing_event(head.wrapping_add(ahead))));
    is_on_the_way || is_guess_so_far(stream_state)
}

/// As [`is_guess`], for the stream's launches without a timing event.
fn is_guess_so_far(stream_state: &StreamState) -> bool {
    stream_state.parts_so_far().any(|index| COSTS.at(index).1 == 0)
}
