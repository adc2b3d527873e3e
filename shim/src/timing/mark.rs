//! When a timing event is recorded: behind a segment of work, and before work that finds its stream idle.

use core::sync::atomic::Ordering;

use vcuda_driver_api::prelude::*;

use super::lane::{Lane, now_ns};
use super::streams::Stream;
use super::track::{BOUNDED, FIRST, GATE, GUESSED, MARKS, MEASURED, Mark, PAIR, START, Track, parts_of};
use super::{COSTS, IDLE_NS, Launches, settle};
use crate::capture;
use crate::devices::Pushed;
use crate::ffi::Call;
use crate::ffi::real;

/// A launch that is predicted to take this long has a mark of its own (ns).
pub(super) const ALONE_NS: u64 = 200_000;
/// A short kernel that is known is measured on an idle stream no more often than this (ns): else marks would cost host-bound
/// programs too much.
const SAMPLE_NS: u64 = 500_000;

/// What the host may be late, so that a kernel of which nothing is known is measured at all (ns).
const UNPROVEN_DOUBT_NS: u64 = 1_000_000;

/// Marks on the way of which the last may be moved on, behind one more wait for the host: the reaper is at the first.
const GATES_MAX: u32 = 4;

impl Launches {
    /// Marks the unmarked work of a stream, if there is any and it can be done now. `window_ns`: how long the host took from
    /// after the start mark until after the launch, if the work was launched on an idle stream. What the host was too late
    /// for to say how long the GPU took stays charged as predicted.
    pub(super) fn mark(
        &'static self,
        lane: &'static Lane,
        track: &'static Track,
        stream: Stream,
        window_ns: u64,
    ) {
        let Some(_marking) = track.try_marking() else {
            return;
        };
        if track.unmarked().0 == 0 {
            return;
        }
        let Some(mark) = next_mark(track) else { return };
        let since_ns = track.unstarted_since_ns.load(Ordering::Relaxed);
        let (count, predicted_ns) = track.take_unmarked();
        track.take_parts(mark);
        let kind = if track.chained.load(Ordering::Relaxed) {
            MEASURED
        } else if since_ns > 0 {
            BOUNDED
        } else {
            GUESSED
        };
        mark.count.store(count, Ordering::Relaxed);
        mark.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        mark.expected_ns
            .store(track.busy_until_ns().max(now_ns()), Ordering::Relaxed);
        // Mark and launch each went to the GPU as the last thing in their calls, for all that is known: the host's time between
        // them is no work. A launch call that took longer may have waited for its kernel (`CUDA_LAUNCH_BLOCKING`): its time
        // counts, but for what the host may be late by itself.
        let is_late = window_ns > IDLE_NS;
        let is_forgiven = !is_late || lane.forgives_lateness(window_ns);
        let gap_ns = if is_forgiven { window_ns } else { 0 };
        let gap_ns = if kind == BOUNDED { since_ns } else { gap_ns };
        mark.gap_ns.store(gap_ns, Ordering::Relaxed);
        if record(track, mark, stream) {
            let doubt_ns = if is_unproven(mark) {
                UNPROVEN_DOUBT_NS
            } else {
                IDLE_NS
            };
            let is_guessed = is_forgiven && window_ns > predicted_ns.max(doubt_ns);
            let kind = if is_guessed { GUESSED } else { kind };
            mark.kind.store(kind, Ordering::Relaxed);
            publish(track);
            if lane.wants_mark_cost() {
                pair(track, stream);
            }
            track.chained.store(true, Ordering::Relaxed);
            if lane.segment_ns() == 0 {
                // Each launch is measured: whether the stream ran dry before the next one is asked, and not predicted.
                track.is_idle_from_now();
            }
        } else {
            lane.presume(predicted_ns, count);
            track.chained.store(false, Ordering::Relaxed);
        }
    }

    /// A launch finds its stream idle, as far as can be known. Elapsed time would count the gap: the next segment starts
    /// here, with a mark of its own if it is to be measured: if `is_due`, or if none was for a while ([`SAMPLE_NS`]). Returns
    /// whether a mark was placed, so that another must follow behind the launch.
    #[cold]
    pub(super) fn resume(
        &'static self,
        lane: &'static Lane,
        track: &'static Track,
        stream: Stream,
        now_ns: u64,
        is_due: bool,
    ) -> bool {
        let Some(_marking) = track.try_marking() else {
            return false;
        };
        if track.pending() > 0 && !newest_is_done(track) {
            // Later than predicted, but not idle: the chain holds.
            return false;
        }
        let overdue_ns = now_ns.saturating_sub(track.busy_until_ns());
        let (count, predicted_ns) = track.take_unmarked();
        if count > 0 && settle::is_longer(lane, predicted_ns, overdue_ns) {
            lane.ended_unseen(now_ns);
        }
        track.drop_parts();
        let follows_mark = track.chained.swap(false, Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(track.sampled_at_ns.load(Ordering::Relaxed));
        // Until a mark says when the next segment begins: no earlier than now.
        track.unstarted_since_ns.store(now_ns, Ordering::Relaxed);
        // Beside neighbours the arbiter must know when there was work, and an event costs less than their slices.
        let is_due = is_due
            || since_ns >= SAMPLE_NS
            || lane.segment_ns() == 0
            || lane.contended.load(Ordering::Relaxed);
        let is_first = track.sampled_at_ns.load(Ordering::Relaxed) == 0;
        let mark = is_due.then(|| next_mark(track)).flatten();
        // What was launched since the mark before is told by this one: see `settle::tail`.
        let is_tail = follows_mark && !is_first && mark.is_some();
        if count > 0 && !is_tail {
            lane.presume(predicted_ns, count);
        }
        let Some(mark) = mark else {
            return false;
        };
        mark.kind
            .store(if is_first { FIRST } else { START }, Ordering::Relaxed);
        mark.gap_ns.store(now_ns, Ordering::Relaxed);
        let (count, predicted_ns) = if is_tail { (count, predicted_ns) } else { (0, 0) };
        mark.count.store(count, Ordering::Relaxed);
        mark.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        mark.expected_ns.store(now_ns, Ordering::Relaxed);
        if !record(track, mark, stream) {
            lane.presume(predicted_ns, count);
            return false;
        }
        let started_ns = super::lane::now_ns();
        track.unstarted_since_ns.store(0, Ordering::Relaxed);
        publish(track);
        track.chained.store(true, Ordering::Relaxed);
        track.sampled_at_ns.store(now_ns, Ordering::Relaxed);
        track.started_at_ns.store(started_ns, Ordering::Relaxed);
        true
    }
}

impl Launches {
    /// A call that lets the stream wait for the host (a host function, a value that the host sets). What was launched
    /// before it is marked before it, and the next segment starts behind it: nobody is charged for the host's time.
    pub(crate) fn feed(&'static self, call: &Call<'_, CUresult>, stream: Stream) -> CUresult {
        if capture::is_capturing(stream.handle, stream.default) {
            return call.real();
        }
        let track = self.tracks.find(&self.lanes, stream);
        let Some((track, lane)) = track.and_then(|track| Some((track, self.lane_of(track)?))) else {
            return call.real();
        };
        self.mark(lane, track, stream, 0);
        call.real()?;
        self.part(track, stream, GATE);
        Ok(())
    }

    /// The next segment begins behind something that is no work of ours, with a mark of `kind` ([`START`], [`GATE`]): nobody
    /// is charged for the time that it takes.
    pub(super) fn part(&'static self, track: &'static Track, stream: Stream, kind: u32) {
        let marking = track.try_marking();
        track.chained.store(false, Ordering::Relaxed);
        // What has no mark yet ends behind the wait for the host: from its first launch on is no bound of its work.
        track.unstarted_since_ns.store(0, Ordering::Relaxed);
        if marking.is_none() || track.unmarked().0 > 0 {
            return;
        }
        if kind == GATE && track.pending() > GATES_MAX {
            let newest = track.mark(track.tail.load(Ordering::Relaxed).wrapping_sub(1));
            if newest.kind.load(Ordering::Relaxed) == GATE {
                // Nothing was launched since: the same mark, further on. Else a program's waits take all places of its work.
                track
                    .chained
                    .store(record(track, newest, stream), Ordering::Relaxed);
                return;
            }
        }
        let Some(mark) = next_mark(track) else { return };
        mark.kind.store(kind, Ordering::Relaxed);
        mark.count.store(0, Ordering::Relaxed);
        mark.predicted_ns.store(0, Ordering::Relaxed);
        // Nobody knows when: the reaper looks at its own pace.
        mark.expected_ns.store(u64::MAX, Ordering::Relaxed);
        if record(track, mark, stream) {
            publish(track);
            track.chained.store(true, Ordering::Relaxed);
            self.wake_reaper();
        }
    }

    /// Whether any stream of this process waits for the host, or will when it comes to that.
    pub(super) fn is_gated(&self) -> bool {
        self.tracks.all().any(Track::is_gated)
    }
}

/// One more start mark right behind the mark of a segment.
fn pair(track: &Track, stream: Stream) {
    let Some(mark) = next_mark(track) else { return };
    mark.kind.store(PAIR, Ordering::Relaxed);
    mark.count.store(0, Ordering::Relaxed);
    mark.predicted_ns.store(0, Ordering::Relaxed);
    mark.expected_ns
        .store(track.busy_until_ns().max(now_ns()), Ordering::Relaxed);
    if record(track, mark, stream) {
        mark.gap_ns.store(now_ns(), Ordering::Relaxed);
        publish(track);
    }
}

/// Whether a segment has a kernel of which nothing is known yet.
fn is_unproven(mark: &Mark) -> bool {
    let (parts, used) = parts_of(mark);
    parts.iter().take(used).any(|part| COSTS.at(part.index).1 == 0)
}

/// The next place in the ring, with an event; nothing if all marks are on the way or no event can be made here.
fn next_mark(track: &Track) -> Option<&Mark> {
    if track.pending() as usize >= MARKS {
        return None;
    }
    let mark = track.mark(track.tail.load(Ordering::Relaxed));
    if mark.event.load(Ordering::Relaxed) == 0 {
        mark.event.store(new_event(track)?.0, Ordering::Relaxed);
    }
    Some(mark)
}

/// A new event for a stream's marks: it is made in the stream's context, or for a green one in the device's primary context.
fn new_event(track: &Track) -> Option<CUevent> {
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes a handle or nothing. CU_EVENT_DEFAULT: with timing.
    let make = |event: &mut CUevent| unsafe { real::cuEventCreate(event, 0) };
    if crate::devices::current_context().0 == track.context.load(Ordering::Relaxed) {
        make(&mut event).ok()?;
        return Some(event);
    }
    // A context that any thread may make current.
    let _pushed = Pushed::make_current(CUcontext(track.asked_in.load(Ordering::Relaxed)))?;
    make(&mut event).ok()?;
    Some(event)
}

fn record(track: &Track, mark: &Mark, stream: Stream) -> bool {
    if capture::is_captured(stream.handle, stream.default) {
        return false;
    }
    let event = CUevent(mark.event.load(Ordering::Relaxed));
    // SAFETY: an event of ours in the stream's context; the stream is the one that the application just launches on.
    let recorded = unsafe { real::cuEventRecord(event, stream.explicit()) };
    if recorded == Err(CUerror::INVALID_HANDLE) {
        track.unmeasurable.store(true, Ordering::Relaxed);
    }
    recorded.is_ok()
}

/// Hands the mark at the tail to the reaper.
fn publish(track: &Track) {
    let tail = track.tail.load(Ordering::Relaxed);
    track.tail.store(tail.wrapping_add(1), Ordering::Release);
}

/// Whether the last mark was reached.
fn newest_is_done(track: &Track) -> bool {
    let newest = track.mark(track.tail.load(Ordering::Relaxed).wrapping_sub(1));
    let event = CUevent(newest.event.load(Ordering::Relaxed));
    event.is_null() || {
        // SAFETY: an event of ours; its context lives, as the application launches in it.
        unsafe { real::cuEventQuery(event) }.is_ok()
    }
}
