//! A launch in the middle of a segment, as most are: it is paid from the lease and counted, and the driver may be called.
//! Nothing is measured, waited for or looked up for it, and nothing is left to do behind it.

use core::sync::atomic::Ordering;

use vcuda_limiter::predict::Key;

use super::timing_event::ALONE_NS;
use super::{COSTS, IDLE_NS, Launches, Stream, have_limits_changed};
use crate::runtime::{capture, fork};

/// Pays for a launch and counts it, if there is nothing else to do. `false`: nothing was done, and it goes by
/// [`Launches::launch`], which does all that there may be to do.
///
/// A launch that the driver then refuses stays counted. What it was charged is corrected by the timing event behind its segment, as
/// for any prediction.
#[inline(always)]
pub(crate) fn at_once(function: usize, blocks: u64, shared_bytes: u32, stream: Stream) -> bool {
    // SAFETY: null, or the state of this process, which stays.
    let Some(launches) = (unsafe {
        fork::launches()
            .load(Ordering::Acquire)
            .cast::<Launches>()
            .as_ref()
    }) else {
        return false;
    };
    if have_limits_changed() || capture::any_open() {
        return false;
    }
    let key = Key::kernel(function, blocks, shared_bytes);
    launches.pay_at_once(stream, key).is_some()
}

impl Launches {
    /// See [`at_once`]. Nothing if there is more to do.
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
        let place = stream_state.place_within(predicted, limiter.segment_ns())?;
        if !limiter.meter.spend(predicted.cost_ns) {
            limiter.meter.refund(predicted.cost_ns);
            return None;
        }
        stream_state.count(place, predicted, done_ns);
        Some(())
    }
}
