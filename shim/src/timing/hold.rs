//! The slow path of a launch: a new lease, or a wait for it. Every wait is bounded and ends by itself; what then goes on
//! goes on debt, counted (I11).

mod wait;

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::{Verdict, View};
use vcuda_limiter::predict::{Key, Prediction};
use vcuda_limiter::{self as limiter, Admission, Refinement, Snapshot};

use super::lane::{Lane, now_ns};
use super::streams::Stream;
use super::track::Track;
use super::{COSTS, Launches, collective};

/// A launch that is held.
#[derive(Debug, Clone, Copy)]
struct Waiting<'a> {
    /// Its stream.
    track: Option<&'a Track>,
    /// Its place among those of its process.
    place: u32,
    /// Since when it waits for work to end, if it does (`CLOCK_MONOTONIC`, ns).
    for_completion_since_ns: Option<u64>,
}

impl Launches {
    /// Takes a lease for a launch that could not be `paid` from the present one, or whose kernel is unknown; waits until
    /// it may go. Returns whether it waited.
    #[cold]
    pub(super) fn hold(
        &'static self,
        lane: &'static Lane,
        track: Option<&'static Track>,
        stream: Stream,
        key: Key,
        predicted: Prediction,
        paid: bool,
    ) -> bool {
        if collective::is_collective(&predicted, key) {
            if !predicted.is_collective {
                self.count_collective(lane);
            }
            self.go_on(lane, predicted.cost_ns, paid);
            return false;
        }
        if paid && predicted.samples > 0 {
            return false;
        }
        let cost_ns = predicted.cost_ns;
        let started_ns = now_ns();
        lane.come(cost_ns);
        // Counted already: what is in flight holds this launch.
        let mut view = lane.view(started_ns);
        let mut decision = self.decide(lane, &view, &predicted, None, started_ns);
        if decision != Admission::Admit && track.is_some_and(|track| self.settle_own(lane, track).progress) {
            let now = now_ns();
            view = lane.view(now);
            decision = self.decide(lane, &view, &predicted, None, now);
        }
        if decision == Admission::Admit {
            self.go_on(lane, cost_ns, paid);
            return false;
        }
        // While it waits it is not in flight, or two that wait would wait for each other.
        lane.meter.refund(cost_ns);
        if let Some(track) = track {
            self.mark(lane, track, stream, 0);
        }
        self.wake_reaper();
        let place = lane.join();
        let on_debt = self.wait(
            lane,
            Waiting {
                track,
                place,
                for_completion_since_ns: None,
            },
            view,
            decision,
            &predicted,
            started_ns,
        );
        let was_last = lane.held.fetch_sub(1, Ordering::SeqCst) == 1;
        let held_ns = now_ns().saturating_sub(started_ns);
        lane.meter.holds.fetch_add(1, Ordering::Relaxed);
        lane.meter.held_ns.fetch_add(held_ns, Ordering::Relaxed);
        lane.meter
            .debt_admits
            .fetch_add(u32::from(on_debt), Ordering::Relaxed);
        if !lane.meter.spend(cost_ns) {
            // On debt, this one alone.
            self.take(lane, cost_ns, on_debt);
        }
        lane.step_out(place, cost_ns, was_last);
        true
    }

    /// The launch goes, on debt if it was not `paid`.
    fn go_on(&'static self, lane: &Lane, cost_ns: u64, paid: bool) {
        if !paid {
            self.take(lane, cost_ns, false);
        }
        self.wake_reaper();
    }

    /// Pays a launch from the account. Ranks that stop together are asked at each launch: by what was left of a lease each
    /// would run ahead of the others in turn.
    fn take(&self, lane: &Lane, cost_ns: u64, alone: bool) {
        let portion_ns = if alone || self.has_peers(lane, now_ns()) {
            0
        } else {
            lane.portion_ns()
        };
        lane.meter.take_with(lane.account, cost_ns, portion_ns);
        lane.took(cost_ns + portion_ns);
    }

    /// Whether a launch may go, or what it waits for. `waits`: it waits already, and is not counted among the work in flight.
    fn decide(
        &self,
        lane: &Lane,
        view: &View,
        predicted: &Prediction,
        waits: Option<Waiting<'_>>,
        now_ns: u64,
    ) -> Admission {
        let others_first = || lane.others_until(predicted.cost_ns, waits.map(|waits| waits.place), now_ns);
        // Work that waits for the host may wait for this very thread: so the launch waits for its tokens, but for no turn.
        let is_by_turns =
            Refinement::ProcessTurns.is_used() && !self.has_peers(lane, now_ns) && !self.is_gated();
        let (mut ns, mut launches) = lane.in_flight();
        let mut own_ns = lane.meter.in_flight_ns();
        if waits.is_none() {
            ns = ns.saturating_sub(predicted.cost_ns);
            own_ns = own_ns.saturating_sub(predicted.cost_ns);
            launches = launches.saturating_sub(1);
        }
        let own = match lane.verdict(view, now_ns) {
            Verdict::At(at_ns) => Some(at_ns),
            Verdict::Go => None,
        };
        // A launch that waits for its own stream's work alone does so until most is done: else it would be woken for each
        // launch that ends.
        let is_alone =
            |track: &Track| lane.is_sole() && lane.is_foreseen() && track.expected_ns(ns).is_some();
        let window_ns = if waits.and_then(|waits| waits.track).is_some_and(is_alone) {
            view.window_ns / 4
        } else {
            view.window_ns
        };
        let launch = Snapshot {
            cost_ns: predicted.cost_ns,
            is_unmeasured: predicted.samples == 0 && COSTS.at(predicted.index).1 == 0,
            tokens_at_ns: self.held_until(lane, own, now_ns),
            other_first_until_ns: is_by_turns.then(others_first).flatten(),
            in_flight_ns: ns,
            in_flight_launches: launches,
            others_in_flight_ns: ns.saturating_sub(own_ns),
            window_ns,
            begins_turn: Refinement::TurnsApart.is_used() && lane.begins_turn(),
            waits_since_ns: waits.and_then(|waits| waits.for_completion_since_ns),
        };
        limiter::admit(&launch, now_ns)
    }
}
