//! The slow path of a launch: a new lease, or a wait for it. Every wait is bounded and ends by itself; what then goes on
//! goes on debt, counted (I11).

use core::sync::atomic::Ordering;

use vcuda_region::controller::{Verdict, View};
use vcuda_region::predict::{Key, Prediction};

use super::lane::{BALANCE, Lane, WINDOW, now_ns};
use super::streams::Stream;
use super::track::{OVERDUE_PART, Track};
use super::{COSTS, Launches, collective, sys};
use crate::{capture, reaper};

/// Launches in flight per container and device: the driver's own queue must never be what blocks.
const LAUNCHES_MAX: u64 = 512;
/// Launches of a kernel of which nothing is known yet.
const UNPROVEN_MAX: u32 = 4;
/// Longest wait for work to finish (ns).
const WINDOW_MAX_WAIT_NS: u64 = 250_000_000;
/// Longest wait for the balance of several devices (ns).
const JOINT_MAX_WAIT_NS: u64 = 250_000_000;
/// Longest sleep between two looks at the window (ns): finishing work wakes earlier. Also the whole wait while work in flight
/// waits for the host.
const WINDOW_SLEEP_NS: u64 = 1_000_000;
/// Shortest (ns).
const LOOK_NS: u64 = 50_000;
/// Who waits for work of its own stream looks at the marks itself: for so long after it should have, they are left to it (ns).
const ATTENDED_NS: u64 = 200_000;
/// Longest sleep between two looks at the limits (ns), and how old they may be by then: a change is felt within the sum.
const LIMITS_SLEEP_NS: u64 = 20_000_000;
const LIMITS_AGE_NS: u64 = 5_000_000;
/// What is left of a wait is spun, as no sleep ends that exactly (ns, at most): as much as sleeps were late of late.
const SPIN_NS: u64 = 40_000;
/// How many sleeps that is learnt from, about.
const SLEEPS: u64 = 8;
/// A launch waits no longer beside a segment of another stream that has run for this long, with nothing finished meanwhile
/// (ns): it may wait for the host.
const ENDLESS_NS: u64 = 20_000_000;
/// The same, where that was seen of late (ns), and what late means (ns).
const ENDLESS_AGAIN_NS: u64 = 5_000_000;
const OF_LATE_NS: u64 = 10_000_000_000;

/// What a launch waits for.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// Time, until then (`CLOCK_MONOTONIC`, ns).
    Balance(u64),
    /// Work to finish, so much of it (ns, as predicted).
    Window(u64),
    /// Another process of the container, which has had less: until then at most (`CLOCK_MONOTONIC`, ns).
    Turn(u64),
}

/// A launch that is held.
#[derive(Debug, Clone, Copy)]
struct Waiting<'a> {
    /// Its stream.
    track: Option<&'a Track>,
    /// Its place among those of its process.
    place: u32,
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
        let unproven = predicted.samples == 0 && COSTS.launched_unproven(predicted.index) >= UNPROVEN_MAX;
        if paid && !unproven {
            return false;
        }
        let cost_ns = predicted.cost_ns;
        let started_ns = now_ns();
        lane.come(cost_ns);
        // Counted already: what is in flight holds this launch.
        let mut view = lane.view(started_ns);
        let mut need = self.need(lane, &view, &predicted, unproven, None, started_ns);
        if need.is_some() && track.is_some_and(|track| self.settle_own(lane, track).progress) {
            let now = now_ns();
            view = lane.view(now);
            need = self.need(lane, &view, &predicted, unproven, None, now);
        }
        let Some(need) = need.filter(|_| !capture::is_capturing_thread(sys::thread_mark())) else {
            self.go_on(lane, cost_ns, paid);
            return false;
        };
        // While it waits it is not in flight, or two that wait would wait for each other.
        lane.meter.refund(cost_ns);
        if let Some(track) = track {
            self.mark(lane, track, stream, 0);
        }
        self.wake_reaper();
        let place = lane.join();
        let on_debt = self.wait(
            lane,
            Waiting { track, place },
            view,
            need,
            &predicted,
            unproven,
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

    /// What a launch has to wait for; nothing if it may go. `waits`: it waits already, and is not counted among the work in
    /// flight.
    fn need(
        &self,
        lane: &Lane,
        view: &View,
        predicted: &Prediction,
        unproven: bool,
        waits: Option<Waiting<'_>>,
        now_ns: u64,
    ) -> Option<Need> {
        // What waits for the host may wait for this very thread: it waits for its balance as all do, but for nobody's turn.
        if !self.has_peers(lane, now_ns)
            && !self.is_gated()
            && let Some(until_ns) =
                lane.others_until(predicted.cost_ns, waits.map(|waits| waits.place), now_ns)
        {
            return Some(Need::Turn(until_ns));
        }
        let (mut ns, mut launches) = lane.in_flight();
        let mut own_ns = lane.meter.in_flight_ns();
        if waits.is_none() {
            ns = ns.saturating_sub(predicted.cost_ns);
            own_ns = own_ns.saturating_sub(predicted.cost_ns);
            launches = launches.saturating_sub(1);
        }
        // Who waits is not idle when all that was in flight is done, and keeps what it is behind: else it would lose that each
        // time that several segments are seen to be done at once.
        let at_work = launches > 0 || waits.is_some();
        let own = match lane.verdict(view, at_work, now_ns) {
            Verdict::At(at_ns) => Some(at_ns),
            Verdict::Go => None,
        };
        if let Some(at_ns) = self.held_until(lane, own, now_ns) {
            return Some(Need::Balance(at_ns));
        }
        let wanted_ns = ns.saturating_add(predicted.cost_ns);
        // Who waits for its own work alone does so until most is done: else it would be woken for each launch.
        let is_alone =
            |track: &Track| lane.is_sole() && lane.is_foreseen() && track.expected_ns(ns).is_some();
        let most_ns = if waits.and_then(|waits| waits.track).is_some_and(is_alone) {
            view.window_ns / 4
        } else {
            view.window_ns
        };
        let full = wanted_ns > most_ns || launches >= LAUNCHES_MAX;
        let unknown = unproven && COSTS.at(predicted.index).1 == 0;
        if launches > 0 && (full || unknown) {
            return Some(Need::Window(wanted_ns.saturating_sub(most_ns).min(ns)));
        }
        // One process after another: what overlaps is not known by its own length, and each switch costs GPU time.
        let others_ns = ns.saturating_sub(own_ns);
        let joins = lane.begins_turn() && others_ns > view.window_ns / 4;
        joins.then(|| Need::Window(others_ns - view.window_ns / 4))
    }

    /// Waits until the launch may go. `true`: the bound came first.
    #[expect(clippy::too_many_arguments, reason = "a launch that is held, and why")]
    fn wait(
        &'static self,
        lane: &Lane,
        waiting: Waiting<'_>,
        mut view: View,
        mut need_now: Need,
        predicted: &Prediction,
        unproven: bool,
        started_ns: u64,
    ) -> bool {
        let track = waiting.track;
        let mut window_since_ns = None;
        // Launches finished, and since when it is no more.
        let mut quiet = (lane.meter.finished(), started_ns);
        loop {
            let now = now_ns();
            lane.stand_in_line(predicted.cost_ns, now);
            let finished = lane.meter.finished();
            if finished != quiet.0 {
                quiet = (finished, now);
            }
            let patience_ns = lane.patience_ns(now);
            let endless_ns = self.longest_beside(lane, track);
            if endless_ns.min(now.saturating_sub(quiet.1)) >= patience_ns {
                if endless_ns >= ENDLESS_NS {
                    lane.endless_ns.store(now, Ordering::Relaxed);
                }
                let at_ns = lane.account.beside(&view.pace, predicted.cost_ns, now);
                wait_until(lane, at_ns, started_ns, view.config.hold_max_ns);
                return true;
            }
            match need_now {
                Need::Balance(at_ns) => {
                    window_since_ns = None;
                    let most_ns = if self.has_peers(lane, now) {
                        view.config.hold_max_ns.min(JOINT_MAX_WAIT_NS)
                    } else {
                        view.config.hold_max_ns
                    };
                    let Some(bound_ns) = bound_ns(lane, started_ns, most_ns, now) else {
                        return true;
                    };
                    sleep_until(lane, at_ns.min(bound_ns), now, patience_ns);
                    // What was done meanwhile is not waited for: the reaper looks seldom while nobody waits for work.
                    if let Some(track) = track.filter(|_| lane.is_sole()) {
                        self.settle_own(lane, track);
                    }
                }
                Need::Turn(until_ns) => {
                    window_since_ns = None;
                    let Some(bound_ns) = bound_ns(lane, started_ns, view.config.hold_max_ns, now) else {
                        return true;
                    };
                    let at_ns = until_ns.min(bound_ns).min(now.saturating_add(patience_ns));
                    lane.sleep_for_turn(
                        waiting.place,
                        predicted.cost_ns,
                        at_ns.saturating_sub(now),
                        || {
                            // Who goes first may wait for our work to end.
                            self.ring(reaper::ASLEEP | reaper::UNHURRIED);
                        },
                    );
                }
                Need::Window(ns) => {
                    let since = *window_since_ns.get_or_insert(now);
                    if bound_ns(lane, since, WINDOW_MAX_WAIT_NS, now).is_none() {
                        return true;
                    }
                    let (look_in_ns, is_enough) = look_in_ns(
                        lane,
                        track.filter(|_| lane.is_sole() && !capture::any_open()),
                        ns,
                        now,
                    );
                    let still = || {
                        if !is_enough {
                            // Somebody must look at the other streams.
                            self.ring(reaper::ASLEEP | reaper::UNHURRIED);
                        }
                        self.need(lane, &view, predicted, unproven, Some(waiting), now)
                            .is_some()
                    };
                    lane.sleep(WINDOW, look_in_ns, still);
                    if let Some(track) = track.filter(|_| is_enough) {
                        self.settle_own(lane, track);
                    }
                    // What waits for the host may wait for this very thread.
                    if self.is_gated() {
                        return true;
                    }
                }
            }
            let now = now_ns();
            // With nothing in flight the reaper sleeps.
            lane.follow_limits(LIMITS_AGE_NS, now);
            view = lane.view(now);
            match self.need(lane, &view, predicted, unproven, Some(waiting), now) {
                Some(next) if lane.is_metered() => need_now = next,
                _ => {
                    // Who was woken before its time was not late.
                    if let Need::Balance(at_ns) = need_now
                        && now >= at_ns
                    {
                        lane.account.lateness.count(now_ns().saturating_sub(at_ns));
                    }
                    return false;
                }
            }
        }
    }
}

impl Launches {
    /// For how long a segment of another stream of the device was seen to run, the longest (ns). To wait for its end may be to
    /// wait for ever; gates are told apart by [`Launches::is_gated`].
    fn longest_beside(&self, lane: &Lane, own: Option<&Track>) -> u64 {
        let is_beside = |track: &&Track| {
            !own.is_some_and(|own| core::ptr::eq(own, *track))
                && track.lane().is_some_and(|its| core::ptr::eq(its, lane))
        };
        let beside = self.tracks.all().filter(is_beside);
        beside.map(Track::seen_running_ns).max().unwrap_or(0)
    }
}

impl Lane {
    /// After how long work beside a held launch counts as endless (ns).
    fn patience_ns(&self, now_ns: u64) -> u64 {
        let seen_ns = self.endless_ns.load(Ordering::Relaxed);
        if seen_ns != 0 && now_ns.saturating_sub(seen_ns) < OF_LATE_NS {
            ENDLESS_AGAIN_NS
        } else {
            ENDLESS_NS
        }
    }
}

/// In how long to look at the marks of a stream of which `ns` of predicted work are to finish (ns), and whether it has so
/// much. The reaper leaves them alone until then.
fn look_in_ns(lane: &Lane, track: Option<&Track>, ns: u64, now: u64) -> (u64, bool) {
    let expected = track.map(|track| (track, track.expected_ns(ns)));
    let Some((track, Some(expected_ns))) = expected else {
        return (WINDOW_SLEEP_NS, false);
    };
    // The later, the less does a little more matter.
    let overdue_ns = now.saturating_sub(expected_ns);
    let look_in_ns = expected_ns.saturating_sub(now).max(overdue_ns / OVERDUE_PART);
    // Beside neighbours nobody knows when: as often as the reaper would.
    let least_ns = if lane.is_foreseen() {
        LOOK_NS
    } else {
        reaper::CONTENDED_NS.0
    };
    let look_in_ns = look_in_ns.clamp(least_ns, WINDOW_SLEEP_NS);
    track
        .attended_until_ns
        .store(now + look_in_ns + ATTENDED_NS, Ordering::Relaxed);
    (look_in_ns, true)
}

/// Until when a launch that waits since `started_ns` waits at most (`CLOCK_MONOTONIC`, ns); nothing if it may go on debt now. The
/// bound is one for all launches of the container that wait: past it they go on debt one at a time.
fn bound_ns(lane: &Lane, started_ns: u64, most_ns: u64, now: u64) -> Option<u64> {
    let bound_ns = started_ns.saturating_add(most_ns);
    if now < bound_ns {
        return Some(bound_ns);
    }
    lane.account.admit_on_debt(now, most_ns).err()
}

/// Sleeps until then, or until the bound of a launch that waits since `started_ns`.
fn wait_until(lane: &Lane, at_ns: u64, started_ns: u64, most_ns: u64) {
    loop {
        let now = now_ns();
        if now >= at_ns {
            return;
        }
        let Some(bound_ns) = bound_ns(lane, started_ns, most_ns, now) else {
            return;
        };
        sleep_until(lane, at_ns.min(bound_ns), now, LIMITS_SLEEP_NS);
    }
}

/// Sleeps until shortly before `at_ns` and spins the rest; returns early when the balance or the limits may have changed.
fn sleep_until(lane: &Lane, at_ns: u64, now: u64, most_ns: u64) {
    let left_ns = at_ns.saturating_sub(now);
    let late_ns = lane.sleeps_late_ns.load(Ordering::Relaxed);
    if left_ns > late_ns {
        let sleep_ns = (left_ns - late_ns).min(most_ns);
        lane.sleep(BALANCE, sleep_ns, || true);
        // Who was woken before its time tells nothing.
        if let Some(this_ns) = now_ns().checked_sub(now.saturating_add(sleep_ns)) {
            let next_ns = (late_ns * (SLEEPS - 1) + this_ns.min(SPIN_NS)) / SLEEPS;
            lane.sleeps_late_ns.store(next_ns, Ordering::Relaxed);
        }
        return;
    }
    while now_ns() < at_ns {
        core::hint::spin_loop();
    }
}
