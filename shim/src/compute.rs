//! GPU time: the charge of launches, their measurement, and their waits (docs/limiter.md).
//!
//! [`Launches::launch`] finds the [`stream_state`], predicts the cost ([`vcuda_limiter::predict`]), and pays it from
//! the process's lease with a single atomic addition. If the lease is used up, [`admission`] asks the tenant's
//! bucket. If the bucket has no tokens, the launch waits. Then the driver is called. Now and then a timing event is
//! recorded behind the work ([`timing_event`]). The [`worker`] sees that it was reached and takes the
//! time since the timing event before. It corrects bucket and prediction by the difference.

mod admission;
mod alone;
mod at_once;
mod clock;
mod context_maps;
pub(crate) mod device_limiter;
mod event_clock;
mod gang;
pub(crate) mod graph_cost;
mod idle_streams;
pub(crate) mod settle;
mod stream_state;
mod stream_table;
mod timing_event;
mod transfer;
mod worker;

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{Key, LEARNT, Prediction, Table};
use vcuda_region::clock::now_ns;

use crate::driver::Call;
use crate::runtime::limits::{follow, have_limits_changed, is_unmetered, meter_nothing};
use crate::runtime::region::Region;
use crate::runtime::shim::Shim;
use crate::runtime::stream::Stream;
use crate::runtime::{capture, fork};
use device_limiter::DeviceLimiter;
use event_clock::EventClocks;
use stream_state::StreamState;
use stream_table::StreamTable;

pub(crate) use admission::{give_back, step_aside};
pub(crate) use at_once::at_once;
pub(crate) use idle_streams::{context_drains, event_is_reached, stream_drains};

/// Known costs of this process's kernels and graphs. Handles are process-wide, so a single table serves all devices.
pub(crate) static COSTS: Table = Table::new();

/// Time after its predicted end from which on a stream counts as idle (ns).
const IDLE_NS: u64 = 8_000;

/// State of the launching side of a process.
#[derive(Debug)]
pub(crate) struct Launches {
    shim: &'static Shim,
    limiters: Vec<DeviceLimiter>,
    streams: StreamTable,
    contexts: EventClocks,
    /// Set while a thread settles timing events.
    settling: AtomicBool,
    /// Time of the worker's last pass (`CLOCK_MONOTONIC`, ns).
    passed_ns: AtomicU64,
    /// Futex word that wakes the worker; its low bits are the kind of its sleep.
    wake_word: AtomicU32,
}

impl Launches {
    fn new(shim: &'static Shim, region: &'static Region) -> Self {
        clock::begin();
        let limiters =
            region.limits.devices().map(|(device, _)| DeviceLimiter::new(shim, region, device)).collect();
        Self {
            shim,
            limiters,
            streams: StreamTable::new(),
            contexts: EventClocks::new(),
            settling: AtomicBool::new(false),
            passed_ns: AtomicU64::new(0),
            wake_word: AtomicU32::new(0),
        }
    }

    /// The state of this process, made at its first launch. `None` if no launch is metered. `shim`: the state of the process;
    /// `None` if the process is not managed.
    #[inline]
    pub(crate) fn get(shim: Option<&'static Shim>) -> Option<&'static Self> {
        let Some(shim) = shim else {
            meter_nothing();
            return None;
        };
        if have_limits_changed()
            && let Some(region) = shim.region()
        {
            follow(region, now_ns());
        }
        match Self::made() {
            // A process whose calls pass a gate comes here with each launch, although none is metered.
            None if is_unmetered() => None,
            None => Self::make(shim),
            made => made,
        }
    }

    /// The state, if a launch has made it already.
    #[inline(always)]
    pub(crate) fn made() -> Option<&'static Self> {
        // Pairs with the exchange in `make`.
        let launches = fork::launches().load(Ordering::Acquire);
        // SAFETY: null, or the state of this process, which is never freed.
        unsafe { launches.cast::<Self>().as_ref() }
    }

    #[cold]
    fn make(shim: &'static Shim) -> Option<&'static Self> {
        // A process that only launches makes no later call that would measure its contexts.
        if let Some(device) = shim.current_device() {
            device.notice_contexts();
        }
        let Some(region) = shim.region() else {
            // Damaged limits deny memory; launches go to the driver.
            meter_nothing();
            return None;
        };
        follow(region, now_ns());
        let mut devices = region.limits.devices();
        if let (Some((only, _)), None) = (devices.next(), devices.next())
            && !region.limits.is_metered(only)
        {
            return None;
        }
        let launches = Box::into_raw(Box::new(Self::new(shim, region)));
        // Pairs with the load in `made`.
        let first = fork::launches().compare_exchange(
            ptr::null_mut(),
            launches.cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if first.is_err() {
            // SAFETY: the value was never shared, as another thread was first.
            drop(unsafe { Box::from_raw(launches) });
        }
        Self::made()
    }

    /// The limiters of all devices.
    pub(crate) fn limiters(&self) -> &[DeviceLimiter] {
        &self.limiters
    }

    /// Meters a launch on `stream` and calls the driver.
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
        let measurable =
            self.streams.find(&self.limiters, stream).filter(|stream_state| !stream_state.is_unmeasurable());
        let Some(stream_state) = measurable else {
            return self.launch_unlisted(call, stream, key, family);
        };
        let Some(limiter) = self.limiter_of(stream_state) else {
            return call.real();
        };
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(limiter, stream_state, stream, predicted);
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
        // The hook has asked already if there is but one device.
        stream_state.limiter().filter(|limiter| self.limiters.len() == 1 || limiter.is_metered())
    }

    /// Pays for a launch, and waits until it may proceed. Returns the time if it was read (ns), and whether a timing event was placed
    /// to measure this launch alone.
    #[inline(always)]
    fn pay(
        &'static self,
        limiter: &'static DeviceLimiter,
        stream_state: &'static StreamState,
        stream: Stream,
        predicted: Prediction,
    ) -> (u64, bool) {
        let paid = limiter.meter.spend(predicted.cost_ns);
        let mut held = false;
        if !paid || predicted.samples == 0 {
            held = self.hold(limiter, Some(stream_state), stream, predicted, paid);
        }
        // Read at each launch, so that a pause before it is not measured as work.
        let now = stream_state.clock.now_ns();
        let idle = held || now > stream_state.busy_until_ns() + IDLE_NS;
        // A kernel that only ever follows another one on an idle stream is measured for itself, too.
        let is_due = held || predicted.samples < LEARNT || predicted.cost_ns >= timing_event::ALONE_NS;
        // The wait for tokens has cut a burst at whose end the application waits.
        let is_cut = held && stream_state.was_waited_for.swap(false, Ordering::Relaxed);
        (now, idle && self.resume(limiter, stream_state, stream, now, (is_due, is_cut)))
    }

    /// Notes that the driver has accepted a paid launch.
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
        stream_state.first_was_launched(now);
        let due = stream_state.note(predicted, limiter.segment_ns());
        if due
            || sampled
            || stream_state.is_sampled()
            || predicted.samples < LEARNT
            || predicted.cost_ns >= timing_event::ALONE_NS
        {
            let window_ns = if sampled { now_ns().saturating_sub(stream_state.started_at_ns()) } else { 0 };
            self.timing_event(limiter, stream_state, stream, window_ns);
        }
    }

    /// First step of [`Self::launch`], for a launch on several streams: each is paid before any is launched. Returns `None` if the
    /// launch is not metered.
    pub(crate) fn admit(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        if capture::is_capturing(stream.handle, stream.default) {
            return None;
        }
        let measurable =
            self.streams.find(&self.limiters, stream).filter(|stream_state| !stream_state.is_unmeasurable());
        let Some(stream_state) = measurable else {
            return self.admit_unlisted(stream, key, family);
        };
        let limiter = self.limiter_of(stream_state)?;
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(limiter, stream_state, stream, predicted);
        Some(Admitted { limiter, stream_state: Some(stream_state), stream, predicted, now, sampled })
    }

    /// The second step. If the driver has not `accepted` the launch, the payment is given back.
    pub(crate) fn admitted(&'static self, launch: &Admitted, accepted: bool) {
        let Admitted { limiter, stream_state, stream, predicted, now, sampled } = *launch;
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

    /// Pays for a launch on a stream that no event measures: see [`alone`].
    #[cold]
    fn admit_unlisted(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        let limiter = self
            .limiters
            .get(stream_table::limiter_of_stream(stream)?)
            .filter(|limiter| limiter.is_metered())?;
        let predicted = COSTS.predict(key, family);
        let paid = limiter.meter.spend(predicted.cost_ns);
        if !paid {
            self.hold(limiter, None, stream, predicted, paid);
        }
        Some(Admitted { limiter, stream_state: None, stream, predicted, now: now_ns(), sampled: false })
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

/// Prepares for the destruction of a stream: its work is measured, and its handle removed.
pub(crate) fn stream_closing(stream: Stream) {
    if let Some(launches) = Launches::made() {
        launches.close_stream(stream);
    }
}

/// Prepares for a capture on `stream`. Until it ends, no event can be recorded there, nor on the context's legacy stream if the captured
/// one waits for that. So a timing event is recorded behind the work on both.
pub(crate) fn capture_begins(stream: Stream) {
    let Some(launches) = Launches::made() else {
        return;
    };
    for stream in [stream, Stream::legacy(CUstream::NULL)] {
        let stream_state = launches.streams.known(stream);
        if let Some((stream_state, limiter)) =
            stream_state.and_then(|stream_state| Some((stream_state, stream_state.limiter()?)))
        {
            launches.end_segment(limiter, stream_state, stream);
        }
    }
}

/// Prepares for the destruction of a context: from here on its events are not used. A null handle means no context.
pub(crate) fn context_closing(context: CUcontext) {
    if let Some(launches) = Launches::made().filter(|_| !context.is_null()) {
        launches.close_context(context);
    }
}

/// Completes [`context_closing`]: the context was destroyed if `ended`. Then its events are gone, and its work in flight is settled as
/// predicted.
pub(crate) fn context_closed(context: CUcontext, ended: bool) {
    if let Some(launches) = Launches::made().filter(|_| !context.is_null()) {
        launches.closed_context(context, ended);
    }
}
