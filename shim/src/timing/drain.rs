//! The application waits until a stream has nothing left to do. Then it is idle for certain, and what is launched next
//! begins a segment of its own: the short gaps of a program that waits for each of its kernels are not GPU time.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::lane::now_ns;
use super::streams::Stream;
use super::track::Track;
use super::{Launches, settle};

/// Calls `wait`, which waits for `stream`.
pub(crate) fn stream_drains(stream: Stream, wait: impl FnOnce() -> CUresult) -> CUresult {
    let launches = Launches::made();
    let track = launches.and_then(|launches| launches.tracks.known(stream));
    if let (Some(launches), Some(track)) = (launches, track) {
        launches.drains(track, stream);
    }
    wait()?;
    if let (Some(launches), Some(track)) = (launches, track) {
        drained(track);
        if let Some(lane) = track.lane() {
            // Not to wait for the reaper with work in flight that is done.
            launches.settle_own(lane, track);
        }
    }
    Ok(())
}

/// Calls `wait`, which waits for all streams of `context`; the null handle means the current one.
pub(crate) fn context_drains(context: CUcontext, wait: impl FnOnce() -> CUresult) -> CUresult {
    wait()?;
    let context = if context.is_null() {
        crate::devices::current_context()
    } else {
        context
    };
    if let Some(launches) = Launches::made() {
        let is_its = |track: &&Track| track.context.load(Ordering::Relaxed) == context.0;
        launches.tracks.all().filter(is_its).for_each(drained);
    }
    Ok(())
}

impl Launches {
    /// A segment that can be measured is, while its end is still to come.
    fn drains(&'static self, track: &'static Track, stream: Stream) {
        if let Some(lane) = track.lane()
            && track.chained.load(Ordering::Relaxed)
        {
            self.mark(lane, track, stream, 0);
        }
    }
}

/// All that was launched on the stream is done. What has no mark is charged as predicted, unless that cannot be true.
fn drained(track: &Track) {
    let (Some(lane), Some(_marking)) = (track.lane(), track.try_marking()) else {
        return;
    };
    let is_chained = track.chained.swap(false, Ordering::Relaxed);
    let since_ns = match (is_chained, track.pending()) {
        (false, _) => track.unstarted_since_ns.load(Ordering::Relaxed),
        (true, 0) => track.settled_to_ns.load(Ordering::Relaxed),
        (true, _) => 0,
    };
    let unmarked = track.take_unmarked();
    if unmarked.0 > 0 {
        settle::proved_done(lane, unmarked, since_ns, now_ns());
    }
    track.drop_parts();
    track.is_idle_from_now();
}
