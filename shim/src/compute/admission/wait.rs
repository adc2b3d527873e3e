//! A launch that waits: for tokens, for its turn, or for work to end.

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::{FLOOR_PERMILLE, View};
use vcuda_limiter::predict::Prediction;
use vcuda_limiter::{Admission, COMPLETION_WAIT_MAX_NS, Reason};

use vcuda_region::clock::now_ns;

use super::{COSTS, Launches, Waiting, is_unmeasured};
use crate::compute::device_limiter::{DeviceLimiter, TOKENS, WINDOW};
use crate::compute::gang;
use crate::compute::settle;
use crate::compute::stream_state::{OVERDUE_PART, StreamState};
use crate::compute::worker;

/// Longest sleep between two looks at the window (ns); work that finishes ends the sleep earlier. Also the whole wait
/// of a measured kernel while work in flight waits for the host.
const WINDOW_SLEEP_NS: u64 = 1_000_000;
/// Shortest sleep between two looks at the window (ns).
const LOOK_NS: u64 = 50_000;
/// A launch that waits for its own stream looks at the timing events itself. The worker leaves them to it until this
/// long after the expected end (ns).
const ATTENDED_NS: u64 = 200_000;
/// Longest sleep between two looks at the limits, and their greatest age at a look (ns): a change takes effect within
/// the sum.
const LIMITS_SLEEP_NS: u64 = 20_000_000;
const LIMITS_AGE_NS: u64 = 5_000_000;
/// Longest time at the end of a wait that is spun instead of slept (ns). Sleeps end late by about this much.
const SPIN_NS: u64 = 40_000;
/// Number of sleeps over which their lateness is averaged, about.
const SLEEPS: u64 = 8;
/// A launch waits no longer beside a segment of another stream that has run for this long, with nothing finished meanwhile
/// (ns): it may wait for the host.
const LONG_WORK_NS: u64 = 20_000_000;
/// The same, where that was seen of late (ns), and what late means (ns).
const LONG_WORK_AGAIN_NS: u64 = 5_000_000;
const OF_LATE_NS: u64 = 10_000_000_000;
/// Cost counted for a kernel without a measurement that goes beside such a segment (ns). Its prediction means
/// nothing, and nothing limits the launches behind it.
const UNMEASURED_BESIDE_NS: u64 = 50_000_000;
/// A segment of another context counts as long only beyond this (ns). The driver gives time slices to contexts, so beside it the tenant
/// would have two where a neighbour has one. It is the longest wait for work to end: nothing waits longer for it.
const OTHER_CONTEXT_NS: u64 = COMPLETION_WAIT_MAX_NS;

impl Launches {
    /// Waits until the launch may proceed. Returns `true` if the bound on the wait came first.
    pub(super) fn wait(
        &'static self,
        limiter: &DeviceLimiter,
        mut waiting: Waiting<'_>,
        mut view: View,
        mut decision: Admission,
        predicted: &Prediction,
        started_ns: u64,
    ) -> bool {
        // The number of finished launches, and the time since which it has not changed.
        let mut quiet = (limiter.meter.finished(), started_ns);
        loop {
            let now = now_ns();
            limiter.stand_in_line(waiting.place, predicted.cost_ns, now);
            let finished = limiter.meter.finished();
            if finished != quiet.0 {
                quiet = (finished, now);
            }
            let beside_after_ns = limiter.beside_after_ns(now);
            let long_work_ns = self.longest_beside(limiter, waiting.stream_state);
            // What would only queue behind such work of its own stream is not what that waits for.
            let is_behind = waiting.stream_state.is_some_and(|own| own.seen_running_ns() >= beside_after_ns);
            let goes_beside = !is_behind && long_work_ns.min(now.saturating_sub(quiet.1)) >= beside_after_ns;
            if goes_beside && long_work_ns >= LONG_WORK_NS {
                limiter.passed_long_work_ns.store(now, Ordering::Relaxed);
            }
            let goes_on_debt = if goes_beside && limiter.is_first(waiting.place) {
                self.wait_beside(limiter, &view, price_beside_ns(predicted), now)
            } else if decision == Admission::Admit {
                return false;
            } else if goes_beside {
                let turn = (started_ns, u64::MAX, LIMITS_SLEEP_NS);
                self.wait_for_turn(limiter, &waiting, &view, predicted, turn, now)
            } else {
                let times_ns = (started_ns, beside_after_ns);
                self.wait_as_decided(limiter, &mut waiting, &view, (decision, predicted), times_ns, now)
            };
            if goes_on_debt {
                return true;
            }
            if !matches!(decision, Admission::WaitForCompletion { .. }) {
                waiting.for_completion_since_ns = None;
            }
            let now = now_ns();
            // With nothing in flight the worker sleeps.
            limiter.follow_limits(LIMITS_AGE_NS, now);
            view = limiter.view(now);
            let before = decision;
            decision = self.decide(limiter, &view, predicted, Some(waiting), now);
            if decision == Admission::Admit || !limiter.is_metered() {
                note_lateness(limiter, before, now);
                return false;
            }
        }
    }

    /// Carries out one decision. Returns `true` if the launch proceeds on debt.
    fn wait_as_decided(
        &'static self,
        limiter: &DeviceLimiter,
        waiting: &mut Waiting<'_>,
        view: &View,
        (decision, predicted): (Admission, &Prediction),
        (started_ns, beside_after_ns): (u64, u64),
        now: u64,
    ) -> bool {
        match decision {
            Admission::Admit => false,
            Admission::WaitUntil { at_ns, reason } => {
                let times_ns = (started_ns, at_ns, beside_after_ns);
                match reason {
                    Reason::Tokens => self.wait_for_tokens(limiter, waiting, view, predicted, times_ns, now),
                    Reason::Turn => self.wait_for_turn(limiter, waiting, view, predicted, times_ns, now),
                }
            }
            Admission::WaitForCompletion { work_ns, deadline_ns } => {
                waiting.for_completion_since_ns.get_or_insert(now);
                let waits = *waiting;
                let still = || self.decide(limiter, view, predicted, Some(waits), now) != Admission::Admit;
                self.wait_for_completion(limiter, waiting, (work_ns, deadline_ns), now, still)
                    || self.goes_beside_host_wait(limiter, predicted)
            }
        }
    }

    /// Whether a launch goes now, although too much work is in flight, because a stream waits for the host: that stream may
    /// wait for this very thread. Kernels without a measurement would pile up behind it, each at a prediction that means
    /// nothing. So of these only one goes in each [`LONG_WORK_NS`], and pays its debt.
    fn goes_beside_host_wait(&self, limiter: &DeviceLimiter, predicted: &Prediction) -> bool {
        let goes =
            || !is_unmeasured(predicted) || limiter.bucket.admit_on_debt(now_ns(), LONG_WORK_NS).is_ok();
        self.waits_for_host() && goes()
    }

    /// Lets a launch go that waits since `started_ns` for tokens or for its turn, if it is one of these; all go at the tenant's rate:
    /// - The tenant yields to others and repays what it had before they came.
    /// - A kernel of the gang waits for it.
    /// - The longest wait is over, and the tenant owes no more than the time of work that ran longer than predicted
    ///   ([`Launches::overran_ns`]): that work may wait for this launch, and adds to the debt as long as it does.
    ///
    /// In all other cases nothing adds to the debt, so the refill ends the wait.
    ///
    /// # Errors
    /// The launch waits on. The error is the time of the next question (`CLOCK_MONOTONIC`, ns).
    fn go_on_debt(
        &self,
        limiter: &DeviceLimiter,
        view: &View,
        predicted: &Prediction,
        started_ns: u64,
        now: u64,
    ) -> Result<(), u64> {
        let hold_max_ns = view.config.hold_max_ns;
        let again_ns = now.saturating_add(LIMITS_SLEEP_NS);
        let owes_ns = limiter.owes_ns(view, now);
        let rate_permille = view.pace.rate_permille;
        let yields = rate_permille <= FLOOR_PERMILLE && rate_permille < view.config.cap_permille;
        if yields && owes_ns > gang::DEBT_NS {
            // It yields to others. What it had before they came it would repay in minutes, without its part of the scraps.
            let gone = limiter.bucket.go_beside(&view.pace, price_beside_ns(predicted), now);
            return gone.map_err(|at_ns| at_ns.min(again_ns));
        }
        if limiter.bucket.is_gang(now) && self.is_surely_waited_for(limiter, started_ns, now) {
            // Past what such a launch may owe at once ([`Launches::held_until`]): to hold it would add to the debt for ever.
            let gone = limiter.bucket.go_beside(&view.pace, price_beside_ns(predicted), now);
            return gone.map_err(|at_ns| at_ns.min(again_ns));
        }
        let bound_ns = started_ns.saturating_add(hold_max_ns);
        if now < bound_ns {
            return Err(bound_ns);
        }
        let overran_ns = self.overran_ns(now);
        if owes_ns > 0 && (overran_ns == 0 || owes_ns > overran_ns + limiter.in_flight(now).0) {
            return Err(again_ns);
        }
        let gone = limiter.bucket.go_beside(&view.pace, price_beside_ns(predicted), now);
        gone.map_err(|at_ns| at_ns.min(again_ns))
    }

    /// Waits for tokens until `at_ns`, or until something changes. Returns `true` if the launch proceeds on debt.
    fn wait_for_tokens(
        &'static self,
        limiter: &DeviceLimiter,
        waiting: &Waiting<'_>,
        view: &View,
        predicted: &Prediction,
        (started_ns, at_ns, beside_after_ns): (u64, u64, u64),
        now: u64,
    ) -> bool {
        let Err(bound_ns) = self.go_on_debt(limiter, view, predicted, started_ns, now) else {
            return true;
        };
        sleep_until(limiter, at_ns.min(bound_ns), now, beside_after_ns);
        // Settles work that ended meanwhile: the worker looks seldom while no launch waits for work.
        if let Some(stream_state) = waiting.stream_state.filter(|_| limiter.is_sole()) {
            self.settle_own(limiter, stream_state);
        }
        false
    }

    /// Waits for the launches of the tenant that go first, until `until_ns` at most. Returns `true` if the launch
    /// proceeds on debt.
    fn wait_for_turn(
        &'static self,
        limiter: &DeviceLimiter,
        waiting: &Waiting<'_>,
        view: &View,
        predicted: &Prediction,
        (started_ns, until_ns, beside_after_ns): (u64, u64, u64),
        now: u64,
    ) -> bool {
        let Err(bound_ns) = self.go_on_debt(limiter, view, predicted, started_ns, now) else {
            return true;
        };
        let at_ns = until_ns.min(bound_ns).min(now.saturating_add(beside_after_ns));
        limiter.sleep_for_turn(waiting.place, predicted.cost_ns, at_ns.saturating_sub(now), || {
            // The launch that goes first may wait for our work to end.
            self.wake_if(worker::ASLEEP | worker::UNHURRIED);
        });
        false
    }

    /// Waits for work to end as long as `still` returns true. Returns `true` if the launch proceeds on debt.
    fn wait_for_completion(
        &'static self,
        limiter: &DeviceLimiter,
        waiting: &Waiting<'_>,
        (work_ns, deadline_ns): (u64, u64),
        now: u64,
        still: impl Fn() -> bool,
    ) -> bool {
        if now >= deadline_ns && limiter.bucket.admit_on_debt(now, COMPLETION_WAIT_MAX_NS).is_ok() {
            return true;
        }
        let own = waiting.stream_state.filter(|_| limiter.is_sole());
        let (look_in_ns, is_enough) = look_in_ns(limiter, own, work_ns, now);
        let still = || {
            if !is_enough {
                // The worker must look at the other streams.
                self.wake_if(worker::ASLEEP | worker::UNHURRIED);
            }
            still()
        };
        limiter.sleep(WINDOW, look_in_ns, still);
        if let Some(stream_state) = waiting.stream_state.filter(|_| is_enough) {
            self.settle_own(limiter, stream_state);
        }
        false
    }

    /// Waits beside long work until the refill has paid for all but the work that runs, and for the launches that went beside it
    /// before; or until something changes. Returns `true` if the launch may go.
    fn wait_beside(&self, limiter: &DeviceLimiter, view: &View, price_ns: u64, now: u64) -> bool {
        let again_ns = now.saturating_add(LIMITS_SLEEP_NS);
        let running_ns = limiter.in_flight(now).0.saturating_add(self.overrun_charge_ns(limiter));
        let owes_ns = limiter.owes_ns(view, now);
        let paid = if owes_ns <= running_ns.saturating_add(gang::DEBT_NS) {
            limiter.bucket.go_beside(&view.pace, price_ns, now)
        } else {
            Err(again_ns)
        };
        let Err(at_ns) = paid else {
            return true;
        };
        sleep_until(limiter, at_ns.min(again_ns), now, LIMITS_SLEEP_NS);
        false
    }

    /// What this process's work in flight on the device was charged beyond its prediction so far (ns).
    fn overrun_charge_ns(&self, limiter: &DeviceLimiter) -> u64 {
        self.streams_on(limiter).map(StreamState::overrun_charge_ns).sum()
    }
}

impl Launches {
    /// Longest time for which a segment of another stream of the device was seen to run (ns), less [`OTHER_CONTEXT_NS`] for one of
    /// another context. Its end may never come.
    /// Work that is known to wait for the host is told by [`Launches::waits_for_host`].
    fn longest_beside(&self, limiter: &DeviceLimiter, own: Option<&StreamState>) -> u64 {
        let is_beside =
            |stream_state: &&StreamState| !own.is_some_and(|own| core::ptr::eq(own, *stream_state));
        let running_ns = |beside: &StreamState| {
            let ns = beside.seen_running_ns();
            match own.is_some_and(|own| !own.shares_context(beside)) {
                true => ns.saturating_sub(OTHER_CONTEXT_NS),
                false => ns,
            }
        };
        let beside = self.streams_on(limiter).filter(is_beside);
        beside.map(running_ns).max().unwrap_or(0)
    }

    pub(in crate::compute) fn streams_on(
        &self,
        limiter: &DeviceLimiter,
    ) -> impl Iterator<Item = &StreamState> {
        let is_on = |stream_state: &&StreamState| {
            stream_state.limiter().is_some_and(|its| core::ptr::eq(its, limiter))
        };
        self.streams.all().filter(is_on)
    }
}

/// Counts how late a launch proceeds at `now` after a wait for tokens. One that was woken before its time was not late.
fn note_lateness(limiter: &DeviceLimiter, waited_for: Admission, now: u64) {
    if let Admission::WaitUntil { at_ns, reason: Reason::Tokens } = waited_for
        && now >= at_ns
    {
        limiter.bucket.lateness.count(now_ns().saturating_sub(at_ns));
    }
}

/// Cost at which a launch goes beside long work (ns).
fn price_beside_ns(predicted: &Prediction) -> u64 {
    // Another thread may have measured it since.
    match COSTS.at(predicted.index) {
        (_, 0) => UNMEASURED_BESIDE_NS,
        (cost_ns, _) => cost_ns,
    }
}

impl DeviceLimiter {
    /// Time after which work beside a waiting launch counts as long (ns). The launch then goes beside it.
    fn beside_after_ns(&self, now_ns: u64) -> u64 {
        let seen_ns = self.passed_long_work_ns.load(Ordering::Relaxed);
        if seen_ns != 0 && now_ns.saturating_sub(seen_ns) < OF_LATE_NS {
            LONG_WORK_AGAIN_NS
        } else {
            LONG_WORK_NS
        }
    }
}

/// Time until the next look at the timing events of a stream (ns), and whether it has `ns` of predicted work in
/// flight. The worker leaves these events alone until then.
fn look_in_ns(limiter: &DeviceLimiter, stream_state: Option<&StreamState>, ns: u64, now: u64) -> (u64, bool) {
    let expected = stream_state.map(|stream_state| (stream_state, stream_state.expected_ns(ns)));
    let Some((stream_state, Some(expected_ns))) = expected else {
        return (WINDOW_SLEEP_NS, false);
    };
    // The interval grows with the delay.
    let overdue_ns = now.saturating_sub(expected_ns);
    let look_in_ns = expected_ns.saturating_sub(now).max(overdue_ns / OVERDUE_PART);
    // Beside neighbours the end cannot be predicted: looks as often as the worker would.
    let least_ns = if limiter.is_foreseen() { LOOK_NS } else { settle::CONTENDED_NS.0 };
    let look_in_ns = look_in_ns.clamp(least_ns, WINDOW_SLEEP_NS);
    stream_state.attended_until_ns.store(now + look_in_ns + ATTENDED_NS, Ordering::Relaxed);
    (look_in_ns, true)
}

/// Sleeps until shortly before `at_ns` and spins the rest; returns early when the tokens or the limits may have changed.
fn sleep_until(limiter: &DeviceLimiter, at_ns: u64, now: u64, most_ns: u64) {
    let left_ns = at_ns.saturating_sub(now);
    let late_ns = limiter.sleeps_late_ns.load(Ordering::Relaxed);
    if left_ns > late_ns {
        let sleep_ns = (left_ns - late_ns).min(most_ns);
        limiter.sleep(TOKENS, sleep_ns, || true);
        // A sleep that was ended early says nothing about lateness.
        if let Some(this_ns) = now_ns().checked_sub(now.saturating_add(sleep_ns)) {
            let next_ns = (late_ns * (SLEEPS - 1) + this_ns.min(SPIN_NS)) / SLEEPS;
            limiter.sleeps_late_ns.store(next_ns, Ordering::Relaxed);
        }
        return;
    }
    while now_ns() < at_ns {
        core::hint::spin_loop();
    }
}
