//! Counters that the manager's parts update as events happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::age_seconds;
use super::rows::Audited;
use super::series::{self, Series};

const LATENCIES: [f64; 12] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// The process is registered.
    Accepted,
    /// Its message was malformed, too long, or of an unsupported version.
    Malformed,
    /// Refused: it came from another tenant than it claims, or from one with too many processes.
    Refused,
    /// Not finished in time.
    TimedOut,
}

impl Registration {
    const ALL: [Registration; 4] = [Self::Accepted, Self::Malformed, Self::Refused, Self::TimedOut];

    fn label(self) -> [(&'static str, &'static str); 1] {
        let result = match self {
            Self::Accepted => "accepted",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
        };
        [("result", result)]
    }
}

/// Outcome of a suspension, or of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The memory was moved.
    Done,
    /// It was not; the tenant is in the state that it was in.
    Refused,
    /// A process lost its GPU state.
    Failed,
}

impl Moved {
    const ALL: [Moved; 3] = [Self::Done, Self::Refused, Self::Failed];

    fn label(self) -> One {
        let result = match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        };
        [("result", result)]
    }
}

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];

/// Counters, which live as long as the manager.
#[derive(Debug)]
pub struct Instruments {
    registrations: Family<One, Counter>,
    calls: Family<Two, Histogram>,
    killed: Counter,
    suspensions: Family<One, Counter>,
    resumptions: Family<One, Counter>,
    made_room: Counter,
    audited: Mutex<Arc<Audited>>,
    /// Time of the last arbitration of GPU time (`CLOCK_MONOTONIC`, ns); 0 before the first.
    arbitrated_ns: AtomicU64,
}

impl Default for Instruments {
    fn default() -> Self {
        let registrations = Family::<One, Counter>::default();
        for result in Registration::ALL {
            // Created at the start, so that the first registration shows as an increase.
            drop(registrations.get_or_create(&result.label()));
        }
        let (suspensions, resumptions) = <(Family<One, Counter>, Family<One, Counter>)>::default();
        for result in Moved::ALL {
            drop(suspensions.get_or_create(&result.label()));
            drop(resumptions.get_or_create(&result.label()));
        }
        Self {
            registrations,
            calls: Family::new_with_constructor(|| Histogram::new(LATENCIES)),
            killed: Counter::default(),
            suspensions,
            resumptions,
            made_room: Counter::default(),
            audited: Mutex::default(),
            arbitrated_ns: AtomicU64::new(0),
        }
    }
}

impl Instruments {
    /// Counts attempts to register.
    pub fn registered(&self, result: Registration, count: u64) {
        self.registrations.get_or_create(&result.label()).inc_by(count);
    }

    /// Records a call such as `Grants/Create`, its status such as `OK`, and its duration. Both names come from the
    /// program's own lists, never from a caller, as each pair becomes a series for ever.
    pub fn called(&self, method: &'static str, code: &'static str, took: Duration) {
        let labels = [("method", method), ("code", code)];
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts processes that the audit has ended.
    pub fn killed(&self, count: u64) {
        self.killed.inc_by(count);
    }

    /// Counts an attempt to suspend a tenant.
    pub fn suspended(&self, result: Moved) {
        self.suspensions.get_or_create(&result.label()).inc();
    }

    /// Counts an attempt to bring a tenant back.
    pub fn resumed(&self, result: Moved) {
        self.resumptions.get_or_create(&result.label()).inc();
    }

    /// Counts a tenant that was suspended to make room for another.
    pub fn made_room(&self) {
        self.made_room.inc();
    }

    /// Replaces the findings of the audit.
    pub fn set_audited(&self, audited: Audited) {
        *self.audited.lock() = Arc::new(audited);
    }

    /// Records the time of the last arbitration (`CLOCK_MONOTONIC`, ns); 0 before the first.
    pub fn arbitrated(&self, at_ns: u64) {
        self.arbitrated_ns.store(at_ns, Ordering::Relaxed);
    }

    pub(super) fn audited(&self) -> Arc<Audited> {
        self.audited.lock().clone()
    }

    pub(super) fn arbiter_age_seconds(&self) -> Option<f64> {
        match self.arbitrated_ns.load(Ordering::Relaxed) {
            0 => None,
            then_ns => Some(age_seconds(then_ns)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        register(registry, &series::REGISTRATIONS, self.registrations.clone());
        register(registry, &series::API, self.calls.clone());
        register(registry, &series::KILLED, self.killed.clone());
        register(registry, &series::SUSPENSIONS, self.suspensions.clone());
        register(registry, &series::RESUMPTIONS, self.resumptions.clone());
        register(registry, &series::MADE_ROOM, self.made_room.clone());
    }
}

fn register(registry: &mut Registry, series: &Series, metric: impl prometheus_client::registry::Metric) {
    // The registry adds the final full stop of the help text.
    match series.encoder_unit() {
        Some(unit) => registry.register_with_unit(series.stem, series.help, unit, metric),
        None => registry.register(series.stem, series.help, metric),
    }
}
