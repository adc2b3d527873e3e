//! The end of streams and contexts: what of their work is not settled is charged, and the worker asks nothing of them any more.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use vcuda_region::clock::now_ns;

use super::proved_done;
use crate::compute::Launches;
use crate::compute::device_limiter::DeviceLimiter;
use crate::compute::stream_state::StreamState;
use crate::compute::timing_event::is_guess;
use crate::runtime::stream::Stream;
use crate::runtime::visits;

impl Launches {
    /// See [`crate::compute::stream_closing`].
    pub(in crate::compute) fn close_stream(&'static self, stream: Stream) {
        let Some(stream_state) = self.streams.known(stream) else {
            return;
        };
        if let Some(limiter) = stream_state.limiter() {
            self.end_segment(limiter, stream_state, stream);
            if let Some(_recording) = stream_state.try_recording() {
                let (count, predicted_ns) = stream_state.take_unmeasured();
                limiter.settle_as_predicted(predicted_ns, count);
            }
        }
        stream_state.orphan();
        visits::wait_for_all();
        self.wake_worker();
    }

    /// See [`crate::compute::context_closing`].
    pub(in crate::compute) fn close_context(&'static self, context: CUcontext) {
        for stream_state in self.streams_of(context) {
            stream_state.closing.store(true, Ordering::SeqCst);
        }
        visits::wait_for_all();
        // Waits for at most one query of the worker: the only wait for a thread of the shim.
        while self.contexts.asking.load(Ordering::SeqCst) == context.0 {
            core::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    /// See [`crate::compute::context_closed`].
    pub(in crate::compute) fn closed_context(&'static self, context: CUcontext, ended: bool) {
        for stream_state in self.streams.all() {
            // Before the context is looked at: another thread may take the entry for a stream of another one.
            let held = stream_state.key.load(Ordering::SeqCst);
            if stream_state.context() != context.0 {
                continue;
            }
            if !ended {
                stream_state.closing.store(false, Ordering::SeqCst);
                continue;
            }
            let Some(limiter) = stream_state.limiter() else {
                continue;
            };
            self.streams.free(stream_state, held, || end_with_context(limiter, stream_state));
        }
        if ended {
            self.contexts.forget(context.0);
            self.limiters.iter().for_each(|limiter| limiter.contexts.forget(context.0));
        }
    }
}

/// Charges what was under way on a stream whose context is gone.
fn end_with_context(limiter: &DeviceLimiter, stream_state: &StreamState) {
    let since_ns = stream_state.at_work_since_ns();
    let is_guess = is_guess(stream_state);
    let on_the_way = stream_state.drop_timing_events();
    let unmeasured = stream_state.take_unmeasured();
    let all = (on_the_way.0 + unmeasured.0, on_the_way.1 + unmeasured.1);
    if all.0 > 0 {
        // No work runs in a context that is gone.
        proved_done(limiter, stream_state, all, (since_ns, now_ns()), is_guess);
    }
    // The events were destroyed with their context.
    for timing_event in &stream_state.timing_events {
        timing_event.event.store(0, Ordering::Relaxed);
    }
    stream_state.context.store(0, Ordering::Relaxed);
}
