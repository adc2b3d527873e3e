//! The charge for one segment: the time between two events, an upper bound if no event says when it began, or its
//! prediction.

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::{SLICE_NS, View};
use vcuda_limiter::predict::LEARNT;
use vcuda_limiter::token_bucket::is_overrun;
use vcuda_limiter::{Refinement, busy};

use vcuda_region::clock::now_ns;

use super::super::COSTS;
use super::super::device_limiter::DeviceLimiter;
use super::super::stream_state::{
    AT_MOST, BOUNDED, FIRST, MEASURED, PAIR, PREDICTED, RESTART, START, StreamState, TimingEvent, parts_of,
};

/// A running segment is entered in the busy map in steps of this (ns), so that the arbiter sees long kernels too.
const ENTER_NS: u64 = 500_000;
/// Longest time by which the host's clock may be ahead of an event's (ns).
const CLOCK_DOUBT_NS: u64 = 50_000;
/// Time beyond twice its prediction by which an unmeasured segment may end later (ns), alone and beside neighbours,
/// whose slices it may wait for. Below that, the launch's own way to the GPU may be the reason, and the prediction
/// stands.
const UNMEASURED_DOUBT_NS: (u64, u64) = (50_000, 5_000_000);

/// Settles the segment before a timing event that was reached at `at_ns` (`CLOCK_MONOTONIC`). Returns the part of its
/// price that goes back (ns).
pub(super) fn reached(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) -> u64 {
    let mut returned_ns = 0;
    let kind = timing_event.kind.load(Ordering::Relaxed);
    match kind {
        MEASURED | PAIR => {}
        RESTART | AT_MOST => stream_state.lesson.lock().cut(),
        BOUNDED => {
            // What was sampled is learnt. Of this burst only a part is measured to its end.
            let mut lesson = stream_state.lesson.lock();
            lesson.end(&COSTS);
            lesson.cut();
        }
        // The stream was idle, or waited for the host.
        _ => stream_state.lesson.lock().end(&COSTS),
    }
    let settled_to_ns = stream_state.settled_to_ns.load(Ordering::Relaxed);
    if kind == MEASURED && settled_to_ns != 0 {
        let from_ns = work_began_ns(limiter, view, timing_event, (settled_to_ns, at_ns));
        returned_ns = segment(limiter, view, stream_state, timing_event, (from_ns, at_ns));
    } else if kind == BOUNDED {
        let from_ns = timing_event.gap_ns.load(Ordering::Relaxed);
        returned_ns = segment(limiter, view, stream_state, timing_event, (from_ns, at_ns));
    } else if let (AT_MOST, from_ns @ 1..) =
        (kind, settled_to_ns.max(timing_event.gap_ns.load(Ordering::Relaxed)))
    {
        returned_ns = segment(limiter, view, stream_state, timing_event, (from_ns, at_ns));
    } else if matches!(kind, MEASURED | AT_MOST | PREDICTED) {
        settle_unknown(limiter, stream_state, timing_event);
    } else if matches!(kind, START | RESTART) {
        tail(limiter, view, stream_state, timing_event, at_ns);
        if view.contended {
            waited_for_slice(limiter, stream_state, timing_event, at_ns);
        }
    } else if kind == PAIR && settled_to_ns >= timing_event.gap_ns.load(Ordering::Relaxed) {
        // Both were queued before the first was reached: the host was not late for the second.
        limiter.note_event_cost(at_ns.saturating_sub(settled_to_ns));
    } else if kind == FIRST {
        first(limiter, view, stream_state, timing_event, at_ns);
    }
    stream_state.ran_until(at_ns);
    stream_state.settled_to_ns.store(at_ns, Ordering::Relaxed);
    stream_state.entered_to_ns.store(at_ns, Ordering::Relaxed);
    stream_state.entered_charge_ns.store(0, Ordering::Relaxed);
    returned_ns
}

/// Time at which the work between two events began (ns): after the event's own time, and after the host's delay from
/// the start event to the launch. An idle device reaches the start event at once and then waits for the launch. A
/// shared one may reach it late.
fn work_began_ns(
    limiter: &DeviceLimiter,
    view: &View,
    timing_event: &TimingEvent,
    (from_ns, at_ns): (u64, u64),
) -> u64 {
    let gap_ns = if view.contended || !Refinement::HostGap.is_used() {
        0
    } else {
        timing_event.gap_ns.load(Ordering::Relaxed)
    };
    // The host was not late yet while the GPU was at the start event.
    let no_work_ns = gap_ns.max(limiter.event_cost_ns());
    from_ns + no_work_ns.min(at_ns.saturating_sub(from_ns) / 2)
}

/// Charges the part of a segment that is not charged yet. The segment ran within `from_ns` to `at_ns`
/// (`CLOCK_MONOTONIC`). Returns the part of its price that goes back (ns).
fn segment(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    (from_ns, at_ns): (u64, u64),
) -> u64 {
    let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
    let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
    let charged_ns =
        entered_ns + charge(limiter, view, stream_state.context(), (entered_to_ns, at_ns.max(entered_to_ns)));
    let paid_ns = timing_event.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
    let elapsed_ns = at_ns.saturating_sub(from_ns);
    settle_measured(limiter, view, stream_state, timing_event, (paid_ns, charged_ns), elapsed_ns);
    paid_ns.saturating_sub(charged_ns)
}

/// Settles the first event of a stream. Work launched before launches were metered ran up to it. That work is charged
/// from the moment at which the event was recorded.
fn first(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) {
    let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
    let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed);
    let from_ns = entered_to_ns.max(recorded_ns);
    let rest_ns = charge(limiter, view, stream_state.context(), (from_ns, at_ns.max(from_ns)));
    limiter.bucket.settle(0, rest_ns, 1000);
    let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
    limiter.meter.charged_ns.fetch_add(entered_ns + rest_ns, Ordering::Relaxed);
}

/// Settles a tail: launches behind the timing event before that have none of their own. This start event, reached at
/// `at_ns`, proves that they are done. If the event had to wait for them, it is their end. Else they ended earlier
/// and are charged as predicted. Beside neighbours the event may have waited for a time slice instead.
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
        settle_unknown(limiter, stream_state, timing_event);
        return;
    }
    let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed) + CLOCK_DOUBT_NS;
    let to_ns = if at_ns > recorded_ns && !view.contended {
        at_ns
    } else {
        predicted_end_ns(view, predicted_ns, from_ns).min(at_ns)
    };
    let to_ns = to_ns.max(from_ns);
    settle_bounded(
        limiter,
        view,
        stream_state,
        (timing_event.count.load(Ordering::Relaxed), predicted_ns),
        (from_ns, to_ns, at_ns.max(to_ns)),
    );
}

/// Counts the context's wait for a time slice before a start event that was reached at `at_ns`. Slices go round all
/// contexts that have work, so the waiting context counts beside those that had work meanwhile.
fn waited_for_slice(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) {
    let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed);
    let counted_ns = limiter.contexts.wait(stream_state.context(), recorded_ns, at_ns);
    limiter.bucket.contexts_ns.fetch_add(counted_ns, Ordering::Relaxed);
}

/// Whether unmeasured work took so much longer than predicted that it is charged its upper bound, `bound_ns`: the
/// time since its first launch.
fn is_longer(limiter: &DeviceLimiter, predicted_ns: u64, bound_ns: u64) -> bool {
    let (alone_ns, beside_ns) = UNMEASURED_DOUBT_NS;
    let doubt_ns = if limiter.contended.load(Ordering::Relaxed) { beside_ns } else { alone_ns };
    bound_ns > 2 * predicted_ns + doubt_ns
}

/// Settles launches that no timing event follows and that are known to be done at `now_ns`. They were made no earlier
/// than `since_ns` (0: not known). They are charged their upper bound if that is much longer ([`is_longer`]), if the prediction is
/// a guess (`is_guess`), else as predicted.
pub(crate) fn proved_done(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    (count, predicted_ns): (u32, u64),
    (since_ns, now_ns): (u64, u64),
    is_guess: bool,
) {
    let bound_ns = now_ns.saturating_sub(since_ns);
    let is_longer = is_guess || is_longer(limiter, predicted_ns, bound_ns);
    if since_ns == 0 || !is_longer && !limiter.contended.load(Ordering::Relaxed) {
        limiter.settle_as_predicted(predicted_ns, count);
        return;
    }
    let view = limiter.view(now_ns);
    let to_ns = if is_longer {
        // All of it is charged, which may be too much.
        limiter.sampling.doubt(bound_ns.saturating_sub(predicted_ns), now_ns);
        now_ns
    } else {
        predicted_end_ns(&view, predicted_ns, since_ns).min(now_ns)
    };
    settle_bounded(limiter, &view, stream_state, (count, predicted_ns), (since_ns, to_ns, now_ns));
}

/// Settles launches that ended unmeasured before the next one, at `now_ns`: charged as predicted. They were made no earlier than `since_ns`
/// (0: not known). Beside neighbours the arbiter must know when there was work.
pub(crate) fn ended_unseen(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    (count, predicted_ns): (u32, u64),
    (since_ns, now_ns): (u64, u64),
) {
    if count == 0 {
        return;
    }
    if since_ns == 0 || !limiter.contended.load(Ordering::Relaxed) {
        limiter.settle_as_predicted(predicted_ns, count);
        return;
    }
    let view = limiter.view(now_ns);
    let to_ns = predicted_end_ns(&view, predicted_ns, since_ns).min(now_ns);
    settle_bounded(limiter, &view, stream_state, (count, predicted_ns), (since_ns, to_ns, now_ns));
}

/// When work that began at `from_ns` should be done (ns). Predictions are GPU time: as much as counts of the time that passes.
fn predicted_end_ns(view: &View, predicted_ns: u64, from_ns: u64) -> u64 {
    let passes_ns = predicted_ns.saturating_mul(1000) / u64::from(view.scale_permille.max(1));
    from_ns.saturating_add(passes_ns)
}

/// Launches are done that began no earlier than `from_ns`, should have ended at `to_ns`, and had ended at `done_ns` (all
/// `CLOCK_MONOTONIC`, ns): charges what counts of the time up to `to_ns`, no less than was paid. But they had no more than
/// the time in which nothing else of the tenant was charged.
fn settle_bounded(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    (count, predicted_ns): (u32, u64),
    (from_ns, to_ns, done_ns): (u64, u64, u64),
) {
    let charged_before_ns = busy::busy_ns(&limiter.bucket.busy, from_ns, done_ns);
    let free_ns = done_ns.saturating_sub(from_ns).saturating_sub(charged_before_ns);
    let span_ns = charge(limiter, view, stream_state.context(), (from_ns, to_ns));
    let charged_ns = span_ns.max(predicted_ns.min(free_ns));
    limiter.bucket.settle(predicted_ns, charged_ns, 1000);
    limiter.meter.finish(predicted_ns, count);
    limiter.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
}

/// Settles a segment whose duration cannot be known: it stays charged as predicted.
pub(super) fn settle_unknown(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
) {
    stream_state.settled_to_ns.store(0, Ordering::Relaxed);
    stream_state.entered_charge_ns.store(0, Ordering::Relaxed);
    limiter.settle_as_predicted(
        timing_event.predicted_ns.load(Ordering::Relaxed),
        timing_event.count.load(Ordering::Relaxed),
    );
}

/// Enters the time up to now in the busy map, for a segment whose timing event was not reached yet. Time beyond the
/// prediction is charged now. If it were charged at the end, the bucket would refill meanwhile, the refill would be
/// cut as unused, and the time would then be charged all the same. Of a stream that may wait for the host nothing is charged before
/// the end: the host may wait for the tokens. Returns for how long the work has run (ns), 0 if that is not known.
pub(super) fn enter(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    seen_ns: u64,
) -> u64 {
    let from_ns = match timing_event.kind.load(Ordering::Relaxed) {
        MEASURED => stream_state.settled_to_ns.load(Ordering::Relaxed),
        FIRST | BOUNDED => timing_event.gap_ns.load(Ordering::Relaxed),
        _ => 0,
    };
    if from_ns == 0 {
        return 0;
    }
    let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
    let to_ns = seen_ns.saturating_sub(CLOCK_DOUBT_NS);
    let ran_ns = to_ns.saturating_sub(from_ns);
    if to_ns < entered_to_ns + ENTER_NS {
        return ran_ns;
    }
    let charged_ns = charge(limiter, view, stream_state.context(), (entered_to_ns, to_ns));
    stream_state.entered_to_ns.store(to_ns, Ordering::Relaxed);
    let before_ns = stream_state.entered_charge_ns.fetch_add(charged_ns, Ordering::Relaxed);
    let predicted_ns = timing_event.predicted_ns.load(Ordering::Relaxed);
    let paid = |entered_ns: u64| predicted_ns.max(entered_ns);
    limiter.bucket.settle(paid(before_ns), paid(before_ns + charged_ns), 1000);
    ran_ns
}

/// Enters a span in the busy maps of the tenant and of the context. Returns the part of it that counts (ns).
#[inline(never)]
pub(crate) fn charge(
    limiter: &DeviceLimiter,
    view: &View,
    context: usize,
    (from_ns, to_ns): (u64, u64),
) -> u64 {
    let elapsed_ns = to_ns.saturating_sub(from_ns);
    let in_context_ns = limiter.contexts.enter(context, from_ns, to_ns);
    let fresh_ns = busy::mark(&limiter.bucket.busy, from_ns, to_ns).charge_ns(elapsed_ns);
    let served_ns = view.scaled(fresh_ns);
    limiter.bucket.count_measured([in_context_ns, fresh_ns], served_ns);
    served_ns
}

/// Replaces the price of a segment by the time that it took, and corrects the predictions.
fn settle_measured(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    (paid_ns, charged_ns): (u64, u64),
    elapsed_ns: u64,
) {
    let (predicted_ns, count) =
        (timing_event.predicted_ns.load(Ordering::Relaxed), timing_event.count.load(Ordering::Relaxed));
    limiter.bucket.settle(paid_ns, charged_ns, 1000);
    limiter.meter.finish(predicted_ns, count);
    limiter.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
    limiter.meter.mispredicted_ns.fetch_add(predicted_ns.abs_diff(charged_ns), Ordering::Relaxed);
    if timing_event.kind.load(Ordering::Relaxed) == AT_MOST {
        // Its time may be the host's: predictions learn nothing from it.
        return;
    }
    // Kernels of several streams that ran together took their time each, though it is charged once. A time shorter
    // than a slice has no neighbour's work in it.
    let took_ns = view.scaled(elapsed_ns).max(elapsed_ns.min(SLICE_NS));
    let (parts, used) = parts_of(timing_event);
    let parts = parts.get(..used).unwrap_or(&parts);
    let counted: u64 = parts.iter().map(|part| u64::from(part.count)).sum();
    let is_sample = counted == u64::from(count);
    let predicted_now_ns = if is_sample { COSTS.cost_of_parts_ns(parts) } else { predicted_ns };
    let is_known = is_sample && parts.iter().all(|part| COSTS.at(part.index).1 > 0);
    let now = now_ns();
    if took_ns > limiter.waits_from_ns(predicted_now_ns, now) {
        limiter.bucket.note_ended(took_ns, is_known && is_overrun(predicted_now_ns, took_ns), now);
        if is_known && limiter.bucket.is_gang(now) && took_ns > predicted_now_ns {
            // It has waited for others of the gang: that is no time of its kernels.
            return;
        }
    }
    if !is_sample {
        return;
    }
    if let ([part], true) = (parts, took_ns < predicted_now_ns && limiter.bucket.is_gang(now)) {
        // What was learnt before had waits in it. That the prediction was too long is noted as for any other.
        note_misprediction(limiter, view, predicted_now_ns, count, took_ns);
        COSTS.lower(part.index, took_ns / u64::from(part.count.max(1)));
        return;
    }
    if parts.iter().any(|part| COSTS.at(part.index).1 < LEARNT) {
        COSTS.learn(parts, predicted_now_ns, took_ns);
        return;
    }
    if timing_event.kind.load(Ordering::Relaxed) == BOUNDED {
        // It may have a pause in it, and is no fair sample of its burst.
        return;
    }
    note_misprediction(limiter, view, predicted_now_ns, count, took_ns);
    stream_state.lesson.lock().add(&COSTS, parts, took_ns);
}

/// Notes by how much the prediction of `count` launches was off.
fn note_misprediction(limiter: &DeviceLimiter, view: &View, predicted_ns: u64, count: u32, took_ns: u64) {
    if view.contended {
        limiter.misprediction.note_beside(predicted_ns, took_ns);
    } else {
        limiter.misprediction.note(predicted_ns, count, took_ns);
    }
}
