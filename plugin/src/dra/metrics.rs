//! The DRA driver's metrics for Prometheus.

use std::fmt;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::metrics::{Durations, Label, done_or_refused, durations, text};

/// Reasons why claims are not prepared, as `PrepareError::reason` names them.
const REASONS: [&str; 8] =
    ["claim", "annotations", "refused", "api_server", "manager", "device", "late", "files"];

#[derive(Debug)]
pub(crate) struct Instruments {
    registry: Registry,
    claims: Gauge,
    prepared: Durations<[Label; 1]>,
    failures: Family<[Label; 1], Counter>,
    slices: Counter,
}

impl Default for Instruments {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::default(),
            claims: Gauge::default(),
            prepared: durations(),
            failures: Family::default(),
            slices: Counter::default(),
        };
        let registry = &mut this.registry;
        registry.register("vcuda_prepared_claims", "Claims that are prepared", this.claims.clone());
        registry.register(
            "vcuda_prepare_duration_seconds",
            "Answers to kubelet about one claim each: a refused one keeps its pod from starting",
            this.prepared.clone(),
        );
        registry.register(
            "vcuda_prepare_failures",
            "Claims that were not prepared, by the reason; kubelet asks again",
            this.failures.clone(),
        );
        registry.register(
            "vcuda_slices_written",
            "ResourceSlices that were created or replaced",
            this.slices.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("vcuda_dra_driver_build", "The driver's release", build);
        // All series exist from the start, so that rates count the first event.
        for reason in REASONS {
            drop(this.failures.get_or_create(&[("reason", reason)]));
        }
        this
    }
}

impl Instruments {
    /// Counts a preparation of a claim, with the reason of a failure, and its duration.
    pub(crate) fn prepared(&self, done: Result<(), &'static str>, took: Duration) {
        let result = done_or_refused(done.is_ok());
        self.prepared.get_or_create(&[("result", result)]).observe(took.as_secs_f64());
        if let Err(reason) = done {
            self.failures.get_or_create(&[("reason", reason)]).inc();
        }
    }

    pub(crate) fn claims(&self, count: usize) {
        self.claims.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn slice_written(&self) {
        self.slices.inc();
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        text(&self.registry)
    }
}
