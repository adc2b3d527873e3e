//! Streams that wait for the host. Its time is no work of the tenant, so the next segment starts behind the wait.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::event::{next_event, publish, record};
use super::start::first;
use crate::compute::Launches;
use crate::compute::device_limiter::DeviceLimiter;
use crate::compute::stream_state::{AT_MOST, BOUNDED, HOST_WAIT, MEASURED, StreamState, TimingEvent};
use crate::driver::Call;
use crate::runtime::capture;
use crate::runtime::stream::Stream;

/// Timing events on the way beyond which the last is moved behind one more wait for the host. The worker is busy with
/// the first.
const HOST_WAITS_MAX: u32 = 4;

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
        self.apart(limiter, stream_state, stream, (call, HOST_WAIT))
    }

    /// Makes a call that puts an operation into the stream that is no work of the tenant: its time is not charged. Work launched before
    /// it is measured before it, and the next segment begins behind it, with a timing event of `kind`
    /// ([`START`](crate::compute::stream_state::START), [`HOST_WAIT`]).
    pub(in crate::compute) fn apart(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        (call, kind): (&Call<'_, CUresult>, u32),
    ) -> CUresult {
        self.end_segment(limiter, stream_state, stream);
        if !stream_state.has_first.load(Ordering::Relaxed) {
            first(stream_state, stream);
        }
        stream_state.host_waits.during(|| call.real())?;
        self.begin_behind(stream_state, stream, kind);
        Ok(())
    }

    fn begin_behind(&'static self, stream_state: &'static StreamState, stream: Stream, kind: u32) {
        let recording = stream_state.try_recording();
        if recording.is_none() || stream_state.unmeasured().0 > 0 {
            // Another thread launches: whether before the operation or behind it is not known ([`AT_MOST`]).
            return;
        }
        let mark = stream_state.host_waits.mark();
        if kind == HOST_WAIT && stream_state.pending() > HOST_WAITS_MAX {
            let newest = stream_state.newest();
            if newest.kind.load(Ordering::Relaxed) == HOST_WAIT {
                // No work was launched since: the same timing event is moved behind. Else a program's waits would
                // take all places of the ring.
                stream_state.chained.store(record(stream_state, newest, stream), Ordering::Relaxed);
                stream_state.host_waits.segment_from(mark);
                return;
            }
        }
        let Some(timing_event) = next_event(stream_state) else {
            // The next segment includes the operation, so that nothing behind it goes as predicted ([`AT_MOST`]).
            return;
        };
        stream_state.chained.store(false, Ordering::Relaxed);
        stream_state.unstarted_since_ns.store(0, Ordering::Relaxed);
        // The time is not known: the worker queries at its own interval.
        timing_event.describe(kind, (0, 0), u64::MAX);
        if record(stream_state, timing_event, stream) {
            publish(stream_state);
            stream_state.host_waits.segment_from(mark);
            stream_state.chained.store(true, Ordering::Relaxed);
            self.wake_worker();
        }
    }

    /// Work runs longer than predicted: if it may be queued behind a stream that waits for the host, its time is an upper bound
    /// ([`AT_MOST`]). A context's legacy default stream waits for its other streams, and they for it (CUDA Driver API, "Stream
    /// synchronization behavior").
    pub(in crate::compute) fn doubt_if_behind_host_wait(
        &'static self,
        limiter: &DeviceLimiter,
        stream_state: &StreamState,
        timing_event: &TimingEvent,
        seen_ns: u64,
    ) {
        let kind = timing_event.kind.load(Ordering::Relaxed);
        let predicted_ns = timing_event.predicted_ns.load(Ordering::Relaxed);
        let since_ns = stream_state.at_work_since_ns();
        let ran_ns = seen_ns.saturating_sub(since_ns);
        let is_timed = since_ns != 0 && matches!(kind, MEASURED | BOUNDED);
        if is_timed && ran_ns > limiter.waits_from_ns(predicted_ns, seen_ns) {
            let is_before = |other: &&StreamState| {
                (stream_state.is_legacy() || other.is_legacy()) && !core::ptr::eq(*other, stream_state)
            };
            let mut before = self.streams_of(CUcontext(stream_state.context())).filter(is_before);
            if before.any(StreamState::waits_for_host_now) {
                if kind == MEASURED {
                    // It begins at the event before.
                    timing_event.gap_ns.store(0, Ordering::Relaxed);
                }
                timing_event.kind.store(AT_MOST, Ordering::Relaxed);
            }
        }
    }

    /// Whether any stream of this process waits for the host, or will once it reaches such an operation.
    pub(in crate::compute) fn waits_for_host(&self) -> bool {
        self.streams.all().any(StreamState::waits_for_host)
    }
}
