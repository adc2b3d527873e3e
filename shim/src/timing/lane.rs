//! One device as the limiter sees it: the container's account, this process's meter, and what `limits` says now.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use vcuda_region::account::{Account, Meter, Pace};
use vcuda_region::controller::STALE_BEAT_NS;
use vcuda_region::limits::{DeviceConfig, NOT_METERED};
use vcuda_region::predict::Spread;
use vcuda_region::{DeviceIndex, clock};

use crate::shim::{Region, Shim};

/// Most work in flight (ns): more would only delay what a change or a neighbour does.
const WINDOW_MAX_NS: u64 = 8_000_000;
/// Work in flight while neighbours compete (ns): two slices, so that a container that may run always has work to run.
/// With less, slices are unequal, and elapsed time can no longer be apportioned by who was busy.
const WINDOW_CONTENDED_NS: u64 = 4_000_000;
/// Half of what runs between two holds (ns), alone and while neighbours compete. Whole slices in the latter case, for
/// the same reason; in both, fewer and longer holds cost less of the processor.
const SWING_NS: i64 = 1_000_000;
const SWING_CONTENDED_NS: i64 = 4_000_000;
/// Unused time that may be banked while work is in flight beside neighbours (ns, at most): a long kernel's arrears.
const ARREARS_MAX_NS: u64 = 50_000_000;

/// A device of the container.
#[derive(Debug)]
pub(crate) struct Lane {
    region: &'static Region,
    device: DeviceIndex,
    metered: &'static AtomicU32,
    /// The container's account.
    pub(crate) account: &'static Account,
    /// This process's meter.
    pub(crate) meter: &'static Meter,
    /// What launches cost here.
    pub(crate) spread: Spread,
    segment_ns: AtomicU64,
    running: AtomicBool,
}

/// What `limits` says at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// What the container earns.
    pub(crate) pace: Pace,
    /// What it was given.
    pub(crate) config: DeviceConfig,
    /// Neighbours are busy on the device.
    pub(crate) contended: bool,
    /// What measured time is worth (thousandths).
    pub(crate) scale_permille: u32,
    /// Most work in flight (ns).
    pub(crate) window_ns: u64,
}

/// Whether the balance lets a launch go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does.
    Go,
    /// It will at this time if nobody else consumes (`CLOCK_MONOTONIC`, ns).
    At(u64),
}

impl Lane {
    /// The lane of `device`. A process that found no free slot (and so gets no memory) is metered all the same.
    pub(crate) fn new(shim: &'static Shim, region: &'static Region, device: DeviceIndex) -> Self {
        let meter = match shim.slot() {
            Some(slot) => slot.meter(device),
            None => Box::leak(Box::new(Meter::default())),
        };
        Self {
            region,
            device,
            metered: region.limits.metered_word(device),
            account: region.usage.account(device),
            meter,
            spread: Spread::new(),
            segment_ns: AtomicU64::new(500_000),
            running: AtomicBool::new(true),
        }
    }

    /// Where the device stands in `limits`.
    pub(crate) fn position(&self) -> usize {
        self.device.get()
    }

    /// Whether GPU time is metered on the device.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.metered.load(Ordering::Relaxed) != NOT_METERED
    }

    /// How much predicted work is measured by one mark (ns).
    #[inline]
    pub(crate) fn segment_ns(&self) -> u64 {
        self.segment_ns.load(Ordering::Relaxed)
    }

    /// What `limits` says at `now_ns`.
    pub(crate) fn view(&self, now_ns: u64) -> View {
        let limits = &self.region.limits;
        let config = limits.config(self.device).unwrap_or(DeviceConfig::new(0, 1));
        let pace = limits.pace(self.device).unwrap_or(STARVED);
        let beat_ns = limits.arbiter_beat_ns();
        // Without an arbiter nobody says what overlaps: elapsed time is charged as it is.
        let arbitrated = beat_ns != 0 && now_ns.saturating_sub(beat_ns) < STALE_BEAT_NS;
        let contended = arbitrated && pace.contended;
        let floor_ns = if contended {
            pace.window_ns.max(WINDOW_CONTENDED_NS)
        } else {
            pace.window_ns
        };
        let window_ns = (2 * self.spread.p95_ns()).min(WINDOW_MAX_NS).max(floor_ns);
        self.segment_ns
            .store((window_ns / 4).clamp(125_000, 1_000_000), Ordering::Relaxed);
        View {
            pace,
            config,
            contended,
            scale_permille: if arbitrated { pace.scale_permille } else { 1000 },
            window_ns,
        }
    }

    /// Whether the container's balance lets a launch go. It swings: what was held goes on once the balance is well
    /// positive, and is held again once it is as far negative.
    pub(crate) fn verdict(&self, view: &View, in_flight: bool, now_ns: u64) -> Verdict {
        let config = &view.config;
        let mut bank_ns = config.burst_ns;
        if in_flight && view.contended {
            // It was not idle: a long kernel that shares the device falls behind before it can catch up.
            bank_ns = bank_ns.max((2 * self.spread.p95_ns()).min(ARREARS_MAX_NS));
        }
        self.account
            .clamp(&view.pace, bank_ns, config.debt_max_ns, now_ns);
        let balance = self.account.balance(&view.pace, now_ns);
        let swing = if view.contended {
            SWING_CONTENDED_NS
        } else {
            SWING_NS
        };
        let swing = swing.min(i64::try_from(config.burst_ns).unwrap_or(i64::MAX));
        let running = self.running.load(Ordering::Relaxed);
        let goes = if running {
            balance > -swing
        } else {
            balance >= swing
        };
        if goes != running {
            self.running.store(goes, Ordering::Relaxed);
        }
        if goes {
            return Verdict::Go;
        }
        let missing = u128::from(swing.saturating_sub(balance).unsigned_abs());
        let wait = missing * 1000 / u128::from(view.pace.rate_permille.max(1));
        Verdict::At(now_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Work in flight of all the container's processes: nanoseconds as predicted, and launches.
    pub(crate) fn in_flight(&self) -> (u64, u64) {
        self.region.usage.in_flight(self.device)
    }

    /// Launches are done, as far as is known, and stay charged as predicted.
    pub(crate) fn presume(&self, predicted_ns: u64, count: u32) {
        self.meter.finish(predicted_ns, count);
        self.meter.charged_ns.fetch_add(predicted_ns, Ordering::Relaxed);
        self.account.served_ns.fetch_add(predicted_ns, Ordering::Relaxed);
    }

    /// Tells those who are held in this container that the balance or the work in flight has changed.
    pub(crate) fn wake_waiters(&self) {
        if self.account.waiters.swap(0, Ordering::AcqRel) != 0 {
            self.account.wake.fetch_add(1, Ordering::Release);
            super::sys::futex_wake_all(&self.account.wake);
        }
    }

    /// Sleeps until [`Lane::wake_waiters`] of any process of the container, or for `ns`.
    pub(crate) fn sleep(&self, ns: u64, still: impl FnOnce() -> bool) {
        let seen = self.account.wake.load(Ordering::Acquire);
        // A flag, not a count: who is killed while asleep leaves nothing but one needless wake-up.
        self.account.waiters.store(1, Ordering::SeqCst);
        if still() {
            super::sys::futex_wait(&self.account.wake, seen, ns);
        }
    }
}

/// What a container earns whose limits are damaged.
const STARVED: Pace = Pace {
    epoch_ns: 0,
    credit_ns: 0,
    rate_permille: 1,
    scale_permille: 1000,
    window_ns: 500_000,
    metered: true,
    contended: false,
    baton: false,
};

/// The clock of all accounts.
#[inline]
pub(crate) fn now_ns() -> u64 {
    clock::now_ns()
}
