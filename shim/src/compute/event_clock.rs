//! Conversion of timing events to times on the clock that all processes share. Events measure elapsed time only between events
//! of the same context, so each context has a base event. The base's host time is the earliest one that the observations
//! allow, as a completion is never observed before it happens.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vcuda_driver_api::prelude::*;

use super::stream_state::TimingEvent;
use crate::driver::real;

/// A base is renewed after this long (ns): a float of milliseconds loses a microsecond at 16 s.
const RENEW_NS: i64 = 8_000_000_000;
/// Most contexts with a base: more than fit into a GPU.
const CONTEXTS: usize = 1024;

/// The base events of this process's contexts. Only the worker reads and writes them, except that a closing context
/// drops its own.
#[derive(Debug)]
pub(super) struct EventClocks {
    bases: Box<[Base]>,
    /// Context whose events the worker is querying.
    pub(super) asking: AtomicUsize,
}

#[derive(Debug, Default)]
struct Base {
    context: AtomicUsize,
    event: AtomicUsize,
    /// Host time of the base (ns).
    at_ns: AtomicU64,
    /// Earliest host time of the base that the timing events since allow (ns).
    least_ns: AtomicU64,
}

/// Time at which a timing event was reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// Host time (`CLOCK_MONOTONIC`, ns).
    pub(super) at_ns: u64,
    /// Amount by which every earlier answer for this context turns out to be too late (ns).
    pub(super) earlier_ns: u64,
}

impl EventClocks {
    pub(super) fn new() -> Self {
        Self { bases: (0..CONTEXTS).map(|_| Base::default()).collect(), asking: AtomicUsize::new(0) }
    }

    /// Time at which the timing event of a stream of `context` was reached. It was seen to be reached at `seen_ns`.
    /// `None` if the driver refuses, or if no base is free.
    pub(super) fn reached_at(
        &self,
        context: usize,
        timing_event: &TimingEvent,
        seen_ns: u64,
    ) -> Option<Reached> {
        let known = |base: &&Base| base.context.load(Ordering::Relaxed) == context;
        if let Some(base) = self.bases.iter().find(known) {
            return base.reached_at(timing_event, seen_ns);
        }
        let base = self.bases.iter().find(|base| base.context.load(Ordering::Relaxed) == 0)?;
        base.context.store(context, Ordering::Relaxed);
        base.begin(timing_event, seen_ns);
        Some(Reached { at_ns: seen_ns, earlier_ns: 0 })
    }

    /// Forgets a context whose events are gone.
    pub(super) fn forget(&self, context: usize) {
        for base in self.bases.iter().filter(|base| base.context.load(Ordering::Relaxed) == context) {
            base.event.store(0, Ordering::Relaxed);
            base.context.store(0, Ordering::Relaxed);
        }
    }
}

impl Base {
    /// Makes the timing event's event the base. The timing event gets the event of the old base.
    fn begin(&self, timing_event: &TimingEvent, at_ns: u64) {
        let event = timing_event.event.load(Ordering::Relaxed);
        timing_event.event.store(self.event.swap(event, Ordering::Relaxed), Ordering::Relaxed);
        self.at_ns.store(at_ns, Ordering::Relaxed);
        self.least_ns.store(u64::MAX, Ordering::Relaxed);
    }

    fn reached_at(&self, timing_event: &TimingEvent, seen_ns: u64) -> Option<Reached> {
        let (base, event) = (self.event.load(Ordering::Relaxed), timing_event.event.load(Ordering::Relaxed));
        let mut milliseconds = 0_f32;
        // SAFETY: two recorded events of ours in one living context; the driver writes a number or nothing.
        unsafe { real::cuEventElapsedTime(&raw mut milliseconds, CUevent(base), CUevent(event)) }.ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "a number of nanoseconds, seconds at most")]
        let elapsed_ns = (f64::from(milliseconds) * 1e6) as i64;
        let implied_ns = seen_ns.saturating_add_signed(-elapsed_ns);
        let least_ns = self.least_ns.load(Ordering::Relaxed).min(implied_ns);
        self.least_ns.store(least_ns, Ordering::Relaxed);
        let told_ns = self.at_ns.load(Ordering::Relaxed);
        let at_ns = told_ns.min(least_ns);
        let earlier_ns = told_ns - at_ns;
        self.at_ns.store(at_ns, Ordering::Relaxed);
        if elapsed_ns > RENEW_NS {
            // The clocks may have drifted either way since the base: only observations of the base's time count.
            let reached_ns = least_ns.saturating_add_signed(elapsed_ns);
            self.begin(timing_event, reached_ns);
            return Some(Reached { at_ns: reached_ns, earlier_ns });
        }
        Some(Reached { at_ns: at_ns.saturating_add_signed(elapsed_ns), earlier_ns })
    }
}
