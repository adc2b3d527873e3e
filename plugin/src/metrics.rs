//! The device plugin's metrics for Prometheus.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::ids::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    /// Kubelet reads the list.
    Done,
    Refused,
    Failed,
}

/// A label: its name and its value.
pub(crate) type Label = (&'static str, &'static str);

/// Histograms of the times of answers to kubelet, by their labels.
pub(crate) type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Histograms of the times of answers to kubelet (seconds).
pub(crate) fn durations<L: Clone + std::hash::Hash + Eq>() -> Durations<L> {
    Family::new_with_constructor(|| {
        Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
    })
}

pub(crate) fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

#[derive(Debug)]
pub(crate) struct Instruments {
    registry: Registry,
    registrations: Family<[Label; 2], Counter>,
    allocations: Durations<[Label; 2]>,
    starts: Durations<[Label; 2]>,
    devices: Family<[Label; 2], Gauge>,
    connected: Family<[Label; 1], Gauge>,
}

impl Default for Instruments {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::default(),
            registrations: Family::default(),
            allocations: durations(),
            starts: durations(),
            devices: Family::default(),
            connected: Family::default(),
        };
        let registry = &mut this.registry;
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
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("vcuda_plugin_build", "The device plugin's release", build);
        // All series exist from the start, so that rates count the first event. Few plugins have the fourth resource.
        for kind in [Kind::Gpu, Kind::Memory, Kind::Cores] {
            this.connected(kind, false);
            for result in ["done", "refused", "failed"] {
                drop(this.registrations.get_or_create(&outcome(kind, result)));
            }
        }
        this
    }
}

impl Instruments {
    pub(crate) fn registered(&self, kind: Kind, registered: Registered) {
        let result = match registered {
            Registered::Done => "done",
            Registered::Refused => "refused",
            Registered::Failed => "failed",
        };
        self.registrations.get_or_create(&outcome(kind, result)).inc();
    }

    pub(crate) fn allocated(&self, kind: Kind, is_done: bool, took: Duration) {
        let outcome = outcome(kind, done_or_refused(is_done));
        self.allocations.get_or_create(&outcome).observe(took.as_secs_f64());
    }

    /// Counts an answer to PreStartContainer and its duration.
    pub(crate) fn started(&self, kind: Kind, is_done: bool, took: Duration) {
        let outcome = outcome(kind, done_or_refused(is_done));
        self.starts.get_or_create(&outcome).observe(took.as_secs_f64());
    }

    pub(crate) fn listed(&self, kind: Kind, healthy: usize, unhealthy: usize) {
        for (result, count) in [("healthy", healthy), ("unhealthy", unhealthy)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.devices.get_or_create(&outcome(kind, result)).set(count);
        }
    }

    pub(crate) fn connected(&self, kind: Kind, is_connected: bool) {
        self.connected.get_or_create(&[("resource", kind.word())]).set(is_connected.into());
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        text(&self.registry)
    }
}

fn outcome(kind: Kind, result: &'static str) -> [Label; 2] {
    [("resource", kind.word()), ("result", result)]
}

/// Value of the label `result` of an answer to kubelet.
pub(crate) fn done_or_refused(is_done: bool) -> &'static str {
    if is_done { "done" } else { "refused" }
}
