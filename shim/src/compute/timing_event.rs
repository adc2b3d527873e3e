//! When a timing event is recorded: behind a segment of work, and before work that finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::device_limiter::{DeviceLimiter, now_ns};
use super::stream_state::{
    BOUNDED, EVENTS_MAX, FIRST, HOST_WAIT, MEASURED, PAIR, PREDICTED, START, StreamState, TimingEvent,
    parts_of,
};
use super::{COSTS, IDLE_NS, Launches, settle};
use crate::driver::Call;
use crate::driver::real;
use crate::runtime::capture;
use crate::runtime::devices::Pushed;
use crate::runtime::stream::Stream;

/// A launch that is predicted to take this long has a timing event of its own (ns).
pub(super) const ALONE_NS: u64 = 200_000;
/// A short kernel that is known is measured on an idle stream no more often than this (ns): else timing events would cost host-bound
/// programs too much.
const SAMPLE_NS: u64 = 500_000;

/// What the host may be late, so that a kernel of which nothing is known is measured at all (ns).
const UNPROVEN_DOUBT_NS: u64 = 1_000_000;

/// Timing events on the way of which the last may be moved on, behind one more wait for the host: the worker is at the first.
const HOST_WAITS_MAX: u32 = 4;

impl Launches {
    /// Records an event behind the unmeasured work of a stream, if there is any and it can be done now. `window_ns`: how long the host took from
    /// after the start timing event until after the launch, if the work was launched on an idle stream. What the host was too late
    /// for to say how long the GPU took stays charged as predicted.
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
        let Some(timing_event) = next_event(stream_state) else {
            return;
        };
        let since_ns = stream_state.unstarted_since_ns.load(Ordering::Relaxed);
        let (count, predicted_ns) = stream_state.take_unmeasured();
        stream_state.take_parts(timing_event);
        let kind = if stream_state.chained.load(Ordering::Relaxed) {
            MEASURED
        } else if since_ns > 0 {
            BOUNDED
        } else {
            PREDICTED
        };
        timing_event.count.store(count, Ordering::Relaxed);
        timing_event.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        timing_event
            .expected_ns
            .store(stream_state.busy_until_ns().max(now_ns()), Ordering::Relaxed);
        // Timing event and launch each went to the GPU as the last thing in their calls, for all that is known: the host's time between
        // them is no work. A launch call that took longer may have waited for its kernel (`CUDA_LAUNCH_BLOCKING`): its time
        // counts, but for what the host may be late by itself.
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
                // Each launch is measured: whether the stream ran dry before the next one is asked, and not predicted.
                stream_state.is_idle_from_now();
            }
        } else {
            limiter.settle_as_predicted(predicted_ns, count);
            stream_state.chained.store(false, Ordering::Relaxed);
        }
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
        let Some(_recording) = stream_state.try_recording() else {
            return false;
        };
        if stream_state.pending() > 0 && !newest_is_done(stream_state) {
            // Later than predicted, but not idle: the chain holds.
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
        // Until a timing event says when the next segment begins: no earlier than now.
        stream_state.unstarted_since_ns.store(now_ns, Ordering::Relaxed);
        // Beside neighbours the arbiter must know when there was work, and an event costs less than their slices.
        let is_due = is_due
            || since_ns >= SAMPLE_NS
            || limiter.segment_ns() == 0
            || limiter.contended.load(Ordering::Relaxed);
        let is_first = stream_state.sampled_at_ns.load(Ordering::Relaxed) == 0;
        let timing_event = is_due.then(|| next_event(stream_state)).flatten();
        // What was launched since the timing event before is told by this one: see `settle::tail`.
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
    /// A call that lets the stream wait for the host (a host function, a value that the host sets). What was launched
    /// before it is measured before it, and the next segment starts behind it: nobody is charged for the host's time.
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
        self.timing_event(limiter, stream_state, stream, 0);
        call.real()?;
        self.part(stream_state, stream, HOST_WAIT);
        Ok(())
    }

    /// The next segment begins behind something that is no work of ours, with a timing event of `kind` ([`START`], [`HOST_WAIT`]): nobody
    /// is charged for the time that it takes.
    pub(super) fn part(&'static self, stream_state: &'static StreamState, stream: Stream, kind: u32) {
        let recording = stream_state.try_recording();
        stream_state.chained.store(false, Ordering::Relaxed);
        // What has no timing event yet ends behind the wait for the host: from its first launch on is no bound of its work.
        stream_state.unstarted_since_ns.store(0, Ordering::Relaxed);
        if recording.is_none() || stream_state.unmeasured().0 > 0 {
            return;
        }
        if kind == HOST_WAIT && stream_state.pending() > HOST_WAITS_MAX {
            let newest = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed).wrapping_sub(1));
            if newest.kind.load(Ordering::Relaxed) == HOST_WAIT {
                // Nothing was launched since: the same timing event, further on. Else a program's waits take all places of its work.
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
        // Nobody knows when: the worker looks at its own pace.
        timing_event.expected_ns.store(u64::MAX, Ordering::Relaxed);
        if record(stream_state, timing_event, stream) {
            publish(stream_state);
            stream_state.chained.store(true, Ordering::Relaxed);
            self.wake_worker();
        }
    }

    /// Whether any stream of this process waits for the host, or will when it comes to that.
    pub(super) fn waits_for_host(&self) -> bool {
        self.streams.all().any(StreamState::waits_for_host)
    }
}

/// One more start timing event right behind the timing event of a segment.
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

/// Whether a segment has a kernel of which nothing is known yet.
fn is_unproven(timing_event: &TimingEvent) -> bool {
    let (parts, used) = parts_of(timing_event);
    parts.iter().take(used).any(|part| COSTS.at(part.index).1 == 0)
}

/// The next place in the ring, with an event; nothing if all timing events are on the way or no event can be made here.
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

/// A new event for a stream's timing events: it is made in the stream's context, or for a green one in the device's primary context.
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
    // SAFETY: an event of ours in the stream's context; the stream is the one that the application just launches on.
    let recorded = unsafe { real::cuEventRecord(event, stream.explicit()) };
    if recorded == Err(CUerror::INVALID_HANDLE) {
        stream_state.cannot_be_measured();
    }
    recorded.is_ok()
}

/// Hands the timing event at the tail to the worker.
fn publish(stream_state: &StreamState) {
    let tail = stream_state.tail.load(Ordering::Relaxed);
    stream_state.tail.store(tail.wrapping_add(1), Ordering::Release);
}

/// Whether the last timing event was reached.
fn newest_is_done(stream_state: &StreamState) -> bool {
    let newest = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed).wrapping_sub(1));
    let event = CUevent(newest.event.load(Ordering::Relaxed));
    event.is_null() || {
        // SAFETY: an event of ours; its context lives, as the application launches in it.
        unsafe { real::cuEventQuery(event) }.is_ok()
    }
}
