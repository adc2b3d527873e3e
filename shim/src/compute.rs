//! GPU time: what a launch is charged, when it is measured, and where it waits (ARCHITECTURE.md, "The story of
//! one launch").
//!
//! The story of one launch. [`Launches::launch`] finds the stream's [`stream_state`], predicts the cost
//! ([`vcuda_limiter::predict`]), and pays it from the process's lease: one atomic addition. Only when the lease is used up
//! is the container's bucket looked at ([`admission`]), and only if that is overdrawn does the launch wait. The driver is
//! called. Now and then a timing event is recorded behind the work ([`timing_event`]); the [`crate::runtime::worker`] sees it done, takes the
//! elapsed time since the timing event before, and corrects bucket and prediction by the difference.

mod admission;
mod alone;
mod at_once;
mod clock;
mod collective;
mod context_maps;
pub(crate) mod device_limiter;
mod event_clock;
pub(crate) mod graph_cost;
mod idle_streams;
pub(crate) mod settle;
mod stream_state;
mod stream_table;
mod timing_event;
mod transfer;
mod turn_queue;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{Key, LEARNT, Prediction, Table};
#[cfg(doc)]
use vcuda_region::slots::Usage;

use crate::driver::Call;
use crate::runtime::shim::{self, Region, Shim};
use crate::runtime::stream::Stream;
use crate::runtime::{capture, fork};
use device_limiter::DeviceLimiter;
use event_clock::EventClocks;
use stream_state::StreamState;
use stream_table::StreamTable;

pub(crate) use at_once::at_once;
pub(crate) use idle_streams::{context_drains, stream_drains};

/// What kernels and graphs of this process cost. Handles are process-wide, so one table serves all devices.
pub(crate) static COSTS: Table = Table::new();

/// A word that never changes.
static STILL: AtomicU32 = AtomicU32::new(0);
/// The word that changes when `limits` may have: one that never does, or [`Usage::limits_notice`].
static NOTICE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const STILL).cast_mut());
/// What the notice was when `limits` were last followed.
static FOLLOWED_AT: AtomicU32 = AtomicU32::new(0);
/// What the notice was when no launch was found to be metered; [`METERED`] if launches are, or nothing is known.
static UNMETERED_AT: AtomicU64 = AtomicU64::new(METERED);
/// No value of the notice.
const METERED: u64 = u64::MAX;

/// What the notice says now.
#[inline]
fn notice() -> u32 {
    // Relaxed: whoever sees the new pointer sees a word that was mapped before the process could launch anything.
    let word = NOTICE.load(Ordering::Relaxed);
    // SAFETY: a static, or a word of `usage`, which stays mapped for the life of the process and of its children.
    let word = unsafe { &*word };
    word.load(Ordering::Relaxed)
}

/// Whether no launch of this process is metered: three loads and a branch.
#[inline]
pub(crate) fn idle() -> bool {
    u64::from(notice()) == UNMETERED_AT.load(Ordering::Relaxed)
}

/// No launch of this process is ever metered.
fn pass_all() {
    NOTICE.store((&raw const STILL).cast_mut(), Ordering::Relaxed);
    UNMETERED_AT.store(u64::from(STILL.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// Whether `limits` may have changed since they were last followed. A process that has never followed them does so at its
/// first look around, allocation or launch.
#[inline]
pub(crate) fn have_limits_changed() -> bool {
    notice() != FOLLOWED_AT.load(Ordering::Relaxed)
}

/// Follows `limits` if they are older than `age_ns` or have changed.
#[inline]
pub(crate) fn follow_if_due(region: &'static Region, age_ns: u64, now_ns: u64) {
    if have_limits_changed() || region.limits.are_older(age_ns, now_ns) {
        follow(region, now_ns);
    }
}

/// Takes over what `limits` say now, and whether launches of this process are metered.
#[cold]
pub(crate) fn follow(region: &'static Region, now_ns: u64) {
    // Before `limits` are read: what is changed after that changes the notice again.
    let word = region.usage.limits_notice();
    let seen = word.load(Ordering::Acquire);
    if !region.limits.follow(now_ns) {
        // Another thread is at it, and knows only later what it has seen.
        return;
    }
    let mut devices = region.limits.devices();
    let only = devices.next().filter(|_| devices.next().is_none());
    let unmetered = only.is_some_and(|(device, _)| !region.limits.is_metered(device));
    FOLLOWED_AT.store(seen, Ordering::Relaxed);
    NOTICE.store(core::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
    UNMETERED_AT.store(
        if unmetered { u64::from(seen) } else { METERED },
        Ordering::Relaxed,
    );
}

/// A stream that was predicted to be done for this long is taken to have run dry (ns).
const IDLE_NS: u64 = 20_000;

/// The launching side of one process.
#[derive(Debug)]
pub(crate) struct Launches {
    limiters: Vec<DeviceLimiter>,
    streams: StreamTable,
    contexts: EventClocks,
    /// A thread settles timing events.
    settling: AtomicBool,
    /// The worker's thread runs.
    pub(crate) reaping: AtomicBool,
    /// Futex word by which the worker is woken; its low bits tell how it sleeps.
    pub(crate) wake_word: AtomicU32,
}

impl Launches {
    fn new(shim: &'static Shim) -> Option<Self> {
        let region = shim.region()?;
        clock::begin();
        let limiters = region
            .limits
            .devices()
            .map(|(device, _)| DeviceLimiter::new(shim, region, device))
            .collect();
        Some(Self {
            limiters,
            streams: StreamTable::new(),
            contexts: EventClocks::new(),
            settling: AtomicBool::new(false),
            reaping: AtomicBool::new(false),
            wake_word: AtomicU32::new(0),
        })
    }

    /// The state of this process, made at its first launch; nothing in one that is not managed.
    #[inline]
    pub(crate) fn get() -> Option<&'static Self> {
        let Some(shim) = shim::get() else {
            pass_all();
            return None;
        };
        if have_limits_changed()
            && let Some(region) = shim.region()
        {
            follow(region, device_limiter::now_ns());
        }
        match shim.launches.get() {
            Some(launches) => launches.as_ref(),
            None => Self::make(shim),
        }
    }

    /// The state, if a launch has made it already.
    pub(crate) fn made() -> Option<&'static Self> {
        shim::get()?.launches.get()?.as_ref()
    }

    #[cold]
    fn make(shim: &'static Shim) -> Option<&'static Self> {
        // Nobody may look at it again if launches are all that this process does.
        if let Some(device) = shim.current_device() {
            device.notice_contexts();
        }
        let Some(region) = shim.region() else {
            // Damaged limits deny memory; launches go to the driver.
            pass_all();
            return None;
        };
        follow(region, device_limiter::now_ns());
        let mut devices = region.limits.devices();
        if let (Some((only, _)), None) = (devices.next(), devices.next())
            && !region.limits.is_metered(only)
        {
            return None;
        }
        let launches = shim.launches.get_or_init(|| Self::new(shim)).as_ref()?;
        let address = core::ptr::from_ref(launches).cast_mut().cast();
        // Pairs with the load in `at_once`.
        fork::launches().store(address, Ordering::Release);
        Some(launches)
    }

    /// The limiters of all devices.
    pub(crate) fn limiters(&self) -> &[DeviceLimiter] {
        &self.limiters
    }

    /// Meters one launch on `stream` and calls the driver.
    #[inline]
    pub(crate) fn launch(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        key: Key,
        family: Key,
    ) -> CUresult {
        if capture::is_capturing(stream.handle, stream.default) {
            return call.real();
        }
        let measurable = self
            .streams
            .find(&self.limiters, stream)
            .filter(|stream_state| !stream_state.is_unmeasurable());
        let Some(stream_state) = measurable else {
            return self.launch_unlisted(call, stream, key, family);
        };
        let Some(limiter) = self.limiter_of(stream_state) else {
            return call.real();
        };
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(limiter, stream_state, stream, key, predicted);
        let answer = call.real();
        if answer.is_ok() {
            self.launched(limiter, stream_state, stream, predicted, now, sampled);
        } else {
            limiter.meter.refund(predicted.cost_ns);
        }
        answer
    }

    /// The stream's device, if GPU time is metered there.
    #[inline]
    fn limiter_of(&self, stream_state: &StreamState) -> Option<&'static DeviceLimiter> {
        // The gate has asked already if there is but one device.
        stream_state
            .limiter()
            .filter(|limiter| self.limiters.len() == 1 || limiter.is_metered())
    }

    /// Pays for a launch, and waits until it may go. Returns the time if it was asked (ns), and whether a timing event was
    /// placed to measure just this launch.
    #[inline(always)]
    fn pay(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        key: Key,
        predicted: Prediction,
    ) -> (u64, bool) {
        let paid = limiter.meter.spend(predicted.cost_ns);
        let mut held = false;
        if !paid || predicted.samples == 0 {
            held = self.hold(limiter, Some(stream_state), stream, key, predicted, paid);
        }
        if predicted.is_collective {
            self.count_collective(limiter);
        }
        // At each launch: a pause before it must not be measured as work.
        let now = stream_state.clock.now_ns();
        let idle = held || now > stream_state.busy_until_ns() + IDLE_NS;
        // A kernel that only ever follows another one on an idle stream is measured for itself, too.
        let is_due = held || predicted.samples < LEARNT || predicted.cost_ns >= timing_event::ALONE_NS;
        (
            now,
            idle && self.resume(limiter, stream_state, stream, now, is_due),
        )
    }

    /// Notes that a launch that was paid for went to the driver.
    #[inline(always)]
    fn launched(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        predicted: Prediction,
        now: u64,
        sampled: bool,
    ) {
        stream_state.extend(now, predicted.cost_ns);
        let due = stream_state.note(predicted, limiter.segment_ns());
        if due || sampled || predicted.samples < LEARNT || predicted.cost_ns >= timing_event::ALONE_NS {
            let window_ns = if sampled {
                device_limiter::now_ns().saturating_sub(stream_state.started_at_ns())
            } else {
                0
            };
            self.timing_event(limiter, stream_state, stream, window_ns);
        }
    }

    /// As [`Self::launch`], in two steps: for a launch on several streams, each of which is paid before any goes. Nothing
    /// if it is not metered.
    pub(crate) fn admit(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        if capture::is_capturing(stream.handle, stream.default) {
            return None;
        }
        let measurable = self
            .streams
            .find(&self.limiters, stream)
            .filter(|stream_state| !stream_state.is_unmeasurable());
        let Some(stream_state) = measurable else {
            return self.admit_unlisted(stream, key, family);
        };
        let limiter = self.limiter_of(stream_state)?;
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(limiter, stream_state, stream, key, predicted);
        Some(Admitted {
            limiter,
            stream_state: Some(stream_state),
            stream,
            predicted,
            now,
            sampled,
        })
    }

    /// The second step: the driver has `accepted` the launch, or what was paid is given back.
    pub(crate) fn admitted(&'static self, launch: &Admitted, accepted: bool) {
        let Admitted {
            limiter,
            stream_state,
            stream,
            predicted,
            now,
            sampled,
        } = *launch;
        match stream_state {
            _ if !accepted => limiter.meter.refund(predicted.cost_ns),
            Some(stream_state) => self.launched(limiter, stream_state, stream, predicted, now, sampled),
            None => Self::await_alone(limiter, stream, &predicted, now),
        }
    }

    #[cold]
    fn launch_unlisted(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        key: Key,
        family: Key,
    ) -> CUresult {
        let admitted = self.admit_unlisted(stream, key, family);
        let answer = call.real();
        if let Some(admitted) = admitted {
            self.admitted(&admitted, answer.is_ok());
        }
        answer
    }

    /// A launch on a stream that no event measures: see [`alone`].
    #[cold]
    fn admit_unlisted(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        let limiter = self
            .limiters
            .get(stream_table::limiter_of_stream(stream)?)
            .filter(|limiter| limiter.is_metered())?;
        let predicted = COSTS.predict(key, family);
        let paid = limiter.meter.spend(predicted.cost_ns);
        if !paid {
            self.hold(limiter, None, stream, key, predicted, paid);
        }
        Some(Admitted {
            limiter,
            stream_state: None,
            stream,
            predicted,
            now: device_limiter::now_ns(),
            sampled: false,
        })
    }
}

/// A launch that was paid for.
#[derive(Debug)]
pub(crate) struct Admitted {
    limiter: &'static DeviceLimiter,
    stream_state: Option<&'static StreamState>,
    stream: Stream,
    predicted: Prediction,
    now: u64,
    sampled: bool,
}

/// A stream is about to be destroyed: what was launched on it is measured, and its handle forgotten.
pub(crate) fn stream_closing(stream: Stream) {
    if let Some(launches) = Launches::made() {
        launches.close_stream(stream);
    }
}

/// A capture is about to begin on `stream`: until it ends, no event can be recorded there, and none on the context's legacy stream
/// if the captured one waits for that. A timing event is recorded behind what was launched on them before.
pub(crate) fn capture_begins(stream: Stream) {
    let Some(launches) = Launches::made() else {
        return;
    };
    for stream in [stream, Stream::legacy(CUstream::NULL)] {
        let stream_state = launches.streams.known(stream);
        if let Some((stream_state, limiter)) =
            stream_state.and_then(|stream_state| Some((stream_state, stream_state.limiter()?)))
        {
            launches.timing_event(limiter, stream_state, stream, 0);
        }
    }
}

/// A context may be about to be destroyed: from here on its events are left alone. The null handle is no context's, and here
/// the sign for none.
pub(crate) fn context_closing(context: CUcontext) {
    if let Some(launches) = Launches::made().filter(|_| !context.is_null()) {
        launches.close_context(context);
    }
}

/// The context of [`context_closing`] has `ended`, and its events with it: what was in flight there counts as predicted.
/// Or it lives on.
pub(crate) fn context_closed(context: CUcontext, ended: bool) {
    if let Some(launches) = Launches::made().filter(|_| !context.is_null()) {
        launches.closed_context(context, ended);
    }
}
