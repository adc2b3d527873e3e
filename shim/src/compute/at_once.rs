//! The short path of a launch in the middle of a segment, as most are. It is paid from the lease and counted. Nothing
//! is measured, waited for or looked up, and nothing is left to do after the driver's call.

use vcuda_limiter::predict::Key;

use super::stream_state::Place;
use super::timing_event::ALONE_NS;
use super::{COSTS, IDLE_NS, Launches, Stream};
use crate::runtime::capture;
use crate::runtime::limits::may_pay_at_once;

/// Pays for a launch and counts it, if nothing else has to be done. Returns `false` if it did nothing: the launch
/// then takes the path of [`Launches::launch`].
///
/// A launch that the driver then refuses stays counted. What it was charged is corrected by the timing event behind its segment, as
/// for any prediction.
#[inline(always)]
pub(crate) fn at_once(
    has_passed_gate: bool,
    function: usize,
    blocks: u64,
    shared_bytes: u32,
    stream: Stream,
) -> bool {
    let Some(launches) = Launches::made() else {
        return false;
    };
    if !may_pay_at_once(has_passed_gate) || capture::any_open() {
        return false;
    }
    launches.pay_at_once(stream, Key::kernel(function, blocks, shared_bytes)).is_some()
}

impl Launches {
    /// As [`at_once`]. `None` if there is more to do.
    #[inline(always)]
    fn pay_at_once(&'static self, stream: Stream, key: Key) -> Option<()> {
        let stream_state = self.streams.at_first_place(stream)?;
        let limiter = self.limiter_of(stream_state)?;
        let predicted = COSTS.find_learnt(key).filter(|known| known.cost_ns < ALONE_NS)?;
        let now_ns = stream_state.clock.now_ns();
        let busy_until_ns = stream_state.busy_until_ns();
        if now_ns > busy_until_ns + IDLE_NS {
            return None;
        }
        let done_ns = busy_until_ns.max(now_ns) + predicted.cost_ns;
        if stream_state.would_end_segment(predicted, limiter.segment_ns()) {
            return None;
        }
        let place = match stream_state.place_of(predicted.index) {
            Some(place) => place,
            None if stream_state.is_told_apart() => return None,
            None => Place::nowhere(),
        };
        if !limiter.meter.spend(predicted.cost_ns) {
            limiter.meter.refund(predicted.cost_ns);
            return None;
        }
        stream_state.count(place, predicted, done_ns);
        Some(())
    }
}
