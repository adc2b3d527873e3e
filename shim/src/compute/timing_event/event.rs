//! The driver's events behind timing events: made once for each place in a stream's ring, recorded again and again.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use crate::compute::stream_state::{EVENTS_MAX, StreamState, TimingEvent};
use crate::driver::real;
use crate::runtime::capture;
use crate::runtime::shim::devices::{Pushed, current_context};
use crate::runtime::stream::Stream;

/// The next place in the ring, with an event. `None` if the ring is full or no event can be made here.
pub(super) fn next_event(stream_state: &StreamState) -> Option<&TimingEvent> {
    if stream_state.pending() as usize >= EVENTS_MAX {
        return None;
    }
    let timing_event = stream_state.timing_event(stream_state.tail.load(Ordering::Relaxed));
    if timing_event.event.load(Ordering::Relaxed) == 0 {
        timing_event.event.store(new_event(stream_state)?.0, Ordering::Relaxed);
    }
    Some(timing_event)
}

/// A new event for a stream's timing events, made in the stream's context, or for a green context in the device's
/// primary context.
fn new_event(stream_state: &StreamState) -> Option<CUevent> {
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes a handle or nothing. CU_EVENT_DEFAULT: with timing.
    let make = |event: &mut CUevent| unsafe { real::cuEventCreate(event, 0) };
    if current_context().0 == stream_state.context.load(Ordering::Relaxed) {
        make(&mut event).ok()?;
        return Some(event);
    }
    // A context that any thread may make current.
    let _pushed = Pushed::make_current(CUcontext(stream_state.asked_in.load(Ordering::Relaxed)))?;
    make(&mut event).ok()?;
    Some(event)
}

/// Records a timing event. Returns `false` if the driver refuses, or if a graph would take it up.
pub(super) fn record(stream_state: &StreamState, timing_event: &TimingEvent, stream: Stream) -> bool {
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
pub(super) fn publish(stream_state: &StreamState) {
    let tail = stream_state.tail.load(Ordering::Relaxed);
    stream_state.tail.store(tail.wrapping_add(1), Ordering::Release);
}

/// Whether the newest timing event was reached. The thread's capture mode must allow the question.
pub(in crate::compute) fn newest_is_done(stream_state: &StreamState) -> bool {
    let up_to = u64::from(stream_state.tail.load(Ordering::Relaxed)) + 1;
    if stream_state.done_up_to.load(Ordering::Relaxed) == up_to {
        return true;
    }
    let event = CUevent(stream_state.newest().event.load(Ordering::Relaxed));
    let is_done = event.is_null() || {
        // SAFETY: an event of the shim; its context lives, as the application launches in it.
        unsafe { real::cuEventQuery(event) }.is_ok()
    };
    if is_done {
        stream_state.done_up_to.store(up_to, Ordering::Relaxed);
    }
    is_done
}
