//! Metrics of the node for Prometheus, as OpenMetrics text over HTTP.
//!
//! A scrape computes them from the shared [`Inventory`], the [`Snapshot`] of the tenants, and the grants. Only calls and
//! registrations are counted as they happen, in [`Instruments`].
//!
//! | module | what |
//! |---|---|
//! | [`series`] | every name, its meaning and its labels: docs/generated/metrics.md is made of it |
//! | `rows` | which container and GPU has which values at a scrape |
//! | `labels` | bounded and unambiguous values of labels |
//! | [`instruments`] | what is counted as it happens |
//!
//! `vcuda_daemon::pages` serves them over HTTP.

mod encode;
pub mod instruments;
mod labels;
mod rows;
pub mod series;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use vcuda_region::GpuUuid;
use vcuda_region::clock;
use vcuda_region::suspension::SuspendState;

use crate::gpu::Inventory;
use crate::grant::Grant;
#[cfg(doc)]
use crate::observe::Snapshot;
use crate::observe::SnapshotCache;
use encode::Scraped;
pub use instruments::{Instruments, Moved, Registration};
pub use rows::Audited;

/// Sources of the metrics.
#[derive(Clone)]
pub struct Sources {
    /// Name of the node, a label of all series.
    pub node: String,
    /// The GPUs.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// The tenants.
    pub tenants: Arc<SnapshotCache>,
    /// Current grants.
    pub grants: Arc<dyn Fn() -> Vec<Arc<Grant>> + Send + Sync>,
    /// GPUs that get no new tenants.
    pub cordoned: Arc<dyn Fn() -> BTreeSet<GpuUuid> + Send + Sync>,
    /// Whether the ledger cannot be written.
    pub has_problem: Arc<dyn Fn() -> bool + Send + Sync>,
    /// State of a tenant, by its id.
    pub states: Arc<dyn Fn(&str) -> SuspendState + Send + Sync>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("node", &self.node).finish_non_exhaustive()
    }
}

/// All metrics of this manager.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Metrics from these sources and from the counts in `instruments`.
    pub fn new(sources: Sources, instruments: Arc<Instruments>) -> Self {
        let node = labels::bounded(&sources.node).into_owned();
        let mut registry = Registry::with_labels([("node".into(), node.into())].into_iter());
        instruments.register(&mut registry);
        registry.register_collector(Box::new(Scraped { sources, instruments }));
        Self { registry }
    }

    /// The text of all metrics. It takes milliseconds on a large node: not for a task of tokio's.
    pub fn scrape(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Seconds since a moment of `CLOCK_MONOTONIC` (ns).
#[expect(clippy::cast_precision_loss, reason = "a second's millionth is enough")]
fn age_seconds(then_ns: u64) -> f64 {
    clock::now_ns().saturating_sub(then_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests;
