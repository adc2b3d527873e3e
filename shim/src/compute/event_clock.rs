//! When a timing event was reached, on the clock that all processes share. Events tell elapsed time against each other within one
//! context only, so each context has a base event, and the base's host time is the least of what was seen: a completion is
//! never seen before it happens.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vcuda_driver_api::prelude::*;

use super::stream_state::TimingEvent;
use crate::driver::real;

/// A base is renewed after this long (ns): a float of milliseconds loses a microsecond at 16 s.
const RENEW_NS: i64 = 8_000_000_000;
/// More than fit into a GPU.
const CONTEXTS: usize = 1024;

/// The bases of this process's contexts. Only the worker reads and writes them, save that a closing context's is dropped.
#[derive(Debug)]
pub(super) struct EventClocks {
    bases: Box<[Base]>,
    /// The context whose events the worker is asking about.
    pub(super) asking: AtomicUsize,
}

#[derive(Debug, Default)]
struct Base {
    context: AtomicUsize,
    event: AtomicUsize,
    /// Host time of the base (ns).
    at_ns: AtomicU64,
    /// The least host time of the base that timing events since its beginning allow (ns).
    least_ns: AtomicU64,
}

/// When a timing event was reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) at_ns: u64,
    /// By how much every time that was told of this context before is too late, as it turns out (ns).
    pub(super) earlier_ns: u64,
}

impl EventClocks {
    pub(super) fn new() -> Self {
        Self {
            bases: (0..CONTEXTS).map(|_| Base::default()).collect(),
            asking: AtomicUsize::new(0),
        }
    }

    /// When the reached timing event of a stream of `context`, seen at `seen_ns`, was reached.
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
        let base = self
            .bases
            .iter()
            .find(|base| base.context.load(Ordering::Relaxed) == 0)?;
        base.context.store(context, Ordering::Relaxed);
        base.begin(timing_event, seen_ns);
        Some(Reached {
            at_ns: seen_ns,
            earlier_ns: 0,
        })
    }

    /// Forgets a context: its events are gone.
    pub(super) fn forget(&self, context: usize) {
        for base in self
            .bases
            .iter()
            .filter(|base| base.context.load(Ordering::Relaxed) == context)
        {
            base.event.store(0, Ordering::Relaxed);
            base.context.store(0, Ordering::Relaxed);
        }
    }
}

impl Base {
    /// The timing event's event becomes the base, and an older base's event the timing event's.
    fn begin(&self, timing_event: &TimingEvent, at_ns: u64) {
        let event = timing_event.event.load(Ordering::Relaxed);
        timing_event
            .event
            .store(self.event.swap(event, Ordering::Relaxed), Ordering::Relaxed);
        self.at_ns.store(at_ns, Ordering::Relaxed);
        self.least_ns.store(u64::MAX, Ordering::Relaxed);
    }

    fn reached_at(&self, timing_event: &TimingEvent, seen_ns: u64) -> Option<Reached> {
        let (base, event) = (
            self.event.load(Ordering::Relaxed),
            timing_event.event.load(Ordering::Relaxed),
        );
        let mut milliseconds = 0_f32;
        // SAFETY: two recorded events of ours in one living context; the driver writes a number or nothing.
        unsafe { real::cuEventElapsedTime(&raw mut milliseconds, CUevent(base), CUevent(event)) }.ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number of nanoseconds, seconds at most"
        )]
        let elapsed_ns = (f64::from(milliseconds) * 1e6) as i64;
        let implied_ns = seen_ns.saturating_add_signed(-elapsed_ns);
        let least_ns = self.least_ns.load(Ordering::Relaxed).min(implied_ns);
        self.least_ns.store(least_ns, Ordering::Relaxed);
        let told_ns = self.at_ns.load(Ordering::Relaxed);
        let at_ns = told_ns.min(least_ns);
        let earlier_ns = told_ns - at_ns;
        self.at_ns.store(at_ns, Ordering::Relaxed);
        if elapsed_ns > RENEW_NS {
            // The clocks may have drifted either way since the base: what was seen during its time counts.
            let reached_ns = least_ns.saturating_add_signed(elapsed_ns);
            self.begin(timing_event, reached_ns);
            return Some(Reached {
                at_ns: reached_ns,
                earlier_ns,
            });
        }
        Some(Reached {
            at_ns: at_ns.saturating_add_signed(elapsed_ns),
            earlier_ns,
        })
    }
}
