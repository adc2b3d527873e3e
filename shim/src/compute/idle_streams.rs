//! Calls by which the application waits until a stream has nothing left to do. The stream is idle then, and the next
//! launch begins a new segment. So the short gaps of a program that waits for each of its kernels are not counted as
//! GPU time.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use vcuda_region::clock::now_ns;

use super::device_limiter::DeviceLimiter;
use super::stream_state::StreamState;
use super::{COSTS, Launches, settle, timing_event};
use crate::driver::Relaxed;
use crate::runtime::shim::devices::current_context;
use crate::runtime::stream::Stream;
use crate::runtime::{capture, visits};

/// Calls `wait`, which waits for `stream`.
pub(crate) fn stream_drains(stream: Stream, wait: impl FnOnce() -> CUresult) -> CUresult {
    let launches = Launches::made();
    let stream_state = launches.and_then(|launches| launches.streams.known(stream));
    if let (Some(launches), Some(stream_state)) = (launches, stream_state) {
        launches.drains(stream_state, stream);
    }
    wait()?;
    if let (Some(launches), Some(stream_state)) = (launches, stream_state) {
        launches.drained(stream_state);
    }
    Ok(())
}

/// Calls `wait`, which waits for all streams of `context`; the null handle means the current one.
pub(crate) fn context_drains(context: CUcontext, wait: impl FnOnce() -> CUresult) -> CUresult {
    let context = if context.is_null() { current_context() } else { context };
    let launches = Launches::made();
    if let Some(launches) = launches {
        launches.end_segments(context, true);
    }
    wait()?;
    if let Some(launches) = launches {
        let of_context = launches.streams_of(context);
        of_context.for_each(|stream_state| launches.drained(stream_state));
    }
    Ok(())
}

/// Calls `wait`, which waits for an event, thus for some stream of the current context.
pub(crate) fn event_is_reached(wait: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(launches) = Launches::made() {
        launches.end_segments(current_context(), false);
    }
    wait()
}

impl Launches {
    /// Ends the running segment, if it can be measured, and beside neighbours those of the context's other streams, which may run
    /// dry while the thread waits.
    fn drains(&'static self, stream_state: &'static StreamState, stream: Stream) {
        if let Some(limiter) = stream_state.limiter()
            && stream_state.chained.load(Ordering::Relaxed)
        {
            self.end_segment(limiter, stream_state, stream);
        }
        self.end_segments(CUcontext(stream_state.context()), false);
    }

    /// Beside neighbours, ends the running segments of a context's streams. Alone only those that can be measured, if the thread
    /// `waits_for_all`.
    fn end_segments(&'static self, context: CUcontext, waits_for_all: bool) {
        for stream_state in self.streams_of(context) {
            let Some(limiter) = stream_state.limiter() else {
                continue;
            };
            let is_measurable = waits_for_all && stream_state.chained.load(Ordering::Relaxed);
            if is_measurable || limiter.contended.load(Ordering::Relaxed) {
                self.end_others_segment(limiter, stream_state);
            }
        }
    }

    /// Ends the running segment of a stream that other threads may use. Returns `false` if this thread cannot name the stream.
    pub(super) fn end_others_segment(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
    ) -> bool {
        self.with_others_stream(stream_state, |stream| {
            self.end_segment(limiter, stream_state, stream);
        })
    }

    /// Does `action` with a stream that other threads may use, and that is not destroyed meanwhile. Returns `false`, without it, if a
    /// capture is open or this thread cannot name the stream (another thread's default stream).
    pub(super) fn with_others_stream(
        &'static self,
        stream_state: &'static StreamState,
        action: impl FnOnce(Stream),
    ) -> bool {
        let mut is_named = false;
        visits::visit(|| {
            let stream =
                Stream::of_key(stream_state.key.load(Ordering::SeqCst)).filter(|_| !capture::any_open());
            is_named = stream.is_some();
            if let Some(stream) = stream {
                action(stream);
            }
        });
        is_named
    }

    /// All that was launched on the stream is done. The timing events on the way were reached: they are settled first. Launches behind
    /// the last one are charged as predicted, unless that cannot be true.
    pub(super) fn drained(&'static self, stream_state: &'static StreamState) {
        let Some(limiter) = stream_state.limiter() else {
            return;
        };
        self.settle_own(limiter, stream_state);
        // After settling, which may have corrected it.
        let busy_until_ns = stream_state.busy_until_ns();
        let Some(_recording) = stream_state.try_recording() else {
            return;
        };
        if stream_state.pending() > 0 {
            let _relaxed = Relaxed::enter();
            if !timing_event::newest_is_done(stream_state) {
                // Another thread has launched meanwhile: the stream is not idle, and its segment goes on.
                return;
            }
        }
        if stream_state.pending() == 0 {
            stream_state.lesson.lock().end(&COSTS);
        }
        let since_ns = if stream_state.chained.load(Ordering::Relaxed) {
            stream_state.at_work_since_ns()
        } else {
            stream_state.unstarted_since_ns.load(Ordering::Relaxed)
        };
        let now = now_ns();
        stream_state.was_waited_for.store(true, Ordering::Relaxed);
        stream_state.chained.store(false, Ordering::Relaxed);
        // A launch that another thread makes right now belongs to no segment: it began no earlier than now.
        stream_state.unstarted_since_ns.store(now, Ordering::Relaxed);
        let unmeasured = stream_state.take_unmeasured();
        if unmeasured.0 > 0 {
            settle::proved_done(limiter, stream_state, unmeasured, (since_ns, now), false);
        }
        stream_state.drop_parts();
        stream_state.is_idle_unless_extended(busy_until_ns);
    }
}
