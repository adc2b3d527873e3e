//! The configuration file's form. Unknown keys are refused: a misspelt value must not be a missing one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use vcuda_daemon::config::LogTable;
use vcuda_daemon::value::{Listen, parsed};
use vcuda_quota::MemorySize;
use vcuda_quota::pods::bounds::{Bounds, Namespace, NamespaceTable};
use vcuda_quota::pods::{parse_chunk, parse_resource_name};

use crate::admit::{AliyunUnit, Mode, Rules, confine};
use crate::extender::Score;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    #[serde(deserialize_with = "address")]
    pub(super) listen: SocketAddr,
    pub(super) certificate: PathBuf,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) resources: ResourcesTable,
    pub(super) admission: AdmissionTable,
    /// As in the manager's configuration, so that both have one text. The audit is the manager's alone.
    pub(super) namespaces: BTreeMap<Namespace, NamespaceTable<IgnoredAny>>,
    pub(super) extender: ExtenderTable,
    pub(super) metrics: MetricsTable,
    pub(super) log: LogTable,
}

impl Default for File {
    fn default() -> Self {
        Self {
            listen: ([0, 0, 0, 0], 8443).into(),
            certificate: "/etc/vcuda-cluster/tls".into(),
            kubeconfig: None,
            resources: ResourcesTable::default(),
            admission: AdmissionTable::default(),
            namespaces: BTreeMap::new(),
            extender: ExtenderTable::default(),
            metrics: MetricsTable::default(),
            log: LogTable::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResourcesTable {
    #[serde(deserialize_with = "resource_name")]
    gpu: String,
    #[serde(deserialize_with = "resource_name")]
    memory: String,
    #[serde(deserialize_with = "resource_name")]
    cores: String,
    #[serde(deserialize_with = "resource_name")]
    suspendable_memory: String,
    #[serde(deserialize_with = "chunk")]
    chunk: u64,
}

impl Default for ResourcesTable {
    fn default() -> Self {
        let Rules { names: [gpu, memory, cores], suspendable_memory, chunk_bytes, .. } = Rules::default();
        Self { gpu, memory, cores, suspendable_memory, chunk: chunk_bytes }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdmissionTable {
    mode: Mode,
    claims: bool,
    #[serde(deserialize_with = "size")]
    default_memory: Option<u64>,
    #[serde(deserialize_with = "size")]
    gpu_memory: Option<u64>,
    aliyun_unit: AliyunUnit,
    #[serde(deserialize_with = "factor")]
    volcano_memory_factor: u64,
    tolerations: Vec<Toleration>,
    runtime_class: String,
    #[serde(deserialize_with = "host_paths")]
    host_paths: Vec<PathBuf>,
}

impl Default for AdmissionTable {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            claims: false,
            default_memory: None,
            gpu_memory: None,
            aliyun_unit: AliyunUnit::default(),
            volcano_memory_factor: 1,
            tolerations: Vec::new(),
            runtime_class: String::new(),
            host_paths: Vec::new(),
        }
    }
}

impl AdmissionTable {
    /// The rules, for resources of these names and namespaces with these bounds.
    pub(super) fn rules(self, resources: ResourcesTable, bounds: Bounds) -> Rules {
        let tolerations = self.tolerations.iter();
        Rules {
            names: [resources.gpu, resources.memory, resources.cores],
            suspendable_memory: resources.suspendable_memory,
            chunk_bytes: resources.chunk,
            mode: self.mode,
            makes_claims: self.claims || self.mode == Mode::Dra,
            default_memory_bytes: self.default_memory,
            gpu_memory_bytes: self.gpu_memory,
            aliyun_unit: self.aliyun_unit,
            volcano_memory_factor: self.volcano_memory_factor,
            tolerations: tolerations.filter_map(|one| serde_json::to_value(one).ok()).collect(),
            runtime_class: Some(self.runtime_class).filter(|class| !class.is_empty()),
            host_paths: self.host_paths,
            bounds,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExtenderTable {
    pub(super) score: Score,
    pub(super) follow_nodes: bool,
}

/// A toleration as in a pod.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Toleration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Listen,
}

impl Default for MetricsTable {
    fn default() -> Self {
        Self { listen: Listen(Some(([0, 0, 0, 0], 9438).into())) }
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parsed(deserializer, |text| {
        let address = text.parse();
        address.map_err(|_| "not an address with port, such as 0.0.0.0:8443 or [::]:8443".to_owned())
    })
}

fn resource_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    parsed(deserializer, |text| parse_resource_name(text).map(str::to_owned))
}

fn chunk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parsed(deserializer, parse_chunk)
}

/// A size, or nothing of an empty text.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    parsed(deserializer, |text| match text {
        "" => Ok(None),
        text => text
            .parse()
            .map(|MemorySize(bytes)| Some(bytes))
            .map_err(|error: vcuda_quota::ParseError| error.to_string()),
    })
}

fn host_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    confine::host_paths(&Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("'0': write 1 or more")),
        factor => Ok(factor),
    }
}
