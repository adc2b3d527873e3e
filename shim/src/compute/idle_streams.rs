//! The application waits until a stream has nothing left to do. Then it is idle for certain, and what is launched next
//! begins a segment of its own: the short gaps of a program that waits for each of its kernels are not GPU time.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::device_limiter::now_ns;
use super::stream_state::StreamState;
use super::{Launches, settle};
use crate::runtime::stream::Stream;

/// Calls `wait`, which waits for `stream`.
pub(crate) fn stream_drains(stream: Stream, wait: impl FnOnce() -> CUresult) -> CUresult {
    let launches = Launches::made();
    let stream_state = launches.and_then(|launches| launches.streams.known(stream));
    if let (Some(launches), Some(stream_state)) = (launches, stream_state) {
        launches.drains(stream_state, stream);
    }
    wait()?;
    if let (Some(launches), Some(stream_state)) = (launches, stream_state) {
        drained(stream_state);
        if let Some(limiter) = stream_state.limiter() {
            // Not to wait for the worker with work in flight that is done.
            launches.settle_own(limiter, stream_state);
        }
    }
    Ok(())
}

/// Calls `wait`, which waits for all streams of `context`; the null handle means the current one.
pub(crate) fn context_drains(context: CUcontext, wait: impl FnOnce() -> CUresult) -> CUresult {
    wait()?;
    let context = if context.is_null() {
        crate::runtime::devices::current_context()
    } else {
        context
    };
    if let Some(launches) = Launches::made() {
        let is_its = |stream_state: &&StreamState| stream_state.context.load(Ordering::Relaxed) == context.0;
        launches.streams.all().filter(is_its).for_each(drained);
    }
    Ok(())
}

impl Launches {
    /// A segment that can be measured is, while its end is still to come.
    fn drains(&'static self, stream_state: &'static StreamState, stream: Stream) {
        if let Some(limiter) = stream_state.limiter()
            && stream_state.chained.load(Ordering::Relaxed)
        {
            self.timing_event(limiter, stream_state, stream, 0);
        }
    }
}

/// All that was launched on the stream is done. What has no timing event is charged as predicted, unless that cannot be true.
fn drained(stream_state: &StreamState) {
    let (Some(limiter), Some(_recording)) = (stream_state.limiter(), stream_state.try_recording()) else {
        return;
    };
    let is_chained = stream_state.chained.swap(false, Ordering::Relaxed);
    let since_ns = match (is_chained, stream_state.pending()) {
        (false, _) => stream_state.unstarted_since_ns.load(Ordering::Relaxed),
        (true, 0) => stream_state.settled_to_ns.load(Ordering::Relaxed),
        (true, _) => 0,
    };
    let unmeasured = stream_state.take_unmeasured();
    if unmeasured.0 > 0 {
        settle::proved_done(limiter, stream_state, unmeasured, since_ns, now_ns());
    }
    stream_state.drop_parts();
    stream_state.is_idle_from_now();
}
