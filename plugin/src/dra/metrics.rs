//! The DRA driver's metrics for Prometheus.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::prepare::{PrepareError, REASONS};
use crate::metrics::durations;

/// A label: its name and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Word(&'static str, &'static str);

impl EncodeLabelSet for Word {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        (self.0, self.1).encode(encoder.encode_label())
    }
}

/// The metrics, updated as events happen.
#[derive(Debug)]
pub struct Instruments {
    registry: Mutex<Registry>,
    claims: Gauge,
    prepared: Family<Word, Histogram, fn() -> Histogram>,
    failures: Family<Word, Counter>,
    slices: Counter,
}

impl Default for Instruments {
    fn default() -> Self {
        let mut registry = Registry::default();
        let this = Self {
            registry: Mutex::default(),
            claims: Gauge::default(),
            prepared: Family::new_with_constructor(durations),
            failures: Family::default(),
            slices: Counter::default(),
        };
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
            drop(this.failures.get_or_create(&Word("reason", reason)));
        }
        *this.registry.lock() = registry;
        this
    }
}

impl Instruments {
    /// Counts a preparation of a claim and its duration.
    pub fn prepared(&self, done: Result<(), &PrepareError>, took: Duration) {
        let result = if done.is_ok() { "done" } else { "refused" };
        self.prepared.get_or_create(&Word("result", result)).observe(took.as_secs_f64());
        if let Err(error) = done {
            self.failures.get_or_create(&Word("reason", error.reason())).inc();
        }
    }

    /// Sets the number of prepared claims.
    pub fn claims(&self, count: usize) {
        self.claims.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a created or replaced slice.
    pub fn slice_written(&self) {
        self.slices.inc();
    }

    /// The metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Those of the encoder; writing to a `String` has none.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}
