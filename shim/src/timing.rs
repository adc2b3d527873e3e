//! GPU time: what a launch is charged, when it is measured, and where it waits (ARCHITECTURE.md, "The story of
//! one launch").
//!
//! The story of one launch. [`Launches::launch`] finds the stream's [`track`], predicts the cost
//! ([`vcuda_limiter::predict`]), and pays it from the process's lease: one atomic addition. Only when the lease is used up
//! is the container's account looked at ([`hold`]), and only if that is overdrawn does the launch wait. The driver is
//! called. Now and then a timing event is recorded behind the work ([`mark`]); the [`crate::reaper`] sees it done, takes the
//! elapsed time since the mark before, and corrects account and prediction by the difference.

mod alone;
mod collective;
mod context;
mod drain;
mod hold;
pub(crate) mod lane;
mod mark;
pub(crate) mod settle;
mod streams;
pub(crate) mod sys;
mod track;
mod transfer;
mod turn;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{Key, LEARNT, Prediction, Table};
#[cfg(doc)]
use vcuda_region::slots::Usage;

use crate::capture;
use crate::ffi::Call;
use crate::shim::{self, Region, Shim};
use context::Contexts;
use lane::Lane;
use streams::Tracks;
use track::Track;

pub(crate) use drain::{context_drains, stream_drains};
pub(crate) use streams::Stream;

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
    lanes: Vec<Lane>,
    tracks: Tracks,
    contexts: Contexts,
    /// A thread settles marks.
    settling: AtomicBool,
    /// The reaper's thread runs.
    pub(crate) reaping: AtomicBool,
    /// Futex word by which the reaper is woken; its low bits tell how it sleeps.
    pub(crate) bell: AtomicU32,
}

impl Launches {
    fn new(shim: &'static Shim) -> Option<Self> {
        let region = shim.region()?;
        let lanes = region
            .limits
            .devices()
            .map(|(device, _)| Lane::new(shim, region, device))
            .collect();
        Some(Self {
            lanes,
            tracks: Tracks::new(),
            contexts: Contexts::new(),
            settling: AtomicBool::new(false),
            reaping: AtomicBool::new(false),
            bell: AtomicU32::new(0),
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
            follow(region, lane::now_ns());
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
        follow(region, lane::now_ns());
        let mut devices = region.limits.devices();
        if let (Some((only, _)), None) = (devices.next(), devices.next())
            && !region.limits.is_metered(only)
        {
            return None;
        }
        shim.launches.get_or_init(|| Self::new(shim)).as_ref()
    }

    /// The lanes of all devices.
    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
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
            .tracks
            .find(&self.lanes, stream)
            .filter(|track| !track.is_unmeasurable());
        let Some(track) = measurable else {
            return self.launch_untracked(call, stream, key, family);
        };
        let Some(lane) = self.lane_of(track) else {
            return call.real();
        };
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(lane, track, stream, key, predicted);
        let answer = call.real();
        if answer.is_ok() {
            self.launched(lane, track, stream, predicted, now, sampled);
        } else {
            lane.meter.refund(predicted.cost_ns);
        }
        answer
    }

    /// The stream's device, if GPU time is metered there.
    #[inline]
    fn lane_of(&self, track: &Track) -> Option<&'static Lane> {
        // The gate has asked already if there is but one device.
        track
            .lane()
            .filter(|lane| self.lanes.len() == 1 || lane.is_metered())
    }

    /// Pays for a launch, and waits until it may go. Returns the time if it was asked (ns), and whether a mark was
    /// placed to measure just this launch.
    #[inline(always)]
    fn pay(
        &'static self,
        lane: &'static Lane,
        track: &'static Track,
        stream: Stream,
        key: Key,
        predicted: Prediction,
    ) -> (u64, bool) {
        let paid = lane.meter.spend(predicted.cost_ns);
        let mut held = false;
        if !paid || predicted.samples == 0 {
            held = self.hold(lane, Some(track), stream, key, predicted, paid);
        }
        if predicted.is_collective {
            self.count_collective(lane);
        }
        // At each launch: a pause before it must not be measured as work.
        let now = lane::now_ns();
        let idle = held || now > track.busy_until_ns() + IDLE_NS;
        // A kernel that only ever follows another one on an idle stream is measured for itself, too.
        let is_due = held || predicted.samples < LEARNT || predicted.cost_ns >= mark::ALONE_NS;
        (now, idle && self.resume(lane, track, stream, now, is_due))
    }

    /// Notes that a launch that was paid for went to the driver.
    #[inline(always)]
    fn launched(
        &'static self,
        lane: &'static Lane,
        track: &'static Track,
        stream: Stream,
        predicted: Prediction,
        now: u64,
        sampled: bool,
    ) {
        track.extend(now, predicted.cost_ns);
        let due = track.note(predicted, lane.segment_ns());
        if due || sampled || predicted.samples < LEARNT || predicted.cost_ns >= mark::ALONE_NS {
            let window_ns = if sampled {
                lane::now_ns().saturating_sub(track.started_at_ns())
            } else {
                0
            };
            self.mark(lane, track, stream, window_ns);
        }
    }

    /// As [`Self::launch`], in two steps: for a launch on several streams, each of which is paid before any goes. Nothing
    /// if it is not metered.
    pub(crate) fn admit(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        if capture::is_capturing(stream.handle, stream.default) {
            return None;
        }
        let measurable = self
            .tracks
            .find(&self.lanes, stream)
            .filter(|track| !track.is_unmeasurable());
        let Some(track) = measurable else {
            return self.admit_untracked(stream, key, family);
        };
        let lane = self.lane_of(track)?;
        let predicted = COSTS.predict(key, family);
        let (now, sampled) = self.pay(lane, track, stream, key, predicted);
        Some(Admitted {
            lane,
            track: Some(track),
            stream,
            predicted,
            now,
            sampled,
        })
    }

    /// The second step: the driver has `accepted` the launch, or what was paid is given back.
    pub(crate) fn admitted(&'static self, launch: &Admitted, accepted: bool) {
        let Admitted {
            lane,
            track,
            stream,
            predicted,
            now,
            sampled,
        } = *launch;
        match track {
            _ if !accepted => lane.meter.refund(predicted.cost_ns),
            Some(track) => self.launched(lane, track, stream, predicted, now, sampled),
            None => Self::await_alone(lane, stream, &predicted, now),
        }
    }

    #[cold]
    fn launch_untracked(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        key: Key,
        family: Key,
    ) -> CUresult {
        let admitted = self.admit_untracked(stream, key, family);
        let answer = call.real();
        if let Some(admitted) = admitted {
            self.admitted(&admitted, answer.is_ok());
        }
        answer
    }

    /// A launch on a stream that no event measures: see [`alone`].
    #[cold]
    fn admit_untracked(&'static self, stream: Stream, key: Key, family: Key) -> Option<Admitted> {
        let lane = self
            .lanes
            .get(streams::lane_of_stream(stream)?)
            .filter(|lane| lane.is_metered())?;
        let predicted = COSTS.predict(key, family);
        let paid = lane.meter.spend(predicted.cost_ns);
        if !paid {
            self.hold(lane, None, stream, key, predicted, paid);
        }
        Some(Admitted {
            lane,
            track: None,
            stream,
            predicted,
            now: lane::now_ns(),
            sampled: false,
        })
    }
}

/// A launch that was paid for.
#[derive(Debug)]
pub(crate) struct Admitted {
    lane: &'static Lane,
    track: Option<&'static Track>,
    stream: Stream,
    predicted: Prediction,
    now: u64,
    sampled: bool,
}

/// A stream is about to be destroyed: what was launched on it is marked, and its handle forgotten.
pub(crate) fn stream_closing(stream: Stream) {
    if let Some(launches) = Launches::made() {
        launches.close_stream(stream);
    }
}

/// A capture is about to begin on `stream`: until it ends, no event can be recorded there, and none on the context's legacy stream
/// if the captured one waits for that. What was launched on them is marked before.
pub(crate) fn capture_begins(stream: Stream) {
    let Some(launches) = Launches::made() else {
        return;
    };
    for stream in [stream, Stream::legacy(CUstream::NULL)] {
        let track = launches.tracks.known(stream);
        if let Some((track, lane)) = track.and_then(|track| Some((track, track.lane()?))) {
            launches.mark(lane, track, stream, 0);
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
