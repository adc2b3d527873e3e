//! The device plugin's metrics for Prometheus.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::ids::Kind;

/// Outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// Kubelet reads the list.
    Done,
    /// Kubelet refused it.
    Refused,
    /// It could not be made.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Outcome {
    kind: Kind,
    result: &'static str,
}

impl EncodeLabelSet for Outcome {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        ("resource", self.kind.word()).encode(encoder.encode_label())?;
        ("result", self.result).encode(encoder.encode_label())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ResourceLabel(Kind);

impl EncodeLabelSet for ResourceLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        ("resource", self.0.word()).encode(encoder.encode_label())
    }
}

type Durations = Family<Outcome, Histogram, fn() -> Histogram>;

/// The metrics, updated as events happen.
#[derive(Debug)]
pub struct Instruments {
    registry: Mutex<Registry>,
    registrations: Family<Outcome, Counter>,
    allocations: Durations,
    starts: Durations,
    devices: Family<Outcome, Gauge>,
    connected: Family<ResourceLabel, Gauge>,
}

/// Buckets of the answers to kubelet (seconds).
pub(crate) fn durations() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl Default for Instruments {
    fn default() -> Self {
        let mut registry = Registry::default();
        let new = || Durations::new_with_constructor(durations);
        let this = Self {
            registrations: Family::default(),
            allocations: new(),
            starts: new(),
            devices: Family::default(),
            connected: Family::default(),
            registry: Mutex::default(),
        };
        registry.register(
            "vcuda_registrations",
            "Registrations with kubelet, by what became of them",
            this.registrations.clone(),
        );
        registry.register(
            "vcuda_allocate_duration_seconds",
            "Answers to kubelet's Allocate",
            this.allocations.clone(),
        );
        registry.register(
            "vcuda_prestart_duration_seconds",
            "Answers to kubelet's PreStartContainer: refused ones keep a container from starting",
            this.starts.clone(),
        );
        registry.register("vcuda_plugin_devices", "Devices that kubelet is told of", this.devices.clone());
        registry.register(
            "vcuda_plugin_registered",
            "1 while kubelet reads the resource's list",
            this.connected.clone(),
        );
        let build = prometheus_client::metrics::info::Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("vcuda_plugin_build", "The device plugin's release", build);
        // All series exist from the start, so that rates count the first event. Few plugins have the fourth resource.
        for kind in [Kind::Gpu, Kind::Memory, Kind::Cores] {
            this.connected.get_or_create(&ResourceLabel(kind)).set(0);
            for result in ["done", "refused", "failed"] {
                drop(this.registrations.get_or_create(&Outcome { kind, result }));
            }
        }
        *this.registry.lock() = registry;
        this
    }
}

impl Instruments {
    /// Counts a registration.
    pub fn registered(&self, kind: Kind, registered: Registered) {
        let result = match registered {
            Registered::Done => "done",
            Registered::Refused => "refused",
            Registered::Failed => "failed",
        };
        self.registrations.get_or_create(&Outcome { kind, result }).inc();
    }

    /// Counts an answer to Allocate and its duration.
    pub fn allocated(&self, kind: Kind, is_done: bool, took: Duration) {
        let outcome = outcome(kind, is_done);
        self.allocations.get_or_create(&outcome).observe(took.as_secs_f64());
    }

    /// Counts an answer to PreStartContainer and its duration.
    pub fn started(&self, kind: Kind, is_done: bool, took: Duration) {
        let outcome = outcome(kind, is_done);
        self.starts.get_or_create(&outcome).observe(took.as_secs_f64());
    }

    /// Sets the numbers of devices in kubelet's list.
    pub fn listed(&self, kind: Kind, healthy: usize, unhealthy: usize) {
        for (result, count) in [("healthy", healthy), ("unhealthy", unhealthy)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.devices.get_or_create(&Outcome { kind, result }).set(count);
        }
    }

    /// Sets whether kubelet reads the list.
    pub fn connected(&self, kind: Kind, is_connected: bool) {
        self.connected.get_or_create(&ResourceLabel(kind)).set(is_connected.into());
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

fn outcome(kind: Kind, is_done: bool) -> Outcome {
    let result = if is_done { "done" } else { "refused" };
    Outcome { kind, result }
}
