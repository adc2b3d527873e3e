//! The driver's own metrics for Prometheus.

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

/// A label with a word that the program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Word(&'static str, &'static str);

impl EncodeLabelSet for Word {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        (self.0, self.1).encode(encoder.encode_label())
    }
}

/// Counters of events, raised as they happen.
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
        registry.register(
            "vcuda_prepared_claims",
            "Claims that are prepared",
            this.claims.clone(),
        );
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
        // Series are there from the start.
        for reason in REASONS {
            drop(this.failures.get_or_create(&Word("reason", reason)));
        }
        *this.registry.lock() = registry;
        this
    }
}

impl Instruments {
    /// Preparation of a claim ended so.
    pub fn prepared(&self, done: Result<(), &PrepareError>, took: Duration) {
        let result = if done.is_ok() { "done" } else { "refused" };
        self.prepared
            .get_or_create(&Word("result", result))
            .observe(took.as_secs_f64());
        if let Err(error) = done {
            self.failures.get_or_create(&Word("reason", error.reason())).inc();
        }
    }

    /// So many claims are prepared.
    pub fn claims(&self, count: usize) {
        self.claims.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A slice was created or replaced.
    pub fn slice_written(&self) {
        self.slices.inc();
    }

    /// All of it as OpenMetrics text.
    ///
    /// # Errors
    /// None that is known.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}
