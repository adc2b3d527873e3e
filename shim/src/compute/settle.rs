//! Settling: what timing events that were reached say about the work before them. One thread at a time does this: the worker, or one
//! that is held.

use core::sync::atomic::{AtomicBool, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::controller::View;
use vcuda_limiter::predict::LEARNT;
use vcuda_limiter::{Refinement, busy};
use vcuda_region::MAX_DEVICES;

use super::device_limiter::{DeviceLimiter, TOKENS, WINDOW, now_ns};
use super::event_clock::Reached;
use super::stream_state::{
    BOUNDED, FIRST, MEASURED, PAIR, PREDICTED, START, StreamState, TimingEvent, parts_of,
};
use super::stream_table::Stream;
use super::{COSTS, Launches};
use crate::driver::{Relaxed, real};
use crate::runtime::devices::Pushed;

/// A running segment is entered in the busy map in steps of this (ns), so that the arbiter sees long kernels too.
const ENTER_NS: u64 = 500_000;
/// What the host's clock may be ahead of an event's (ns).
const CLOCK_DOUBT_NS: u64 = 50_000;
/// By how much an unmeasured segment may be later than twice its prediction (ns), alone and beside neighbours, whose slices it may
/// wait for: below that the launch's own way to the GPU may be the reason, and the prediction stands.
const UNMEASURED_DOUBT_NS: (u64, u64) = (50_000, 5_000_000);
/// What is returned to the tokens wakes those who wait for it if it is so much (ns).
const RETURNED_NS: u64 = 100_000;
/// A tail that never gets a timing event counts as done after this many times its prediction, and this (ns).
const TAIL_TIMES: u64 = 4;
const TAIL_NS: u64 = 10_000_000;

/// What a pass over the streams found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pass {
    /// Marks were reached.
    pub(crate) progress: bool,
    /// What was paid for the work before them and not used (ns).
    returned_ns: u64,
    /// Marks, or launches without a timing event, are on the way.
    pub(crate) outstanding: bool,
    /// When the next timing event should be reached (`CLOCK_MONOTONIC`, ns); 0 if none is on the way.
    pub(crate) next_ns: u64,
    /// Somebody waits for it: another process of the container, or a launch that needs more than its own stream's work. Or
    /// what is predicted does not hold: after a misprediction.
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

    /// Who among the held is to look again. The end of a wait for the tokens is known: it moves only by what was returned.
    fn reasons(&self) -> u32 {
        if self.returned_ns >= RETURNED_NS {
            WINDOW | TOKENS
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
    /// Looks at every stream once. For the worker: it changes the thread's current context.
    pub(crate) fn settle(&'static self) -> Pass {
        let mut pass = Pass::default();
        let Some(_settling) = Settling::try_take(&self.settling) else {
            // A held thread settles its own stream; that is soon done.
            pass.outstanding = true;
            return pass;
        };
        let now = now_ns();
        let mut views = [const { None::<View> }; MAX_DEVICES];
        for stream_state in self.streams.all() {
            let Some(limiter) = stream_state.limiter() else {
                continue;
            };
            let Some(view) = views.get_mut(limiter.position()) else {
                continue;
            };
            pass.urgent |= limiter.misprediction.is_recent();
            let attended_ns = stream_state.attended_until_ns.load(Ordering::Relaxed);
            if attended_ns > now {
                pass.look_at(attended_ns);
                continue;
            }
            pass.urgent |= limiter.is_awaited();
            if stream_state.pending() > 0 {
                let view = view.get_or_insert_with(|| limiter.view(now));
                let context = stream_state.context.load(Ordering::Relaxed);
                // Pairs with `close_context`: either it sees that we ask, or we see that it closes.
                if self.contexts.asking.swap(context, Ordering::SeqCst) != context {
                    let asked_in = CUcontext(stream_state.asked_in.load(Ordering::Relaxed));
                    // SAFETY: the thread is ours alone; the context lives, or the driver says that it does not.
                    let _ = unsafe { real::cuCtxSetCurrent(asked_in) };
                }
                self.settle_stream(limiter, view, stream_state, &mut pass);
            } else {
                self.settle_tail(limiter, stream_state, &mut pass);
            }
        }
        self.contexts.asking.store(0, Ordering::SeqCst);
        if pass.progress {
            for limiter in &self.limiters {
                limiter.wake_waiters(pass.reasons());
            }
        }
        pass
    }

    /// Whether any work is on the way, measured or not.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.streams
            .all()
            .any(|stream_state| stream_state.pending() > 0 || stream_state.unmeasured().0 > 0)
    }

    /// A launch is about to be held, or is: settles what is done on its own stream, so that it need not wait for the worker
    /// to notice.
    pub(super) fn settle_own(&'static self, limiter: &DeviceLimiter, stream_state: &StreamState) -> Pass {
        let mut pass = Pass::default();
        let context = stream_state.context.load(Ordering::Relaxed);
        if stream_state.pending() == 0 {
            return pass;
        }
        let Some(_settling) = Settling::try_take(&self.settling) else {
            return pass;
        };
        let _relaxed = Relaxed::enter();
        // Before the context is made current: see `settle`.
        self.contexts.asking.store(context, Ordering::SeqCst);
        let is_current = crate::runtime::devices::current_context().0 == context;
        let asked_in = CUcontext(stream_state.asked_in.load(Ordering::Relaxed));
        let _pushed = if is_current {
            None
        } else {
            Pushed::make_current(asked_in)
        };
        self.settle_stream(limiter, &limiter.view(now_ns()), stream_state, &mut pass);
        self.contexts.asking.store(0, Ordering::SeqCst);
        if pass.progress {
            limiter.wake_waiters(pass.reasons());
        }
        pass
    }

    fn settle_stream(
        &'static self,
        limiter: &DeviceLimiter,
        view: &View,
        stream_state: &StreamState,
        pass: &mut Pass,
    ) {
        let context = stream_state.context.load(Ordering::Relaxed);
        while stream_state.pending() > 0 {
            if stream_state.closing.load(Ordering::SeqCst) {
                return;
            }
            let head = stream_state.head.load(Ordering::Relaxed);
            let timing_event = stream_state.timing_event(head);
            // SAFETY: an event of ours; its context lives, see above.
            let answer = unsafe { real::cuEventQuery(CUevent(timing_event.event.load(Ordering::Relaxed))) };
            let seen_ns = now_ns();
            match answer {
                Ok(()) => match self.contexts.reached_at(context, timing_event, seen_ns) {
                    Some(Reached { at_ns, earlier_ns }) => {
                        if earlier_ns > 0 {
                            self.streams_of(CUcontext(context))
                                .for_each(|stream_state| stream_state.settled_earlier(earlier_ns));
                        }
                        pass.returned_ns += reached(limiter, view, stream_state, timing_event, at_ns);
                    }
                    None => guess(limiter, stream_state, timing_event),
                },
                Err(CUerror::NOT_READY) => {
                    enter(limiter, view, stream_state, timing_event, seen_ns);
                    let look_ns =
                        stream_state.next_look_ns(timing_event, seen_ns, limiter.misprediction.is_recent());
                    pass.look_at(look_ns);
                    return;
                }
                // A broken context answers everything with its error.
                Err(_) => guess(limiter, stream_state, timing_event),
            }
            stream_state.head.store(head.wrapping_add(1), Ordering::Release);
            pass.progress = true;
        }
        if stream_state.is_orphan() {
            stream_state.free();
        }
    }

    /// Launches that no timing event follows: after a while they count as done, charged as predicted.
    fn settle_tail(&self, limiter: &DeviceLimiter, stream_state: &StreamState, pass: &mut Pass) {
        let (count, predicted_ns) = stream_state.unmeasured();
        if count == 0 {
            if stream_state.is_orphan() {
                stream_state.free();
            }
            return;
        }
        let now = now_ns();
        let done_ns = stream_state.busy_until_ns() + TAIL_NS + TAIL_TIMES * predicted_ns;
        if now < done_ns {
            pass.look_at(done_ns);
            return;
        }
        let Some(_recording) = stream_state.try_recording() else {
            return;
        };
        let (count, predicted_ns) = stream_state.take_unmeasured();
        stream_state.drop_parts();
        stream_state.chained.store(false, Ordering::Relaxed);
        limiter.settle_as_predicted(predicted_ns, count);
        limiter.ended_unseen(now);
        pass.progress = true;
    }

    /// See [`super::stream_closing`].
    pub(super) fn close_stream(&'static self, stream: Stream) {
        let Some(stream_state) = self.streams.known(stream) else {
            return;
        };
        if let Some(limiter) = stream_state.limiter() {
            self.timing_event(limiter, stream_state, stream, 0);
            let Some(_recording) = stream_state.try_recording() else {
                return;
            };
            let (count, predicted_ns) = stream_state.take_unmeasured();
            limiter.settle_as_predicted(predicted_ns, count);
        }
        stream_state.orphan();
        self.wake_worker();
    }

    /// See [`super::context_closing`].
    pub(super) fn close_context(&'static self, context: CUcontext) {
        for stream_state in self.streams_of(context) {
            stream_state.closing.store(true, Ordering::SeqCst);
        }
        // One query of the worker: the only wait for a thread of ours.
        while self.contexts.asking.load(Ordering::SeqCst) == context.0 {
            core::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    /// See [`super::context_closed`].
    pub(super) fn closed_context(&'static self, context: CUcontext, ended: bool) {
        for stream_state in self.streams_of(context) {
            if !ended {
                stream_state.closing.store(false, Ordering::SeqCst);
                continue;
            }
            let Some(limiter) = stream_state.limiter() else {
                continue;
            };
            while stream_state.pending() > 0 {
                let head = stream_state.head.load(Ordering::Relaxed);
                guess(limiter, stream_state, stream_state.timing_event(head));
                stream_state.head.store(head.wrapping_add(1), Ordering::Release);
            }
            let (count, predicted_ns) = stream_state.take_unmeasured();
            limiter.settle_as_predicted(predicted_ns, count);
            // The events went with their context.
            for timing_event in &stream_state.timing_events {
                timing_event.event.store(0, Ordering::Relaxed);
            }
            stream_state.context.store(0, Ordering::Relaxed);
            stream_state.free();
        }
        if ended {
            self.contexts.forget(context.0);
        }
    }

    fn streams_of(&'static self, context: CUcontext) -> impl Iterator<Item = &'static StreamState> {
        self.streams
            .all()
            .filter(move |stream_state| stream_state.context.load(Ordering::Relaxed) == context.0)
    }
}

/// A timing event was reached at `at_ns`: its segment took the time since the timing event before. Returns what of its price goes back (ns).
fn reached(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) -> u64 {
    let mut returned_ns = 0;
    let kind = timing_event.kind.load(Ordering::Relaxed);
    let from_ns = stream_state.settled_to_ns.load(Ordering::Relaxed);
    if kind == MEASURED && from_ns != 0 {
        // An idle device reaches the start timing event at once and then waits for the launch. A shared one may reach it late.
        let gap_ns = if view.contended || !Refinement::HostGap.is_used() {
            0
        } else {
            timing_event.gap_ns.load(Ordering::Relaxed)
        };
        // While the GPU was at the start timing event the host was not late yet.
        let no_work_ns = gap_ns.max(limiter.event_cost_ns());
        let from_ns = from_ns + no_work_ns.min(at_ns.saturating_sub(from_ns) / 2);
        let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
        let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
        let rest_ns = charge(limiter, view, entered_to_ns, at_ns);
        let elapsed_ns = at_ns.saturating_sub(from_ns);
        let paid_ns = timing_event.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
        let charged_ns = entered_ns + rest_ns;
        post(limiter, view, timing_event, paid_ns, charged_ns, elapsed_ns);
        returned_ns = paid_ns.saturating_sub(charged_ns);
    } else if kind == BOUNDED && is_past_doubt(limiter, timing_event, at_ns) {
        let from_ns = timing_event.gap_ns.load(Ordering::Relaxed);
        let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
        let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
        let charged_ns = entered_ns + charge(limiter, view, entered_to_ns, at_ns.max(entered_to_ns));
        let paid_ns = timing_event.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
        post(
            limiter,
            view,
            timing_event,
            paid_ns,
            charged_ns,
            at_ns.saturating_sub(from_ns),
        );
        returned_ns = paid_ns.saturating_sub(charged_ns);
    } else if matches!(kind, MEASURED | PREDICTED | BOUNDED) {
        guess(limiter, stream_state, timing_event);
    } else if kind == START {
        tail(limiter, view, stream_state, timing_event, at_ns);
    } else if kind == PAIR && from_ns >= timing_event.gap_ns.load(Ordering::Relaxed) {
        // Both were queued before the first was reached: the host was not late for the second.
        limiter.note_event_cost(at_ns.saturating_sub(from_ns));
    } else if kind == FIRST {
        let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
        let from_ns = stream_state
            .entered_to_ns
            .load(Ordering::Relaxed)
            .max(recorded_ns);
        let rest_ns = charge(limiter, view, from_ns, at_ns.max(from_ns));
        limiter.bucket.settle(0, rest_ns, 1000);
        let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
        limiter
            .meter
            .charged_ns
            .fetch_add(entered_ns + rest_ns, Ordering::Relaxed);
    }
    stream_state.ran_until(at_ns);
    stream_state.settled_to_ns.store(at_ns, Ordering::Relaxed);
    stream_state.entered_to_ns.store(at_ns, Ordering::Relaxed);
    stream_state.entered_charge_ns.store(0, Ordering::Relaxed);
    returned_ns
}

/// What was launched behind the timing event before and has none of its own was done when this start event was reached at `at_ns`. If the
/// start event had to wait for it, that is its end. Else it ended at some time before, and is charged as predicted. Beside neighbours a
/// start event may wait for a time slice.
fn tail(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) {
    let predicted_ns = timing_event.predicted_ns.load(Ordering::Relaxed);
    let from_ns = stream_state.settled_to_ns.load(Ordering::Relaxed);
    if predicted_ns == 0 {
        return;
    }
    if from_ns == 0 {
        guess(limiter, stream_state, timing_event);
        return;
    }
    let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
    let to_ns = if at_ns > recorded_ns && !view.contended {
        at_ns
    } else {
        // Predictions are GPU time: as much as counts of the time that passes.
        let passes_ns = predicted_ns.saturating_mul(1000) / u64::from(view.scale_permille.max(1));
        at_ns.min(from_ns.saturating_add(passes_ns))
    };
    let to_ns = to_ns.max(from_ns);
    replace(
        limiter,
        view,
        (timing_event.count.load(Ordering::Relaxed), predicted_ns),
        (from_ns, to_ns),
    );
}

/// Whether a segment without a start event, not or just reached at `at_ns`, is charged by its upper bound, see [`is_longer`].
fn is_past_doubt(limiter: &DeviceLimiter, timing_event: &TimingEvent, at_ns: u64) -> bool {
    let bound_ns = at_ns.saturating_sub(timing_event.gap_ns.load(Ordering::Relaxed));
    is_longer(
        limiter,
        timing_event.predicted_ns.load(Ordering::Relaxed),
        bound_ns,
    )
}

/// Whether work that was not measured took so much longer than predicted that it is charged by its upper bound (ns): the time since
/// its first launch.
pub(super) fn is_longer(limiter: &DeviceLimiter, predicted_ns: u64, bound_ns: u64) -> bool {
    let (alone_ns, beside_ns) = UNMEASURED_DOUBT_NS;
    let doubt_ns = if limiter.contended.load(Ordering::Relaxed) {
        beside_ns
    } else {
        alone_ns
    };
    bound_ns > 2 * predicted_ns + doubt_ns
}

/// Launches that no timing event follows, made no earlier than `since_ns` (0: not known), are done at `now_ns`: charged by their upper bound if
/// that is so much longer ([`is_longer`]), else as predicted.
pub(super) fn proved_done(
    limiter: &DeviceLimiter,
    (count, predicted_ns): (u32, u64),
    since_ns: u64,
    now_ns: u64,
) {
    let bound_ns = now_ns.saturating_sub(since_ns);
    if since_ns == 0 || !is_longer(limiter, predicted_ns, bound_ns) {
        limiter.settle_as_predicted(predicted_ns, count);
        return;
    }
    limiter.ended_unseen(now_ns);
    replace(
        limiter,
        &limiter.view(now_ns),
        (count, predicted_ns),
        (since_ns, now_ns),
    );
}

/// Launches are done that ran at some time in a span (`CLOCK_MONOTONIC`, ns): charges what counts of that, no less than was paid.
fn replace(
    limiter: &DeviceLimiter,
    view: &View,
    (count, predicted_ns): (u32, u64),
    (from_ns, to_ns): (u64, u64),
) {
    // Where other work of the tenant was entered then, the prediction stands: this may have run before or after.
    let charged_ns = charge(limiter, view, from_ns, to_ns).max(predicted_ns);
    limiter.bucket.settle(predicted_ns, charged_ns, 1000);
    limiter.meter.finish(predicted_ns, count);
    limiter.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
}

/// Nobody knows how long the segment took: it stays charged as predicted.
fn guess(limiter: &DeviceLimiter, stream_state: &StreamState, timing_event: &TimingEvent) {
    stream_state.settled_to_ns.store(0, Ordering::Relaxed);
    stream_state.entered_charge_ns.store(0, Ordering::Relaxed);
    limiter.settle_as_predicted(
        timing_event.predicted_ns.load(Ordering::Relaxed),
        timing_event.count.load(Ordering::Relaxed),
    );
}

/// The first timing event of a stream was not reached yet: enters the time up to now in the busy map. What is beyond its prediction
/// is charged now: a container whose work runs late earns meanwhile, and what it earned would be cut as unused, and then
/// charged all the same.
fn enter(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    seen_ns: u64,
) {
    let from_ns = match timing_event.kind.load(Ordering::Relaxed) {
        MEASURED => stream_state.settled_to_ns.load(Ordering::Relaxed),
        FIRST => timing_event.gap_ns.load(Ordering::Relaxed),
        BOUNDED if is_past_doubt(limiter, timing_event, seen_ns) => {
            timing_event.gap_ns.load(Ordering::Relaxed)
        }
        _ => 0,
    };
    if from_ns == 0 {
        return;
    }
    let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
    let to_ns = seen_ns.saturating_sub(CLOCK_DOUBT_NS);
    if to_ns < entered_to_ns + ENTER_NS {
        return;
    }
    let charged_ns = charge(limiter, view, entered_to_ns, to_ns);
    stream_state.entered_to_ns.store(to_ns, Ordering::Relaxed);
    let before_ns = stream_state
        .entered_charge_ns
        .fetch_add(charged_ns, Ordering::Relaxed);
    let predicted_ns = timing_event.predicted_ns.load(Ordering::Relaxed);
    let paid = |entered_ns: u64| predicted_ns.max(entered_ns);
    limiter
        .bucket
        .settle(paid(before_ns), paid(before_ns + charged_ns), 1000);
}

/// Enters a span in the busy map; what of it counts (ns).
#[inline(never)]
pub(super) fn charge(limiter: &DeviceLimiter, view: &View, from_ns: u64, to_ns: u64) -> u64 {
    let elapsed_ns = to_ns.saturating_sub(from_ns);
    let fresh_ns = busy::mark(&limiter.bucket.busy, from_ns, to_ns).charge_ns(elapsed_ns);
    let served_ns = view.scaled(fresh_ns);
    limiter.bucket.count_measured(elapsed_ns, fresh_ns, served_ns);
    served_ns
}

/// Replaces what was paid for a segment by what it took, and learns from it.
fn post(
    limiter: &DeviceLimiter,
    view: &View,
    timing_event: &TimingEvent,
    paid_ns: u64,
    charged_ns: u64,
    elapsed_ns: u64,
) {
    let (predicted_ns, count) = (
        timing_event.predicted_ns.load(Ordering::Relaxed),
        timing_event.count.load(Ordering::Relaxed),
    );
    limiter.bucket.settle(paid_ns, charged_ns, 1000);
    limiter.meter.finish(predicted_ns, count);
    limiter.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
    limiter
        .meter
        .mispredicted_ns
        .fetch_add(predicted_ns.abs_diff(charged_ns), Ordering::Relaxed);
    // Kernels of several streams that ran together took their time each, though it is charged once.
    let took_ns = view.scaled(elapsed_ns);
    let (parts, used) = parts_of(timing_event);
    let parts = parts.get(..used).unwrap_or(&parts);
    let counted: u64 = parts.iter().map(|part| u64::from(part.count)).sum();
    if counted == u64::from(count) {
        let predicted_now_ns = parts
            .iter()
            .map(|part| COSTS.at(part.index).0 * u64::from(part.count))
            .sum();
        if parts.iter().all(|part| COSTS.at(part.index).1 >= LEARNT) {
            limiter.misprediction.note(predicted_now_ns, took_ns);
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
