//! Format of the configuration file. Unknown keys are refused, so that a misspelt limit does not go unnoticed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use vcuda_cdi::Inject;
use vcuda_daemon::config::LogTable;
use vcuda_daemon::value::{Interval, Listen};
use vcuda_quota::pods::bounds::Namespace;

use super::Health;
use super::namespaces::NamespaceTable;
use super::users::{UserKey, UserTable};
use super::value::{Factor, Group, Mode, Residence, Sharers, Size};
use crate::admission::{Placement, Rules};
use crate::audit::Action;
use crate::grant_devices::{DeviceSettings, Folder};

/// All keys; a test requires each in the documented file.
#[cfg(test)]
pub(super) const KEYS: [&str; 45] = [
    "root",
    "state",
    "node",
    "nvml_library",
    "cuda_library",
    "shim_library",
    "vcuda_program",
    "[api]",
    "mode",
    "group",
    "viewers",
    "[admission]",
    "reserve",
    "sharers_max",
    "memory_overcommit",
    "suspendable_overcommit",
    "cores_overcommit",
    "placement",
    "[namespaces.\"*\"]",
    "policies",
    "priority_max",
    "cores_max",
    "weight_max",
    "suspendable",
    "audit_action",
    "[users.",
    "memory =",
    "cores =",
    "grants =",
    "[health]",
    "ignored_xids",
    "fatal_xids",
    "clean_probes",
    "[metrics]",
    "listen",
    "[audit]",
    "[suspend]",
    "residence",
    "[cdi]",
    "directory",
    "inject",
    "devices",
    "driver_root",
    "[log]",
    "filter",
];

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) root: PathBuf,
    pub(super) state: PathBuf,
    pub(super) node: Option<String>,
    pub(super) nvml_library: Option<PathBuf>,
    pub(super) cuda_library: Option<PathBuf>,
    pub(super) shim_library: Option<PathBuf>,
    pub(super) vcuda_program: Option<PathBuf>,
    pub(super) api: ApiTable,
    pub(super) admission: AdmissionTable,
    pub(super) namespaces: BTreeMap<Namespace, NamespaceTable>,
    pub(super) users: BTreeMap<UserKey, UserTable>,
    pub(super) health: HealthTable,
    pub(super) metrics: MetricsTable,
    pub(super) audit: AuditTable,
    pub(super) suspend: SuspendTable,
    pub(super) cdi: CdiTable,
    pub(super) log: LogTable,
}

impl Default for File {
    fn default() -> Self {
        Self {
            root: "/run/vcuda".into(),
            state: "/var/lib/vcuda".into(),
            node: None,
            nvml_library: None,
            cuda_library: None,
            shim_library: None,
            vcuda_program: None,
            api: ApiTable::default(),
            admission: AdmissionTable::default(),
            namespaces: BTreeMap::new(),
            users: BTreeMap::new(),
            health: HealthTable::default(),
            metrics: MetricsTable::default(),
            audit: AuditTable::default(),
            suspend: SuspendTable::default(),
            cdi: CdiTable::default(),
            log: LogTable::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApiTable {
    pub(super) mode: Mode,
    pub(super) group: Option<Group>,
    pub(super) viewers: Vec<Group>,
}

impl Default for ApiTable {
    fn default() -> Self {
        Self { mode: Mode(0o660), group: None, viewers: Vec::new() }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdmissionTable {
    reserve: Size,
    sharers_max: Sharers,
    memory_overcommit: Factor,
    suspendable_overcommit: Factor,
    cores_overcommit: Factor,
    placement: Placement,
}

impl Default for AdmissionTable {
    fn default() -> Self {
        Self {
            reserve: Size(512 << 20),
            sharers_max: Sharers(16),
            memory_overcommit: Factor(1000),
            suspendable_overcommit: Factor(1000),
            cores_overcommit: Factor(1000),
            placement: Placement::Binpack,
        }
    }
}

impl From<AdmissionTable> for Rules {
    fn from(table: AdmissionTable) -> Self {
        Self {
            reserve_bytes_per_sharer: table.reserve.0,
            sharers_max: table.sharers_max.0,
            memory_overcommit_permille: table.memory_overcommit.0,
            suspendable_overcommit_permille: table.suspendable_overcommit.0,
            cores_overcommit_permille: table.cores_overcommit.0,
            placement: table.placement,
            is_open: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HealthTable {
    ignored_xids: Vec<u64>,
    fatal_xids: Vec<u64>,
    clean_probes: u32,
}

impl Default for HealthTable {
    fn default() -> Self {
        Self { ignored_xids: Vec::new(), fatal_xids: Vec::new(), clean_probes: 30 }
    }
}

impl From<HealthTable> for Health {
    fn from(table: HealthTable) -> Self {
        Self {
            ignored_xids: table.ignored_xids,
            fatal_xids: table.fatal_xids,
            clean_probes: table.clean_probes,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Listen,
}

impl Default for MetricsTable {
    fn default() -> Self {
        Self { listen: Listen(Some(([127, 0, 0, 1], 9436).into())) }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuditTable {
    pub(super) interval: Interval,
    pub(super) action: Action,
}

impl Default for AuditTable {
    fn default() -> Self {
        Self { interval: Interval(std::time::Duration::from_secs(1)), action: Action::Report }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SuspendTable {
    pub(super) residence: Residence,
}

impl Default for SuspendTable {
    fn default() -> Self {
        Self { residence: Residence(std::time::Duration::from_secs(30)) }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CdiTable {
    pub(super) directory: Folder,
    pub(super) inject: Inject,
    pub(super) devices: PathBuf,
    pub(super) driver_root: PathBuf,
}

impl Default for CdiTable {
    fn default() -> Self {
        let DeviceSettings { inject, devices, driver_root, .. } = DeviceSettings::default();
        Self { directory: Folder::System, inject, devices, driver_root }
    }
}
