//! The slow path of a launch: it takes a new lease, or waits for one. A wait ends when the refill has paid, or, where other work may
//! wait for the launch, after a bound. Past it the launch proceeds on debt, which is counted (I11).

mod wait;

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::View;
use vcuda_limiter::predict::Prediction;
use vcuda_limiter::{self as limiter, Admission, Refinement, Snapshot};

use vcuda_region::clock::now_ns;

use super::device_limiter::DeviceLimiter;
use super::stream_state::StreamState;
use super::{COSTS, Launches};
use crate::driver::reentrancy::{self, ThreadState};
use crate::runtime::stream::Stream;

/// A launch that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting<'a> {
    /// The launch's stream, if that is measured.
    stream_state: Option<&'a StreamState>,
    /// Place among the waiting launches of this process.
    place: u32,
    /// Time since which it waits for work to end, if it does (`CLOCK_MONOTONIC`, ns).
    for_completion_since_ns: Option<u64>,
}

impl Launches {
    /// Takes a lease for a launch that could not be `paid` from the present one, or whose kernel is unknown. Waits until the launch
    /// may proceed. Returns whether it waited.
    #[cold]
    pub(super) fn hold(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: Option<&'static StreamState>,
        stream: Stream,
        predicted: Prediction,
        paid: bool,
    ) -> bool {
        if paid && predicted.samples > 0 {
            return false;
        }
        let cost_ns = predicted.cost_ns;
        let started_ns = now_ns();
        limiter.come(cost_ns);
        if let Some(stream_state) = stream_state {
            self.settle_for_late_worker(limiter, stream_state, started_ns);
        }
        // The launch is counted in flight already; `decide` leaves it out.
        let mut view = limiter.view(started_ns);
        let mut decision = self.decide(limiter, &view, &predicted, None, started_ns);
        if decision != Admission::Admit
            && stream_state.is_some_and(|stream_state| self.settle_own(limiter, stream_state).progress)
        {
            let now = now_ns();
            view = limiter.view(now);
            decision = self.decide(limiter, &view, &predicted, None, now);
        }
        if decision == Admission::Admit {
            self.go_on(limiter, cost_ns, paid);
            return false;
        }
        self.wait_and_pay(limiter, stream_state, stream, &predicted, (view, decision), started_ns);
        true
    }

    /// Waits until a launch that arrived at `started_ns` may proceed, and pays for it.
    fn wait_and_pay(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: Option<&'static StreamState>,
        stream: Stream,
        predicted: &Prediction,
        (view, decision): (View, Admission),
        started_ns: u64,
    ) {
        let cost_ns = predicted.cost_ns;
        // A waiting launch does not count as in flight, as else two would wait for each other.
        limiter.meter.refund(cost_ns);
        if let Some(stream_state) = stream_state {
            self.end_segment(limiter, stream_state, stream);
        }
        self.wake_worker();
        let place = limiter.join();
        reentrancy::note(|state| (state.line, state.place) = (core::ptr::from_ref(limiter).cast(), place));
        let on_debt = self.wait(
            limiter,
            Waiting { stream_state, place, for_completion_since_ns: None },
            view,
            decision,
            predicted,
            started_ns,
        );
        reentrancy::note(|state| state.line = core::ptr::null());
        let was_last = limiter.held.fetch_sub(1, Ordering::SeqCst) == 1;
        let held_ns = now_ns().saturating_sub(started_ns);
        limiter.meter.holds.fetch_add(1, Ordering::Relaxed);
        limiter.meter.held_ns.fetch_add(held_ns, Ordering::Relaxed);
        limiter.meter.debt_admits.fetch_add(u32::from(on_debt), Ordering::Relaxed);
        if !limiter.meter.spend(cost_ns) {
            // Only this launch goes on debt, without a part for the next ones.
            self.take(limiter, cost_ns, on_debt);
        }
        limiter.step_out(place, cost_ns, was_last);
    }

    /// Lets the launch proceed, on debt if it was not `paid`.
    fn go_on(&'static self, limiter: &DeviceLimiter, cost_ns: u64, paid: bool) {
        if !paid {
            self.take(limiter, cost_ns, false);
        }
        self.wake_worker();
    }

    /// Pays for a launch from the bucket. In a gang processes take no lease: with what is left of
    /// one, each would run ahead of the others in turn.
    fn take(&self, limiter: &DeviceLimiter, cost_ns: u64, alone: bool) {
        let now = now_ns();
        let is_gang = limiter.bucket.is_gang(now);
        let lease_part_ns = if alone || is_gang { 0 } else { limiter.lease_part_ns() };
        limiter.meter.take_with(limiter.bucket, cost_ns, lease_part_ns);
        if is_gang {
            self.call_gang(limiter, now);
        }
        limiter.took(cost_ns + lease_part_ns);
    }

    /// Decides whether a launch may proceed, or what it waits for. `waits`: it waits already and is not counted in
    /// flight.
    fn decide(
        &self,
        limiter: &DeviceLimiter,
        view: &View,
        predicted: &Prediction,
        waits: Option<Waiting<'_>>,
        now_ns: u64,
    ) -> Admission {
        let others_first = || limiter.others_until(predicted.cost_ns, waits.map(|waits| waits.place), now_ns);
        // Work that waits for the host may wait for this very thread: so the launch waits for its tokens, but for no turn.
        // Beside neighbours, more contexts at work would take slices from them.
        let is_gang = limiter.bucket.is_gang(now_ns) && !view.contended;
        let is_by_turns = Refinement::ProcessTurns.is_used() && !is_gang && !self.waits_for_host();
        let (mut ns, mut launches) = limiter.in_flight(now_ns);
        let mut own_ns = limiter.meter.in_flight_ns();
        if is_gang {
            // What others have in flight may wait for this launch.
            launches = if own_ns == 0 { 0 } else { launches };
            ns = own_ns;
        }
        if waits.is_none() {
            ns = ns.saturating_sub(predicted.cost_ns);
            own_ns = own_ns.saturating_sub(predicted.cost_ns);
            launches = launches.saturating_sub(1);
        }
        // A launch that waits only for its own stream's work waits until most of that is done. Else each launch that
        // ends would wake it.
        let is_alone = |stream_state: &StreamState| {
            limiter.is_sole() && limiter.is_foreseen() && stream_state.expected_ns(ns).is_some()
        };
        let window_ns = if waits.and_then(|waits| waits.stream_state).is_some_and(is_alone) {
            view.window_ns / 4
        } else {
            view.window_ns
        };
        let launch = Snapshot {
            cost_ns: predicted.cost_ns,
            is_unmeasured: is_unmeasured(predicted),
            tokens_at_ns: self.held_until(limiter, view, now_ns),
            other_first_until_ns: is_by_turns.then(others_first).flatten(),
            in_flight_ns: ns,
            in_flight_launches: launches,
            others_in_flight_ns: ns.saturating_sub(own_ns),
            window_ns,
            begins_turn: Refinement::TurnsApart.is_used() && limiter.begins_turn(),
            waits_since_ns: waits.and_then(|waits| waits.for_completion_since_ns),
        };
        limiter::admit(&launch, now_ns)
    }
}

/// The limiter in whose line a thread waits.
fn line_of(state: &ThreadState) -> Option<&'static DeviceLimiter> {
    // SAFETY: null, or a device's limiter, which lives as long as the process.
    unsafe { state.line.cast::<DeviceLimiter>().as_ref() }
}

/// Lets the launches behind a waiting one pass: its thread makes another call, for which it would wait itself.
pub(crate) fn step_aside(waits: &ThreadState) {
    if let Some(limiter) = line_of(waits) {
        limiter.line.leave(waits.place);
    }
}

/// Gives back the rights of a thread that has left a hook by a jump, and takes its launch out of the line.
pub(crate) fn give_back(left: &ThreadState) {
    for right in left.rights {
        // SAFETY: null, or a flag of this process's state, which is never freed.
        if let Some(flag) = unsafe { right.as_ref() } {
            flag.store(false, Ordering::Release);
        }
    }
    // SAFETY: null, or a count in this process's state, which is never freed.
    if let Some(ended) = unsafe { left.host_waits.as_ref() } {
        ended.fetch_add(1, Ordering::SeqCst);
    }
    if let Some(limiter) = line_of(left) {
        let was_last = limiter.held.fetch_sub(1, Ordering::SeqCst) == 1;
        limiter.step_out(left.place, 0, was_last);
    }
}

/// Whether the kernel has no measurement yet, so that its prediction means nothing. Another thread may have measured it since
/// it was predicted.
fn is_unmeasured(predicted: &Prediction) -> bool {
    predicted.samples == 0 && COSTS.at(predicted.index).1 == 0
}
