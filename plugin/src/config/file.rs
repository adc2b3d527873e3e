//! Format of the configuration file. Unknown keys are refused, so that a misspelt key does not leave the default in force.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use vcuda_daemon::config::LogTable;
use vcuda_daemon::value::{Interval, Listen};

use super::Api;
use super::value::{Chunk, ResourceName};
use crate::cdi::Inject;
use crate::dra::device::Effect;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) manager: PathBuf,
    pub(super) kubelet: PathBuf,
    pub(super) cdi: PathBuf,
    pub(super) devices: PathBuf,
    pub(super) strict: bool,
    pub(super) resources: ResourcesTable,
    pub(super) driver: DriverTable,
    pub(super) cluster: ClusterTable,
    pub(super) whole_cards: WholeCardsTable,
    pub(super) dra: DraTable,
    pub(super) release: ReleaseTable,
    pub(super) metrics: MetricsTable,
    pub(super) log: LogTable,
}

impl Default for File {
    fn default() -> Self {
        Self {
            manager: "/run/vcuda/manager.sock".into(),
            kubelet: "/var/lib/kubelet".into(),
            cdi: "/var/run/cdi".into(),
            devices: "/dev".into(),
            strict: false,
            resources: ResourcesTable::default(),
            driver: DriverTable::default(),
            cluster: ClusterTable::default(),
            whole_cards: WholeCardsTable::default(),
            dra: DraTable::default(),
            release: ReleaseTable::default(),
            metrics: MetricsTable::default(),
            log: LogTable::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResourcesTable {
    pub(super) gpu: ResourceName,
    pub(super) memory: ResourceName,
    pub(super) cores: ResourceName,
    pub(super) suspendable_memory: Option<ResourceName>,
    pub(super) chunk: Chunk,
}

impl Default for ResourcesTable {
    fn default() -> Self {
        Self {
            gpu: ResourceName("vcuda.io/gpu".to_owned()),
            memory: ResourceName("vcuda.io/memory".to_owned()),
            cores: ResourceName("vcuda.io/cores".to_owned()),
            suspendable_memory: None,
            chunk: Chunk(256 << 20),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DriverTable {
    pub(super) inject: Inject,
    pub(super) root: PathBuf,
    pub(super) seen_at: Option<PathBuf>,
}

impl Default for DriverTable {
    fn default() -> Self {
        Self { inject: Inject::Cdi, root: "/".into(), seen_at: None }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterTable {
    pub(super) api: Api,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) events: bool,
    pub(super) publish: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WholeCardsTable {
    pub(super) shim: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DraTable {
    pub(super) unhealthy_effect: Effect,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReleaseTable {
    pub(super) interval: Interval,
    pub(super) grace: Interval,
}

impl Default for ReleaseTable {
    fn default() -> Self {
        Self { interval: Interval(Duration::from_secs(10)), grace: Interval(Duration::from_secs(30)) }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Listen,
}

impl Default for MetricsTable {
    fn default() -> Self {
        Self { listen: Listen(Some(([0, 0, 0, 0], 9437).into())) }
    }
}
