//! Settling: the charges for work whose timing events were reached. One thread at a time settles: the worker, or one
//! whose launch waits.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::controller::View;
use vcuda_region::MAX_DEVICES;
use vcuda_region::clock::now_ns;

use super::Launches;
use super::device_limiter::{DeviceLimiter, TOKENS, WINDOW};
use super::event_clock::Reached;
use super::stream_state::{ORPHAN, StreamState};
use crate::driver::{Relaxed, real, reentrancy};
use crate::runtime::shim::devices::Pushed;

mod close;
mod segment;

/// Shortest and longest interval of queries beside neighbours (ns): more work is in flight there.
pub(crate) const CONTENDED_NS: (u64, u64) = (250_000, 1_000_000);

pub(super) use segment::{charge, ended_unseen, proved_done};
use segment::{enter, reached, settle_unknown};

/// Waiting launches are woken if at least this much goes back to the bucket (ns).
const RETURNED_NS: u64 = 100_000;
/// The driver is asked for a tail without a timing event after this many times its prediction, plus [`TAIL_NS`].
const TAIL_TIMES: u64 = 4;
const TAIL_NS: u64 = 10_000_000;

/// Age of the worker's last pass from which on launches settle the work of their own streams (ns). It is longer than the worker ever
/// sleeps while work is on the way.
const WORKER_LATE_NS: u64 = 20_000_000;

/// The result of one pass over the streams.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pass {
    /// Whether events were reached.
    pub(crate) progress: bool,
    /// The part of the price that was paid for their work and not used (ns).
    returned_ns: u64,
    /// Whether events, or launches without a timing event, are on the way.
    pub(crate) outstanding: bool,
    /// Time at which the next timing event should be reached (`CLOCK_MONOTONIC`, ns); 0 if none is on the way.
    pub(crate) next_ns: u64,
    /// Whether a waiter needs the result soon: another process of the tenant, or a launch that needs more than its
    /// own stream's work. Also set after a misprediction.
    pub(crate) urgent: bool,
}

impl Pass {
    /// A pass that asked nothing; work is on the way if `outstanding`.
    pub(super) fn skipped(outstanding: bool) -> Self {
        Self { outstanding, ..Self::default() }
    }

    /// Notes that work on the way is to be looked at again at `at_ns` (`CLOCK_MONOTONIC`, ns).
    fn look_at(&mut self, at_ns: u64) {
        self.outstanding = true;
        if self.next_ns == 0 || at_ns < self.next_ns {
            self.next_ns = at_ns;
        }
    }

    /// Reasons ([`WINDOW`], [`TOKENS`]) whose waiters are woken. The end of a wait for tokens is known: only returned
    /// tokens move it.
    fn reasons(&self) -> u32 {
        if self.returned_ns >= RETURNED_NS { WINDOW | TOKENS } else { WINDOW }
    }
}

/// The right to settle; held by one thread at a time.
#[derive(Debug)]
#[must_use = "the right ends when it is dropped"]
pub(super) struct Settling<'a> {
    flag: &'a AtomicBool,
}

impl<'a> Settling<'a> {
    /// Takes the right if no other thread has it; else `None`. It never waits.
    pub(super) fn try_take(flag: &'a AtomicBool) -> Option<Self> {
        // The value exists only while the thread has the right: dropping another one would take it from that thread.
        (!flag.swap(true, Ordering::Acquire)).then(|| {
            reentrancy::note(|state| state.rights[0] = flag);
            Self { flag }
        })
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        reentrancy::note(|state| state.rights[0] = ptr::null());
        self.flag.store(false, Ordering::Release);
    }
}

impl Launches {
    /// Settles what is done on each stream. Only for the worker, as it changes the thread's current context.
    pub(crate) fn settle(&'static self) -> Pass {
        self.passed_ns.store(now_ns(), Ordering::Relaxed);
        let mut pass = Pass::default();
        let Some(_settling) = Settling::try_take(&self.settling) else {
            // A thread whose launch waits is settling its own stream, which is soon done.
            pass.outstanding = true;
            return pass;
        };
        let now = now_ns();
        pass.urgent = self.is_any_held(now);
        let mut views = [const { None::<View> }; MAX_DEVICES];
        // Limiters whose waiters were asked for, once a pass.
        let mut asked = [false; MAX_DEVICES];
        for stream_state in self.streams.all() {
            let Some(limiter) = stream_state.limiter() else {
                continue;
            };
            let position = limiter.position();
            let Some((view, asked)) = views.get_mut(position).zip(asked.get_mut(position)) else {
                continue;
            };
            let attended_ns = stream_state.attended_until_ns.load(Ordering::Relaxed);
            if attended_ns > now {
                pass.look_at(attended_ns);
                continue;
            }
            if !core::mem::replace(asked, true) {
                pass.urgent |= !limiter.affords_mispredictions(now) || limiter.is_awaited();
            }
            if stream_state.pending() > 0 {
                let view = view.get_or_insert_with(|| limiter.view(now));
                self.ask_in_context_of(stream_state);
                self.settle_stream(limiter, view, stream_state, &mut pass);
            } else {
                self.settle_tail(limiter, stream_state, &mut pass);
            }
            self.measure_tail(limiter, stream_state, &mut pass);
        }
        self.contexts.asking.store(0, Ordering::SeqCst);
        if pass.progress {
            for limiter in &self.limiters {
                limiter.wake_waiters(pass.reasons());
            }
        }
        pass
    }

    /// Makes the stream's context current to the worker.
    fn ask_in_context_of(&self, stream_state: &StreamState) {
        let context = stream_state.context();
        // Pairs with `close_context`: either that sees this query, or this sees that the context closes.
        if self.contexts.asking.swap(context, Ordering::SeqCst) != context {
            let asked_in = CUcontext(stream_state.asked_in.load(Ordering::Relaxed));
            // SAFETY: the thread is the worker; the context lives, or the driver returns that it does not.
            let _ = unsafe { real::cuCtxSetCurrent(asked_in) };
        }
    }

    /// Beside neighbours, ends the running segment of a stream on which no launch came since the last visit, with a timing event unless
    /// it has run dry. (Charged as predicted, its launches would leave open to the arbiter in whose time slices they ran.)
    fn measure_tail(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        pass: &mut Pass,
    ) {
        let (count, _) = stream_state.unmeasured();
        if count == 0 || !limiter.contended.load(Ordering::Relaxed) {
            return;
        }
        if stream_state.has_more_unmeasured() {
            pass.look_at(now_ns() + CONTENDED_NS.0);
            return;
        }
        self.ask_in_context_of(stream_state);
        self.end_others_segment(limiter, stream_state);
    }

    /// Whether any work is on the way, measured or not.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.streams.all().any(|stream_state| stream_state.pending() > 0 || stream_state.unmeasured().0 > 0)
    }

    /// Settles the finished work of a launch's stream if the worker is late: it may be stopped, or the processors are busy.
    pub(super) fn settle_for_late_worker(
        &'static self,
        limiter: &DeviceLimiter,
        stream_state: &StreamState,
        now_ns: u64,
    ) {
        let late_ns = now_ns.saturating_sub(self.passed_ns.load(Ordering::Relaxed));
        if late_ns > WORKER_LATE_NS && self.settle_own(limiter, stream_state).progress {
            self.tell_settled(now_ns);
        }
    }

    /// Settles the finished work of the stream of a launch that waits or is about to. So the launch need not wait for
    /// the worker.
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
        let is_current = crate::runtime::shim::devices::current_context().0 == context;
        let asked_in = CUcontext(stream_state.asked_in.load(Ordering::Relaxed));
        let _pushed = if is_current { None } else { Pushed::make_current(asked_in) };
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
                    None => settle_unknown(limiter, stream_state, timing_event),
                },
                Err(CUerror::NOT_READY) => {
                    self.doubt_if_behind_host_wait(limiter, stream_state, timing_event, seen_ns);
                    let ran_ns = enter(limiter, view, stream_state, timing_event, seen_ns);
                    self.note_running(limiter, timing_event, view.scaled(ran_ns), seen_ns);
                    let look_ns =
                        stream_state.next_look_ns(timing_event, seen_ns, limiter.misprediction.is_recent());
                    pass.look_at(look_ns);
                    return;
                }
                // A broken context answers every call with its error.
                Err(_) => settle_unknown(limiter, stream_state, timing_event),
            }
            stream_state.head.store(head.wrapping_add(1), Ordering::Release);
            pass.progress = true;
        }
        self.free_orphan(stream_state);
    }

    /// Frees the entry of a stream that is gone, as nothing is on the way there.
    fn free_orphan(&self, stream_state: &StreamState) {
        if stream_state.is_orphan() {
            self.streams.free(stream_state, ORPHAN, || ());
        }
    }

    /// Settles launches that no timing event follows, some time after their predicted end. If the stream has run dry they are
    /// charged as predicted, else a timing event follows behind them.
    fn settle_tail(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        pass: &mut Pass,
    ) {
        let (count, predicted_ns) = stream_state.unmeasured();
        if count == 0 {
            self.free_orphan(stream_state);
            return;
        }
        let now = now_ns();
        let expected_ns = stream_state.busy_until_ns();
        let look_ns = expected_ns + TAIL_NS + TAIL_TIMES * predicted_ns;
        if now < look_ns {
            pass.look_at(look_ns);
            return;
        }
        self.ask_in_context_of(stream_state);
        let mut is_dry = false;
        let is_named = self.with_others_stream(stream_state, |stream| {
            is_dry = stream.has_run_dry();
            if !is_dry {
                self.timing_event(limiter, stream_state, stream, 0);
            }
        });
        if is_named && !is_dry {
            // No progress yet: where no event can be made, the worker would ask without a pause.
            pass.outstanding = true;
            return;
        }
        let Some(_recording) = stream_state.try_recording() else {
            return;
        };
        let (count, predicted_ns) = stream_state.take_unmeasured();
        if count == 0 {
            // Another thread has settled them meanwhile.
            return;
        }
        stream_state.drop_parts();
        stream_state.chained.store(false, Ordering::Relaxed);
        limiter.settle_as_predicted(predicted_ns, count);
        pass.progress = true;
        if !is_dry {
            // The time for which they may have run is not known before the next launch.
            limiter.sampling.doubt(u64::MAX, now);
        }
    }

    pub(super) fn streams_of(
        &'static self,
        context: CUcontext,
    ) -> impl Iterator<Item = &'static StreamState> {
        self.streams
            .all()
            .filter(move |stream_state| stream_state.context.load(Ordering::Relaxed) == context.0)
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
