//! What the work of one segment is charged: the time between two events, an upper bound where no event says when it began, or its
//! prediction.

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::{SLICE_NS, View};
use vcuda_limiter::predict::LEARNT;
use vcuda_limiter::{Refinement, busy};

use super::super::COSTS;
use super::super::device_limiter::DeviceLimiter;
use super::super::stream_state::{
    BOUNDED, FIRST, MEASURED, PAIR, PREDICTED, START, StreamState, TimingEvent, parts_of,
};

/// A running segment is entered in the busy map in steps of this (ns), so that the arbiter sees long kernels too.
const ENTER_NS: u64 = 500_000;
/// What the host's clock may be ahead of an event's (ns).
const CLOCK_DOUBT_NS: u64 = 50_000;
/// By how much an unmeasured segment may be later than twice its prediction (ns), alone and beside neighbours, whose slices it may
/// wait for: below that the launch's own way to the GPU may be the reason, and the prediction stands.
const UNMEASURED_DOUBT_NS: (u64, u64) = (50_000, 5_000_000);

/// A timing event was reached at `at_ns` (`CLOCK_MONOTONIC`, ns): settles the segment before it. Returns what of its price goes back (ns).
pub(super) fn reached(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) -> u64 {
    let mut returned_ns = 0;
    let kind = timing_event.kind.load(Ordering::Relaxed);
    let settled_to_ns = stream_state.settled_to_ns.load(Ordering::Relaxed);
    if kind == MEASURED && settled_to_ns != 0 {
        let from_ns = work_began_ns(limiter, view, timing_event, (settled_to_ns, at_ns));
        returned_ns = segment(limiter, view, stream_state, timing_event, (from_ns, at_ns));
    } else if kind == BOUNDED && is_past_doubt(limiter, timing_event, at_ns) {
        let from_ns = timing_event.gap_ns.load(Ordering::Relaxed);
        returned_ns = segment(limiter, view, stream_state, timing_event, (from_ns, at_ns));
    } else if matches!(kind, MEASURED | PREDICTED | BOUNDED) {
        settle_unknown(limiter, stream_state, timing_event);
    } else if kind == START {
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

/// When the work between two events began (ns): after what the event itself takes, and after what the host took from the start event
/// to the launch. An idle device reaches the start event at once and then waits for the launch. A shared one may reach it late.
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
    // While the GPU was at the start event the host was not late yet.
    let no_work_ns = gap_ns.max(limiter.event_cost_ns());
    from_ns + no_work_ns.min(at_ns.saturating_sub(from_ns) / 2)
}

/// A segment ran from `from_ns` to `at_ns` (`CLOCK_MONOTONIC`, ns), at most: charges what is not charged yet. Returns what of its price
/// goes back (ns).
fn segment(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    (from_ns, at_ns): (u64, u64),
) -> u64 {
    let entered_to_ns = stream_state.entered_to_ns.load(Ordering::Relaxed).max(from_ns);
    let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
    let charged_ns = entered_ns
        + charge(
            limiter,
            view,
            stream_state.context(),
            (entered_to_ns, at_ns.max(entered_to_ns)),
        );
    let paid_ns = timing_event.predicted_ns.load(Ordering::Relaxed).max(entered_ns);
    let elapsed_ns = at_ns.saturating_sub(from_ns);
    settle_measured(limiter, view, timing_event, paid_ns, charged_ns, elapsed_ns);
    paid_ns.saturating_sub(charged_ns)
}

/// The first event of a stream was reached: what was launched before launches were metered ran up to then, and is charged from the moment
/// at which the event was recorded.
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
    let rest_ns = charge(
        limiter,
        view,
        stream_state.context(),
        (from_ns, at_ns.max(from_ns)),
    );
    limiter.bucket.settle(0, rest_ns, 1000);
    let entered_ns = stream_state.entered_charge_ns.load(Ordering::Relaxed);
    limiter
        .meter
        .charged_ns
        .fetch_add(entered_ns + rest_ns, Ordering::Relaxed);
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
        settle_unknown(limiter, stream_state, timing_event);
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
    settle_bounded(
        limiter,
        view,
        stream_state,
        (timing_event.count.load(Ordering::Relaxed), predicted_ns),
        (from_ns, to_ns),
    );
}

/// A start event that was recorded while the context waited for a time slice was reached at `at_ns`. While other contexts of the process
/// had work meanwhile, one more had: slices go round all that have.
fn waited_for_slice(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    timing_event: &TimingEvent,
    at_ns: u64,
) {
    let recorded_ns = timing_event.gap_ns.load(Ordering::Relaxed);
    let counted_ns = limiter.contexts.wait(stream_state.context(), recorded_ns, at_ns);
    limiter
        .bucket
        .contexts_ns
        .fetch_add(counted_ns, Ordering::Relaxed);
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
pub(crate) fn is_longer(limiter: &DeviceLimiter, predicted_ns: u64, bound_ns: u64) -> bool {
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
pub(crate) fn proved_done(
    limiter: &DeviceLimiter,
    stream_state: &StreamState,
    (count, predicted_ns): (u32, u64),
    since_ns: u64,
    now_ns: u64,
) {
    let bound_ns = now_ns.saturating_sub(since_ns);
    if since_ns == 0 || !is_longer(limiter, predicted_ns, bound_ns) {
        limiter.settle_as_predicted(predicted_ns, count);
        return;
    }
    // All of it is charged from here on: the next launch is measured, lest that be too much.
    limiter.ended_unseen(u64::MAX, now_ns);
    settle_bounded(
        limiter,
        &limiter.view(now_ns),
        stream_state,
        (count, predicted_ns),
        (since_ns, now_ns),
    );
}

/// Launches are done that ran at some time in a span (`CLOCK_MONOTONIC`, ns): charges what counts of that, no less than was paid.
fn settle_bounded(
    limiter: &DeviceLimiter,
    view: &View,
    stream_state: &StreamState,
    (count, predicted_ns): (u32, u64),
    (from_ns, to_ns): (u64, u64),
) {
    // Where other work of the tenant was entered then, the prediction stands: this may have run before or after.
    let charged_ns = charge(limiter, view, stream_state.context(), (from_ns, to_ns)).max(predicted_ns);
    limiter.bucket.settle(predicted_ns, charged_ns, 1000);
    limiter.meter.finish(predicted_ns, count);
    limiter.meter.charged_ns.fetch_add(charged_ns, Ordering::Relaxed);
}

/// It cannot be known how long the segment took: it stays charged as predicted.
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

/// The first timing event of a stream was not reached yet: enters the time up to now in the busy map. What is beyond its prediction
/// is charged now: a container whose work runs late earns meanwhile, and what it earned would be cut as unused, and then
/// charged all the same.
pub(super) fn enter(
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
    let charged_ns = charge(limiter, view, stream_state.context(), (entered_to_ns, to_ns));
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

/// Enters a span in the busy maps of the tenant and of the context; what of it counts (ns).
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
    limiter
        .bucket
        .count_measured([elapsed_ns, in_context_ns, fresh_ns], served_ns);
    served_ns
}

/// Replaces what was paid for a segment by what it took, and learns from it.
fn settle_measured(
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
    // Time that is shorter than a slice has none of a neighbour's in it.
    let took_ns = view.scaled(elapsed_ns).max(elapsed_ns.min(SLICE_NS));
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
