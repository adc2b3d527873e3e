//! Settling: what marks that were reached say about the work before them. One thread at a time does this: the reaper, or one
//! that is held.

use core::sync::atomic::{AtomicBool, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::controller::View;
use vcuda_limiter::predict::LEARNT;
use vcuda_limiter::{Refinement, busy};
use vcuda_region::MAX_DEVICES;

use super::context::Reached;
use super::lane::{BALANCE, Lane, WINDOW, now_ns};
use super::streams::Stream;
use super::track::{BOUNDED, FIRST, GUESSED, MEASURED, Mark, PAIR, START, Track, parts_of};
use super::{COSTS, Launches};
use crate::devices::Pushed;
use crate::ffi::{Relaxed, real};

/// A running segment is entered in the busy map in steps of this (ns), so that the arbiter sees long kernels too.
const ENTER_NS: u64 = 500_000;
/// What the host's clock may be ahead of an event's (ns).
const CLOCK_DOUBT_NS: u64 = 50_000;
/// By how much an unmeasured segment may be later than twice its prediction (ns), alone and beside neighbours, whose slices it may
/// wait for: below that the launch's own way to the GPU may be the reason, and the prediction stands.
const UNMEASURED_DOUBT_NS: (u64, u64) = (50_000, 5_000_000);
/// What is returned to the balance wakes those who wait for it if it is so much (ns).
const RETURNED_NS: u64 = 100_000;
/// A tail that never gets a mark counts as done after this many times its prediction, and this (ns).
const TAIL_TIMES: u64 = 4;
const TAIL_NS: u64 = 10_000_000;

/// What a pass over the streams found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pass {
    /// Marks were reached.
    pub(crate) progress: bool,
    /// What was paid for the work before them and not used (ns).
    returned_ns: u64,
    /// Marks, or launches without a mark, are on the way.
    pub(crate) outstanding: bool,
    /// When the next mark should be reached (`CLOCK_MONOTONIC`, ns); 0 if none is on the way.
    pub(crate) next_ns: u64,
    /// Somebody waits for it: another process of the container, or a launch that needs more than its own stream's work. Or
    /// what is predicted does not hold: after a surprise.
    pub(crate) urgent: bool,
}

impl Pass {
    /// Work is on the way that is to be looked at again at `at_ns` (`CLOCK_MONOTONIC`, ns).
    fn look_at(&mut self, at_ns: u64) {
        self.outstanding = true;
        if self.next_ns == 0 || at_ns < self.next_ns {
            self.next_ns = at_ns;
        }
    }

    /// Who among the held is to look again. The end of a wait for the balance is known: it moves only by what was returned.
    fn reasons(&self) -> u32 {
        if self.returned_ns >= RETURNED_NS {
            WINDOW | BALANCE
        } else {
            WINDOW
        }
    }
}

/// The right to settle.
#[derive(Debug)]
struct Settling<'a> {
    flag: &'a AtomicBool,
}

impl<'a> Settling<'a> {
    /// The right, if no other thread has it. Tried, never waited for.
    fn try_take(flag: &'a AtomicBool) -> Option<Self> {
        // Made only by who has it: dropped, it would take it from who has.
        (!flag.swap(true, Ordering::Acquire)).then(|| Self { flag })
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

impl Launches {
    /// Looks at every stream once. For the reaper: it changes the thread's current context.
    pub(crate) fn settle(&'static self) -> Pass {
        let mut pass = Pass::default();
        let Some(_settling) = Settling::try_take(&self.settling) else {
            // A held thread settles its own stream; that is soon done.
            pass.outstanding = true;
            return pass;
        };
        let now = now_ns();
        let mut views = [const { None::<View> }; MAX_DEVICES];
        for track in self.tracks.all() {
            let Some(lane) = track.lane() else { continue };
            let Some(view) = views.get_mut(lane.position()) else {
                continue;
            };
            pass.urgent |= lane.surprise.is_recent();
            let attended_ns = track.attended_until_ns.load(Ordering::Relaxed);
            if attended_ns > now {
                pass.look_at(attended_ns);
                continue;
            }
            pass.urgent |= lane.is_awaited();
            if track.pending() > 0 {
                let view = view.get_or_insert_with(|| lane.view(now));
                let context = track.context.load(Ordering::Relaxed);
                // Pairs with `close_context`: either it sees that we ask, or we see that it closes.
                if self.contexts.asking.swap(context, Ordering::SeqCst) != context {
                    let asked_in = CUcontext(track.asked_in.load(Ordering::Relaxed));
                    // SAFETY: the thread is ours alone; the context lives, or the driver says that it does not.
                    let _ = unsafe { real::cuCtxSetCurrent(asked_in) };
                }
                self.settle_track(lane, view, track, &mut pass);
            } else {
                self.settle_tail(lane, track, &mut pass);
            }
        }
        self.contexts.asking.store(0, Ordering::SeqCst);
        if pass.progress {
            for lane in &self.lanes {
                lane.wake_waiters(pass.reasons());
            }
        }
        pass
    }

    /// Whether any work is on the way, marked or not.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.tracks
            .all()
            .any(|track| track.pending() > 0 || track.unmarked().0 > 0)
    }

    /// A launch is about to be held, or is: settles what is done on its own stream, so that it need not wait for the reaper
    /// to notice.
    pub(super) fn settle_own(&'static self, lane: &Lane, track: &Track) -> Pass {
        let mut pass = Pass::default();
        let context = track.context.load(Ordering::Relaxed);
        if track.pending() == 0 {
            return pass;
        }
        let Some(_settling) = Settling::try_take(&self.settling) else {
            return pass;
        };
        let _relaxed = Relaxed::enter();
        // Before the context is made current: see `settle`.
        self.contexts.asking.store(context, Ordering::SeqCst);
        let is_current = crate::devices::current_context().0 == context;
        let asked_in = CUcontext(track.asked_in.load(Ordering::Relaxed));
        let _pushed = if is_current {
            None
        } else {
            Pushed::make_current(asked_in)
        };
        self.settle_track(lane, &lane.view(now_ns()), track, &mut pass);
        self.contexts.asking.store(0, Ordering::SeqCst);
        if pass.progress {
            lane.wake_waiters(pass.reasons());
        }
        pass
    }

    fn settle_track(&'static self, lane: &Lane, view: &View, track: &Track, pass: &mut Pass) {
        let context = track.context.load(Ordering::Relaxed);
        while track.pending() > 0 {
            if track.closing.load(Ordering::SeqCst) {
                return;
            }
            let head = track.head.load(Ordering::Relaxed);
            let mark = track.mark(head);
            // SAFETY: an event of ours; its context lives, see above.
            let answer = unsafe { real::cuEventQuery(CUevent(mark.event.load(Ordering::Relaxed))) };
            let seen_ns = now_ns();
            match answer {
                Ok(()) => match self.contexts.reached_at(context, mark, seen_ns) {
                    Some(Reached { at_ns, earlier_ns }) => {
                        if earlier_ns > 0 {
                            self.tracks_of(CUcontext(context))
                                .for_each(|track| track.settled_earlier(earlier_ns));
                        }
                        pass.returned_ns += reached(lane, view, track, mark, at_ns);
                    }
                    None => guess(lane, track, mark),
                },
                Err(CUerror::NOT_READY) => {
                    enter(lane, view, track, mark, seen_ns);
                    let look_ns = track.next_look_ns(mark, seen_ns, lane.surprise.is_recent());
                    pass.look_at(look_ns);
                    return;
                }
                // A broken context answers everything with its error.
                Err(_) => guess(lane, track, mark),
            }
            track.head.store(head.wrapping_add(1), Ordering::Release);
            pass.progress = true;
        }
        if track.is_orphan() {
            track.free();
        }
    }

    /// Launches that no mark follows: after a while they count as done, charged as predicted.
    fn settle_tail(&self, lane: &Lane, track: &Track, pass: &mut Pass) {
        let (count, predicted_ns) = track.unmarked();
        if count == 0 {
            if track.is_orphan() {
                track.free();
            }
            return;
        }
        let now = now_ns();
        let done_ns = track.busy_until_ns() + TAIL_NS + TAIL_TIMES * predicted_ns;
        if now < done_ns {
            pass.look_at(done_ns);
            return;
        }
        let Some(_marking) = track.try_marking() else {
            return;
        };
        let (count, predicted_ns) = track.take_unmarked();
        track.drop_parts();
        track.chained.store(false, Ordering::Relaxed);
        lane.presume(predicted_ns, count);
        lane.ended_unseen(now);
        pass.progress = true;
    }

    /// See [`super::stream_closing`].
    pub(super) fn close_stream(&'static self, stream: Stream) {
        let Some(track) = self.tracks.known(stream) else {
            return;
        };
        if let Some(lane) = track.lane() {
            self.mark(lane, track, stream, 0);
            let Some(_marking) = track.try_marking() else {
                return;
            };
            let (count, predicted_ns) = track.take_unmarked();
            lane.presume(predicted_ns, count);
        }
        track.orphan();
        self.wake_reaper();
    }

    /// See [`super::context_closing`].
    pub(super) fn close_context(&'static self, context: CUcontext) {
        for track in self.tracks_of(context) {
            track.closing.store(true, Ordering::SeqCst);
        }
        // One query of the reaper: the only wait for a thread of ours.
        while self.contexts.asking.load(Ordering::SeqCst) == context.0 {
            core::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    /// See [`super::context_closed`].
    pub(super) fn closed_context(&'static self, context: CUcontext, ended: bool) {
        for track in self.tracks_of(context) {
            if !ended {
                track.closing.store(false, Ordering::SeqCst);
                continue;
            }
            let Some(lane) = track.lane() else {
                continue;
            };
            while track.pending() > 0 {
                let head = track.head.load(Ordering::Relaxed);
                guess(lane, track, track.mark(head));
                track.head.store(head.wrapping_add(1), Ordering::Release);
            }
            let (count, predicted_ns) = track.take_unmarked();
            lane.presume(predicted_ns, count);
            // The events went with their context.
            for mark in &track.marks {
                mark.event.store(0, Ordering::Relaxed);
            }
            track.context.store(0, Ordering::Relaxed);
            track.free();
        }
        if ended {
            self.contexts.forget(context.0);
        }
    }

    fn tracks_of(&'static self, context: CUcontext) -> impl Iterator<Item = &'static Track> {
        self.tracks
            .all()
            .filter(move |track| track.context.load(Ordering::Relaxed) == context.0)
    }
}

/// A mark was reached at `at_ns`: its segment took the time since the mark before. Returns what of its price goes back (ns).
fn reached(lane: &Lane, view: &View, track: &Track, mark: &Mark, at_ns: u64) -> u64 {
    let mut returned_ns = 0;
    let kind = mark.kind.load(Ordering::Relaxed);
    let from_ns = track.settled_to_ns.load(Ordering::Relaxed);
    if kind == MEASURED && from_ns != 0 {
        // An idle device reaches the start mark at once and then waits for the launch. A shared one may reach it late.
        let gap_ns = if view.contended || !Refinement::HostGap.is_used() {
            0
        } else {
            mark.gap_ns.load(Ordering::Relaxed)
        };
        // While the GPU was at the start mark the host was not late yet.
        let no_work_ns = gap_ns.max(lane.mark_cost_ns());
        let from_ns = from_ns + no_work_ns.min(at_ns.saturating_sub(from_ns) / 2);
        let entered_to_ns = track.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
        let entered_ns = track.entered_charge_ns.load(Ordering::Relaxed);
        let rest_ns = charge(lane, view, entered_to_ns, at_ns);
        let elapsed_ns = at_ns.saturating_sub(from_ns);
        let paid_ns = mark.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
        let charged_ns = entered_ns + rest_ns;
        post(lane, view, mark, paid_ns, charged_ns, elapsed_ns);
        returned_ns = paid_ns.saturating_sub(charged_ns);
    } else if kind == BOUNDED && is_past_doubt(lane, mark, at_ns) {
        let from_ns = mark.gap_ns.load(Ordering::Relaxed);
        let entered_to_ns = track.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
        let entered_ns = track.entered_charge_ns.load(Ordering::Relaxed);
        let charged_ns = entered_ns + charge(lane, view, entered_to_ns, at_ns.max(entered_to_ns));
        let paid_ns = mark.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
        post(
            lane,
            view,
            mark,
            paid_ns,
            charged_ns,
            at_ns.saturating_sub(from_ns),
        );
        returned_ns = paid_ns.saturating_sub(charged_ns);
    } else if matches!(kind, MEASURED | GUESSED | BOUNDED) {
        guess(lane, track, mark);
    } else if kind == START {
        tail(lane, view, track, mark, at_ns);
    } else if kind == PAIR && from_ns >= mark.gap_ns.load(Ordering::Relaxed) {
        // Both were queued before the first was reached: the host was not late for the second.
        lane.note_mark_cost(at_ns.saturating_sub(from_ns));
    } else if kind == FIRST {
        let recorded_ns = mark.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
        let from_ns = track.entered_to_ns.load(Ordering::Relaxed).max(recorded_ns);
        let rest_ns = charge(lane, view, from_ns, at_ns.max(from_ns));
        lane.account.settle(0, rest_ns, 1000);
        let entered_ns = track.entered_charge_ns.load(Ordering::Relaxed);
        lane.meter
            .charged_ns
            .fetch_add(entered_ns + rest_ns, Ordering::Relaxed);
    }
    track.ran_until(at_ns);
    track.settled_to_ns.store(at_ns, Ordering::Relaxed);
    track.entered_to_ns.store(at_ns, Ordering::Relaxed);
    track.entered_charge_ns.store(0, Ordering::Relaxed);
    returned_ns
}

/// What was launched behind the mark before and has no mark of its own was done when this start mark was reached at `at_ns`. If the
/// start mark had to wait for it, that is its end. Else it ended at some time before, and is charged as predicted. Beside neighbours a
/// start mark may wait for a time slice.
fn tail(lane: &Lane, view: &View, track: &Track, mark: &Mark, at_ns: u64) {
    let predicted_ns = mark.predicted_ns.load(Ordering::Relaxed);
    let from_ns = track.settled_to_ns.load(Ordering::Relaxed);
    if predicted_ns == 0 {
        return;
    }
    if from_ns == 0 {
        guess(lane, track, mark);
        return;
    }
    let recorded_ns = mark.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
    let to_ns = if at_ns > recorded_ns && !view.contended {
        at_ns
    } else {
        // Predictions are GPU time: as much as counts of the time that passes.
        let passes_ns = predicted_ns.saturating_mul(1000) / u64::from(view.scale_permille.max(1));
        at_ns.min(from_ns.saturating_add(passes_ns))
    };
    let to_ns = to_ns.max(from_ns);
    replace(
        lane,
        view,
        (mark.count.load(Ordering::Relaxed), predicted_ns),
        (from_ns, to_ns),
    );
}

/// Whether a segment without a start mark, not or just reached at `at_ns`, is charged by its upper bound, see [`is_longer`].
fn is_past_doubt(lane: &Lane, mark: &Mark, at_ns: u64) -> bool {
    let bound_ns = at_ns.saturating_sub(mark.gap_ns.load(Ordering::Relaxed));
    is_longer(lane, mark.predicted_ns.load(Ordering::Relaxed), bound_ns)
}

/// Whether work that was not measured took so much longer than predicted that it is charged by its upper bound (ns): the time since
/// its first launch.
pub(super) fn is_longer(lane: &Lane, predicted_ns: u64, bound_ns: u64) -> bool {
    let (alone_ns, beside_ns) = UNMEASURED_DOUBT_NS;
    let doubt_ns = if lane.contended.load(Ordering::Relaxed) {
        beside_ns
    } else {
        alone_ns
    };
    bound_ns > 2 * predicted_ns + doubt_ns
}

/// Launches that no mark follows, made no earlier than `since_ns` (0: not known), are done at `now_ns`: charged by their upper bound if
/// that is so much longer ([`is_longer`]), else as predicted.
pub(super) fn proved_done(lane: &Lane, (count, predicted_ns): (u32, u64), since_ns: u64, now_ns: u64) {
    let bound_ns = now_ns.saturating_sub(since_ns);
    if since_ns == 0 || !is_longer(lane, predicted_ns, bound_ns) {
        lane.presume(predicted_ns, count);
        return;
    }
    lane.ended_unseen(now_ns);
    replace(
        lane,
        &lane.view(now_ns),
        (count, predicted_ns),
        (since_ns, now_ns),
    );
}

/// Launches are done that ran at some time in a span (`CLOCK_MONOTONIC`, ns): charges what counts of that, no less than was paid.
fn replace(lane: &Lane, view: &View, (count, predicted_ns): (u32, u64), (from_ns, to_ns): (u64, u64)) {
    // Where other work of the tenant was entered then, the prediction stands: this may have run before or after.
    let charged_ns = charge(lane, view, from_ns, to_ns).max(predicted_ns);
    lane.account.settle(predicted_ns, charged_ns, 1000);
    lane.meter.finish(predicted_ns, count);
    lane.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
}

/// Nobody knows how long the segment took: it stays charged as predicted.
fn guess(lane: &Lane, track: &Track, mark: &Mark) {
    track.settled_to_ns.store(0, Ordering::Relaxed);
    track.entered_charge_ns.store(0, Ordering::Relaxed);
    lane.presume(
        mark.predicted_ns.load(Ordering::Relaxed),
        mark.count.load(Ordering::Relaxed),
    );
}

/// The first mark of a stream was not reached yet: enters the time up to now in the busy map. What is beyond its prediction
/// is charged now: a container whose work runs late earns meanwhile, and what it earned would be cut as unused, and then
/// charged all the same.
fn enter(lane: &Lane, view: &View, track: &Track, mark: &Mark, seen_ns: u64) {
    let from_ns = match mark.kind.load(Ordering::Relaxed) {
        MEASURED => track.settled_to_ns.load(Ordering::Relaxed),
        FIRST => mark.gap_ns.load(Ordering::Relaxed),
        BOUNDED if is_past_doubt(lane, mark, seen_ns) => mark.gap_ns.load(Ordering::Relaxed),
        _ => 0,
    };
    if from_ns == 0 {
        return;
    }
    let entered_to_ns = track.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
    let to_ns = seen_ns.saturating_sub(CLOCK_DOUBT_NS);
    if to_ns < entered_to_ns + ENTER_NS {
        return;
    }
    let charged_ns = charge(lane, view, entered_to_ns, to_ns);
    track.entered_to_ns.store(to_ns, Ordering::Relaxed);
    let before_ns = track.entered_charge_ns.fetch_add(charged_ns, Ordering::Relaxed);
    let predicted_ns = mark.predicted_ns.load(Ordering::Relaxed);
    let paid = |entered_ns: u64| predicted_ns.max(entered_ns);
    lane.account
        .settle(paid(before_ns), paid(before_ns + charged_ns), 1000);
}

/// Enters a span in the busy map; what of it counts (ns).
#[inline(never)]
pub(super) fn charge(lane: &Lane, view: &View, from_ns: u64, to_ns: u64) -> u64 {
    let elapsed_ns = to_ns.saturating_sub(from_ns);
    let fresh_ns = busy::mark(&lane.account.busy, from_ns, to_ns).charge_ns(elapsed_ns);
    let served_ns = view.scaled(fresh_ns);
    lane.account.count_measured(elapsed_ns, fresh_ns, served_ns);
    served_ns
}

/// Replaces what was paid for a segment by what it took, and learns from it.
fn post(lane: &Lane, view: &View, mark: &Mark, paid_ns: u64, charged_ns: u64, elapsed_ns: u64) {
    let (predicted_ns, count) = (
        mark.predicted_ns.load(Ordering::Relaxed),
        mark.count.load(Ordering::Relaxed),
    );
    lane.account.settle(paid_ns, charged_ns, 1000);
    lane.meter.finish(predicted_ns, count);
    lane.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
    lane.meter
        .mispredicted_ns
        .fetch_add(predicted_ns.abs_diff(charged_ns), Ordering::Relaxed);
    // Kernels of several streams that ran together took their time each, though it is charged once.
    let took_ns = view.scaled(elapsed_ns);
    let (parts, used) = parts_of(mark);
    let parts = parts.get(..used).unwrap_or(&parts);
    let counted: u64 = parts.iter().map(|part| u64::from(part.count)).sum();
    if counted == u64::from(count) {
        let predicted_now_ns = parts
            .iter()
            .map(|part| COSTS.at(part.index).0 * u64::from(part.count))
            .sum();
        if parts.iter().all(|part| COSTS.at(part.index).1 >= LEARNT) {
            lane.surprise.note(predicted_now_ns, took_ns);
        }
        COSTS.learn(parts, predicted_now_ns, took_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_settles_however_often_others_ask() {
        let flag = AtomicBool::new(false);
        let mine = Settling::try_take(&flag);
        assert!(mine.is_some());
        for _ in 0..3 {
            assert!(Settling::try_take(&flag).is_none());
        }
        drop(mine);
        assert!(Settling::try_take(&flag).is_some());
    }
}
