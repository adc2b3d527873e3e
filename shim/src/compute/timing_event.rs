//! Recording of timing events: behind a segment of work, and before work that finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::device_limiter::{DeviceLimiter, now_ns};
use super::settle::Settling;
use super::stream_state::{
    BOUNDED, EVENTS_MAX, FIRST, HOST_WAIT, MEASURED, PAIR, PREDICTED, START, StreamState, TimingEvent,
    parts_of,
};
use super::{COSTS, IDLE_NS, Launches, settle};
use crate::driver::{Call, Relaxed, real};
use crate::runtime::capture;
use crate::runtime::devices::Pushed;
use crate::runtime::stream::Stream;

/// A launch that is predicted to take this long gets a timing event of its own (ns).
pub(super) const ALONE_NS: u64 = 200_000;
/// Shortest time between two measurements of a known short kernel on an idle stream (ns). More timing events would
/// cost host-bound programs too much.
const SAMPLE_NS: u64 = 500_000;

/// Longest delay of the host at which a kernel without any measurement is still measured (ns).
const UNPROVEN_DOUBT_NS: u64 = 1_000_000;

/// Timing events on the way beyond which the last is moved behind one more wait for the host. The worker is busy with
/// the first.
const HOST_WAITS_MAX: u32 = 4;

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
        if window_ns == 0 && limiter.charges_pauses() && !is_guess_so_far(stream_state) {
            // Without a start event of its own the segment has pauses: predictions do not learn from it.
            stream_state.drop_parts();
        }
        stream_state.take_parts(timing_event);
        let kind = kind_of(stream_state, since_ns);
        timing_event.count.store(count, Ordering::Relaxed);
        timing_event.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        timing_event
            .expected_ns
            .store(stream_state.busy_until_ns().max(now_ns()), Ordering::Relaxed);
        // Timing event and launch each reach the GPU at the end of their calls, as far as is known: the host's time
        // between them is no work. A launch call that took longer may have waited for its kernel
        // (`CUDA_LAUNCH_BLOCKING`). Its time counts, except for the lateness that the host is forgiven.
        let is_late = window_ns > IDLE_NS;
        let is_forgiven = !is_late || limiter.forgives_lateness(window_ns);
        let gap_ns = if is_forgiven { window_ns } else { 0 };
        let gap_ns = if kind == BOUNDED { since_ns } else { gap_ns };
        timing_event.gap_ns.store(gap_ns, Ordering::Relaxed);
        if record(stream_state, timing_event, stream) {
            let doubt_ns = if is_unproven(timing_event) {
                UNPROVEN_DOUBT_NS
            } else {
                IDLE_NS
            };
            let is_guessed = is_forgiven && window_ns > predicted_ns.max(doubt_ns);
            let kind = if is_guessed { PREDICTED } else { kind };
            timing_event.kind.store(kind, Ordering::Relaxed);
            publish(stream_state);
            if limiter.wants_event_cost() {
                pair(stream_state, stream);
            }
            stream_state.chained.store(true, Ordering::Relaxed);
            if limiter.segment_ns() == 0 {
                // Each launch is measured: the stream is asked, not predicted, to be idle before the next one.
                stream_state.is_idle_from_now();
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
        if now_ns() > stream_state.busy_until_ns() && has_run_dry(stream) {
            self.drained(stream_state);
        } else {
            self.timing_event(limiter, stream_state, stream, 0);
        }
    }

    /// All timing events of a stream are on the way: the newest, behind a segment that was launched right before the unmeasured work, is
    /// recorded once more, and its segment ends behind that work too.
    fn move_newest(&self, stream_state: &StreamState, stream: Stream) {
        let newest = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed).wrapping_sub(1));
        let is_segment = newest.kind.load(Ordering::Relaxed) == MEASURED;
        // The thread that settles may have reached it.
        let settling = Settling::try_take(&self.settling);
        if settling.is_none() || !is_segment || !stream_state.chained.load(Ordering::Relaxed) {
            return;
        }
        if stream_state.pending() == 0 || !record(stream_state, newest, stream) {
            return;
        }
        let (count, predicted_ns) = stream_state.take_unmeasured();
        newest.count.fetch_add(count, Ordering::Relaxed);
        newest.predicted_ns.fetch_add(predicted_ns, Ordering::Relaxed);
        newest
            .expected_ns
            .store(stream_state.busy_until_ns().max(now_ns()), Ordering::Relaxed);
        // Predictions do not learn from a segment of several events.
        stream_state.drop_parts();
    }

    /// A launch finds its stream idle, as far as can be known. Elapsed time would count the gap: the next segment starts
    /// here, with a timing event of its own if it is to be measured: if `is_due`, or if none was for a while ([`SAMPLE_NS`]). Returns
    /// whether a timing event was placed, so that another must follow behind the launch.
    #[cold]
    pub(super) fn resume(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        now_ns: u64,
        is_due: bool,
    ) -> bool {
        if limiter.charges_pauses() && stream_state.unmeasured().0 > 0 {
            // The segment goes on, and is charged with its pauses.
            return false;
        }
        let Some(_recording) = stream_state.try_recording() else {
            return false;
        };
        if stream_state.pending() > 0 && !newest_is_done(stream_state) {
            // Later than predicted, but not idle: the segment goes on.
            return false;
        }
        let overdue_ns = now_ns.saturating_sub(stream_state.busy_until_ns());
        let (count, predicted_ns) = stream_state.take_unmeasured();
        if count > 0 && settle::is_longer(limiter, predicted_ns, overdue_ns) {
            limiter.ended_unseen(overdue_ns, now_ns);
        }
        stream_state.drop_parts();
        let follows_event = stream_state.chained.swap(false, Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(stream_state.sampled_at_ns.load(Ordering::Relaxed));
        // Bound for a segment without a start event: it begins no earlier than now.
        stream_state.unstarted_since_ns.store(now_ns, Ordering::Relaxed);
        // Beside neighbours the arbiter must know when there was work. An event costs less than a neighbour's slice.
        let is_due = is_due
            || since_ns >= SAMPLE_NS
            || limiter.segment_ns() == 0
            || limiter.contended.load(Ordering::Relaxed);
        let is_first = stream_state.sampled_at_ns.load(Ordering::Relaxed) == 0;
        let timing_event = is_due.then(|| next_event(stream_state)).flatten();
        // This event settles the launches since the timing event before: see `settle::tail`.
        let is_tail = follows_event && !is_first && timing_event.is_some();
        if count > 0 && !is_tail {
            limiter.settle_as_predicted(predicted_ns, count);
        }
        let Some(timing_event) = timing_event else {
            return false;
        };
        timing_event
            .kind
            .store(if is_first { FIRST } else { START }, Ordering::Relaxed);
        timing_event.gap_ns.store(now_ns, Ordering::Relaxed);
        let (count, predicted_ns) = if is_tail { (count, predicted_ns) } else { (0, 0) };
        timing_event.count.store(count, Ordering::Relaxed);
        timing_event.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        timing_event.expected_ns.store(now_ns, Ordering::Relaxed);
        if !record(stream_state, timing_event, stream) {
            limiter.settle_as_predicted(predicted_ns, count);
            return false;
        }
        let started_ns = super::device_limiter::now_ns();
        stream_state.unstarted_since_ns.store(0, Ordering::Relaxed);
        publish(stream_state);
        stream_state.chained.store(true, Ordering::Relaxed);
        stream_state.sampled_at_ns.store(now_ns, Ordering::Relaxed);
        stream_state.started_at_ns.store(started_ns, Ordering::Relaxed);
        true
    }
}

impl Launches {
    /// Meters a call that lets the stream wait for the host (a host function, a value that the host sets). Work
    /// launched before it is measured before it. The next segment starts behind it, so no tenant is charged for the
    /// host's time.
    pub(crate) fn feed(&'static self, call: &Call<'_, CUresult>, stream: Stream) -> CUresult {
        if capture::is_capturing(stream.handle, stream.default) {
            return call.real();
        }
        let stream_state = self.streams.find(&self.limiters, stream);
        let Some((stream_state, limiter)) =
            stream_state.and_then(|stream_state| Some((stream_state, self.limiter_of(stream_state)?)))
        else {
            return call.real();
        };
        self.end_segment(limiter, stream_state, stream);
        call.real()?;
        self.part(stream_state, stream, HOST_WAIT);
        Ok(())
    }

    /// Starts the next segment behind an operation that is no work of the tenant, with a timing event of `kind`
    /// ([`START`], [`HOST_WAIT`]). The operation's time is not charged.
    pub(super) fn part(&'static self, stream_state: &'static StreamState, stream: Stream, kind: u32) {
        let recording = stream_state.try_recording();
        stream_state.chained.store(false, Ordering::Relaxed);
        // Work without a timing event ends behind the wait for the host: the time since its first launch is no bound
        // of its work.
        stream_state.unstarted_since_ns.store(0, Ordering::Relaxed);
        if recording.is_none() || stream_state.unmeasured().0 > 0 {
            return;
        }
        if kind == HOST_WAIT && stream_state.pending() > HOST_WAITS_MAX {
            let newest = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed).wrapping_sub(1));
            if newest.kind.load(Ordering::Relaxed) == HOST_WAIT {
                // No work was launched since: the same timing event is moved behind. Else a program's waits would
                // take all places of the ring.
                stream_state
                    .chained
                    .store(record(stream_state, newest, stream), Ordering::Relaxed);
                return;
            }
        }
        let Some(timing_event) = next_event(stream_state) else {
            return;
        };
        timing_event.kind.store(kind, Ordering::Relaxed);
        timing_event.count.store(0, Ordering::Relaxed);
        timing_event.predicted_ns.store(0, Ordering::Relaxed);
        // The time is not known: the worker queries at its own interval.
        timing_event.expected_ns.store(u64::MAX, Ordering::Relaxed);
        if record(stream_state, timing_event, stream) {
            publish(stream_state);
            stream_state.chained.store(true, Ordering::Relaxed);
            self.wake_worker();
        }
    }

    /// Whether any stream of this process waits for the host, or will once it reaches such an operation.
    pub(super) fn waits_for_host(&self) -> bool {
        self.streams.all().any(StreamState::waits_for_host)
    }
}

/// Whether the driver reports that all work of a stream is done. A captured stream may not be queried.
fn has_run_dry(stream: Stream) -> bool {
    let _relaxed = Relaxed::enter();
    // SAFETY: a stream that the application uses in this call, or one that it cannot destroy before this visit is over.
    !capture::is_captured(stream.handle, stream.default)
        && unsafe { real::cuStreamQuery(stream.explicit()) }.is_ok()
}

/// The kind of the timing event behind a stream's unmeasured work, whose first launch was made at `since_ns` (0: not known).
fn kind_of(stream_state: &StreamState, since_ns: u64) -> u32 {
    if stream_state.chained.load(Ordering::Relaxed) {
        MEASURED
    } else if since_ns > 0 {
        BOUNDED
    } else {
        PREDICTED
    }
}

/// Records one more start event right behind the timing event of a segment.
fn pair(stream_state: &StreamState, stream: Stream) {
    let Some(timing_event) = next_event(stream_state) else {
        return;
    };
    timing_event.kind.store(PAIR, Ordering::Relaxed);
    timing_event.count.store(0, Ordering::Relaxed);
    timing_event.predicted_ns.store(0, Ordering::Relaxed);
    timing_event
        .expected_ns
        .store(stream_state.busy_until_ns().max(now_ns()), Ordering::Relaxed);
    if record(stream_state, timing_event, stream) {
        timing_event.gap_ns.store(now_ns(), Ordering::Relaxed);
        publish(stream_state);
    }
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

/// The next place in the ring, with an event. `None` if the ring is full or no event can be made here.
fn next_event(stream_state: &StreamState) -> Option<&TimingEvent> {
    if stream_state.pending() as usize >= EVENTS_MAX {
        return None;
    }
    let timing_event = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed));
    if timing_event.event.load(Ordering::Relaxed) == 0 {
        timing_event
            .event
            .store(new_event(stream_state)?.0, Ordering::Relaxed);
    }
    Some(timing_event)
}

/// A new event for a stream's timing events, made in the stream's context, or for a green context in the device's
/// primary context.
fn new_event(stream_state: &StreamState) -> Option<CUevent> {
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes a handle or nothing. CU_EVENT_DEFAULT: with timing.
    let make = |event: &mut CUevent| unsafe { real::cuEventCreate(event, 0) };
    if crate::runtime::devices::current_context().0 == stream_state.context.load(Ordering::Relaxed) {
        make(&mut event).ok()?;
        return Some(event);
    }
    // A context that any thread may make current.
    let _pushed = Pushed::make_current(CUcontext(stream_state.asked_in.load(Ordering::Relaxed)))?;
    make(&mut event).ok()?;
    Some(event)
}

fn record(stream_state: &StreamState, timing_event: &TimingEvent, stream: Stream) -> bool {
    if capture::is_captured(stream.handle, stream.default) {
        return false;
    }
    let event = CUevent(timing_event.event.load(Ordering::Relaxed));
    // SAFETY: an event of the shim in the stream's context; the application launches on the stream in this call.
    let recorded = unsafe { real::cuEventRecord(event, stream.explicit()) };
    if recorded == Err(CUerror::INVALID_HANDLE) {
        stream_state.cannot_be_measured();
    }
    recorded.is_ok()
}

/// Hands the timing event at the tail to the thread that settles.
fn publish(stream_state: &StreamState) {
    let tail = stream_state.tail.load(Ordering::Relaxed);
    stream_state.tail.store(tail.wrapping_add(1), Ordering::Release);
}

/// Whether the last timing event was reached.
fn newest_is_done(stream_state: &StreamState) -> bool {
    let newest = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed).wrapping_sub(1));
    let event = CUevent(newest.event.load(Ordering::Relaxed));
    event.is_null() || {
        // SAFETY: an event of the shim; its context lives, as the application launches in it.
        unsafe { real::cuEventQuery(event) }.is_ok()
    }
}
