//! Counts of events as they happen, kept by the parts of the manager in which they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use vcuda_region::GpuUuid;

use super::age_seconds;
use super::series::{self, Series};

/// Bounds of the API's latencies (s).
const LATENCIES: [f64; 12] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// Outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// The process is known now.
    Accepted,
    /// Its message was malformed, too long, or of an unsupported version.
    Malformed,
    /// It came from another tenant than it claims, or there were too many.
    Refused,
    /// It did not finish in time.
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

/// Findings of the audit at its last look. What is not named is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// Bytes on a GPU of processes that belong to no known tenant.
    pub unregistered_bytes: BTreeMap<GpuUuid, u64>,
    /// Bytes that NVML shows beyond a tenant's limit, by its id and GPU.
    pub over_bytes: BTreeMap<(String, GpuUuid), u64>,
}

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];

/// Counters that live as long as the manager.
#[derive(Debug)]
pub struct Instruments {
    registrations: Family<One, Counter>,
    calls: Family<Two, Histogram>,
    killed: Counter,
    audited: Mutex<Arc<Audited>>,
    /// Time at which GPU time was last divided (`CLOCK_MONOTONIC`, ns); 0: not by this manager.
    arbitrated_ns: AtomicU64,
}

impl Default for Instruments {
    fn default() -> Self {
        let registrations = Family::<One, Counter>::default();
        for result in Registration::ALL {
            // There from the start, so that the first one is an increase.
            drop(registrations.get_or_create(&result.label()));
        }
        Self {
            registrations,
            calls: Family::new_with_constructor(|| Histogram::new(LATENCIES)),
            killed: Counter::default(),
            audited: Mutex::default(),
            arbitrated_ns: AtomicU64::new(0),
        }
    }
}

impl Instruments {
    /// So many processes tried to register.
    pub fn registered(&self, result: Registration, count: u64) {
        self.registrations.get_or_create(&result.label()).inc_by(count);
    }

    /// The API answered a call, such as `Grants/Create`, with a status code, such as `OK`, after this time. Both are from
    /// the program's own lists, never from a caller: each pair is a series for ever.
    pub fn called(&self, method: &'static str, code: &'static str, took: Duration) {
        let labels = [("method", method), ("code", code)];
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The audit has ended so many processes.
    pub fn killed(&self, count: u64) {
        self.killed.inc_by(count);
    }

    /// The audit has looked.
    pub fn set_audited(&self, audited: Audited) {
        *self.audited.lock() = Arc::new(audited);
    }

    /// GPU time was divided last at this moment (`CLOCK_MONOTONIC`, ns).
    pub fn arbitrated(&self, at_ns: u64) {
        self.arbitrated_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Another process divides GPU time from now on.
    pub fn arbitration_left(&self) {
        self.arbitrated_ns.store(0, Ordering::Relaxed);
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
    }
}

fn register(registry: &mut Registry, series: &Series, metric: impl prometheus_client::registry::Metric) {
    // The registry ends the help's sentence itself.
    match series.unit() {
        Some(unit) => registry.register_with_unit(series.stem, series.help, unit, metric),
        None => registry.register(series.stem, series.help, metric),
    }
}
