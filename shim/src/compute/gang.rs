//! Kernels that wait for each other, as collective kernels do: each spins until its peers on the tenant's other GPUs, or those of its other
//! processes, run. If a launch were held for tokens meanwhile, the peers would burn the tenant's GPU time, and its debt would grow with
//! each round. They are known by what they do: a kernel runs longer than predicted while another launch of the tenant is held.
//! From then on the devices concerned are a gang for ten seconds: their launches wait for the tokens of all of them together, and a
//! launch that a kernel may wait for goes although the tenant owes.

use core::sync::atomic::Ordering;

use vcuda_limiter::controller::{SLICE_NS, Verdict, View};
use vcuda_limiter::token_bucket::is_overrun;

use super::Launches;
use super::device_limiter::{DeviceLimiter, TOKENS, TURNS, WINDOW};
use super::stream_state::TimingEvent;
use super::timing_event::measured_cost_ns;

/// What a launch of a gang may owe while others are at work (ns), beyond the time for which a kernel already waits.
pub(super) const DEBT_NS: u64 = 8_000_000;
/// Time (beyond twice its prediction, outside of a gang) from which on a kernel may wait for a launch (ns), alone and beside neighbours.
const DOUBT_NS: (u64, u64) = (1_000_000, 5_000_000);
/// Divisor of that in a gang.
const GANG_PART: u64 = 4;
/// Time from which on a kernel that runs longer than predicted surely waits (ns).
const SURE_NS: u64 = 50_000_000;
/// Time by which a kernel may end late that waits for nothing any more, as others have time slices (ns).
const LATE_NS: u64 = 4 * SLICE_NS;
/// Most of the time for which kernels have waited that a launch may owe (ns). Past it launches go at the tenant's rate, so that a tenant
/// whose kernels only seem to wait keeps its cap.
const WAITED_MOST_NS: u64 = 500_000_000;

impl Launches {
    /// Notes that a segment on `limiter` has run for `ran_ns` at `now_ns` (`CLOCK_MONOTONIC`), and goes on. Whether it may wait for another
    /// process on the same GPU is judged by measurements alone: processes begin with guesses, and side by side.
    pub(super) fn note_running(
        &self,
        limiter: &DeviceLimiter,
        timing_event: &TimingEvent,
        ran_ns: u64,
        now_ns: u64,
    ) {
        let predicted_ns = timing_event.predicted_ns.load(Ordering::Relaxed);
        if ran_ns <= limiter.waits_from_ns(predicted_ns, now_ns) {
            return;
        }
        limiter.bucket.note_running(ran_ns, now_ns);
        let waits_for_own = measured_cost_ns(timing_event).is_some_and(|cost_ns| is_overrun(cost_ns, ran_ns))
            && self.is_unsliced(limiter);
        let holds = |other: &&DeviceLimiter| {
            let is_own = other.position() == limiter.position();
            other.is_metered()
                && if is_own {
                    waits_for_own && limiter.others_wait(now_ns)
                } else {
                    other.has_waiting(now_ns)
                }
        };
        for other in self.limiters.iter().filter(holds) {
            limiter.bucket.note_gang(now_ns);
            other.bucket.note_gang(now_ns);
            other.wake_waiters(TOKENS | WINDOW | TURNS);
        }
    }

    /// Time until which a launch on `limiter` waits for tokens (`CLOCK_MONOTONIC`, ns): in a gang, for those of all its devices. `None` if
    /// it has them, or if it may be the one that others of the gang wait for.
    pub(super) fn held_until(&self, limiter: &DeviceLimiter, view: &View, now_ns: u64) -> Option<u64> {
        let own = limiter.tokens_at(view, now_ns);
        if own.is_none() {
            limiter.bucket.note_paid();
        }
        if !limiter.bucket.is_gang(now_ns) {
            return own;
        }
        let owes_ns = limiter.owes_ns(view, now_ns);
        let (mut latest, mut most_owed_ns) = (own, owes_ns);
        for peer in self.peers(limiter, now_ns) {
            let view = peer.view(now_ns);
            latest = latest.max(peer.tokens_at(&view, now_ns));
            most_owed_ns = most_owed_ns.max(peer.owes_ns(&view, now_ns));
        }
        let waits = self.most_ns(|one| one.bucket.running_ns(now_ns)) > 0;
        let goes = if waits {
            let waited_ns = self.most_ns(|one| one.bucket.waited_ns(now_ns));
            owes_ns <= DEBT_NS + waited_ns.min(WAITED_MOST_NS) && self.is_waited_for(limiter, now_ns)
        } else {
            most_owed_ns <= DEBT_NS && self.are_others_at_work(limiter, now_ns)
        };
        latest.filter(|_| !goes)
    }

    /// Whether no neighbour and no second context of this process takes slices of the device, which make kernels longer.
    fn is_unsliced(&self, limiter: &DeviceLimiter) -> bool {
        let mut at_work = self.streams_on(limiter).filter(|stream_state| stream_state.pending() > 0);
        let is_one_context =
            at_work.next().is_none_or(|first| at_work.all(|other| first.shares_context(other)));
        is_one_context && !limiter.contended.load(Ordering::Relaxed)
    }

    /// Whether a kernel of the gang may wait for this process's next launch on the device, which would then only make the tenant wait for
    /// longer. What waits itself is not waited for.
    fn is_waited_for(&self, limiter: &DeviceLimiter, now_ns: u64) -> bool {
        self.most_ns(|one| one.bucket.running_ns(now_ns)) > 0 && !self.waits_itself(limiter)
    }

    /// Whether one surely waits for it: it has run for so long that no time slice of another process is the reason, and did still run when
    /// the launch had been held for some slices. If launches went for kernels that only end late, some would always run, and the tenant
    /// would never stop.
    pub(super) fn is_surely_waited_for(
        &self,
        limiter: &DeviceLimiter,
        held_since_ns: u64,
        now_ns: u64,
    ) -> bool {
        let seen_from_ns = held_since_ns.saturating_add(LATE_NS);
        self.most_ns(|one| one.bucket.seen_running_ns(seen_from_ns, now_ns)) >= SURE_NS
            && !self.waits_itself(limiter)
    }

    fn waits_itself(&self, limiter: &DeviceLimiter) -> bool {
        let mut streams = self.streams_on(limiter);
        streams.any(|stream_state| stream_state.seen_running_ns() > DOUBT_NS.0 / GANG_PART)
    }

    /// Wakes launches of the gang that wait for others to be at work, as one has just gone.
    pub(super) fn call_gang(&self, limiter: &DeviceLimiter, now_ns: u64) {
        for peer in self.peers(limiter, now_ns) {
            peer.wake_waiters(TOKENS);
        }
    }

    /// Whether a launch waits on any device of a tenant that has several: work elsewhere may wait for it.
    pub(super) fn is_any_held(&self, now_ns: u64) -> bool {
        self.limiters.len() > 1 && self.limiters.iter().any(|limiter| limiter.has_waiting(now_ns))
    }

    /// For how long work on any device of the tenant has run longer than predicted, of late or, without neighbours, now (ns).
    pub(super) fn overran_ns(&self, now_ns: u64) -> u64 {
        self.most_ns(|one| {
            let overran_ns = one.bucket.overran_ns(now_ns);
            // Beside neighbours, slices make kernels longer.
            if one.contended.load(Ordering::Relaxed) {
                overran_ns
            } else {
                overran_ns.max(one.bucket.running_ns(now_ns))
            }
        })
    }

    fn most_ns(&self, of: impl Fn(&DeviceLimiter) -> u64) -> u64 {
        self.limiters.iter().map(of).max().unwrap_or(0)
    }

    /// Whether work of another process, or on another device of the gang, is in flight.
    fn are_others_at_work(&self, limiter: &DeviceLimiter, now_ns: u64) -> bool {
        limiter.in_flight(now_ns).0 > limiter.meter.in_flight_ns()
            || self.peers(limiter, now_ns).any(|peer| peer.in_flight(now_ns).1 > 0)
    }

    /// The other devices of the gang.
    fn peers(&self, limiter: &DeviceLimiter, now_ns: u64) -> impl Iterator<Item = &DeviceLimiter> {
        let own = limiter.position();
        self.limiters
            .iter()
            .filter(move |peer| peer.position() != own && peer.is_metered() && peer.bucket.is_gang(now_ns))
    }
}

impl DeviceLimiter {
    /// Time at which the tenant has tokens for a launch (`CLOCK_MONOTONIC`, ns); `None` if it has them now.
    fn tokens_at(&self, view: &View, now_ns: u64) -> Option<u64> {
        match self.verdict(view, now_ns) {
            Verdict::At(at_ns) => Some(at_ns),
            Verdict::Go => None,
        }
    }

    /// Time from which on work that was predicted to take `predicted_ns` may wait for a launch (ns). In a gang predictions are what the
    /// work took when it waited for nothing ([`super::settle`]), but for a time slice of another process beside it.
    pub(super) fn waits_from_ns(&self, predicted_ns: u64, now_ns: u64) -> u64 {
        let (alone_ns, beside_ns) = DOUBT_NS;
        let doubt_ns = if self.contended.load(Ordering::Relaxed) { beside_ns } else { alone_ns };
        if self.bucket.is_gang(now_ns) {
            let is_beside = self.in_flight(now_ns).0 > self.meter.in_flight_ns();
            let slices_ns = if is_beside { SLICE_NS } else { 0 };
            predicted_ns.saturating_sub(slices_ns).saturating_add(doubt_ns / GANG_PART)
        } else {
            predicted_ns.saturating_mul(2).saturating_add(doubt_ns)
        }
    }

    /// GPU time that the tenant owes on the device (ns).
    pub(super) fn owes_ns(&self, view: &View, now_ns: u64) -> u64 {
        u64::try_from(self.bucket.tokens(&view.pace, now_ns).saturating_neg()).unwrap_or(0)
    }
}
