//! Rules of admission, as they are configured.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use vcuda_quota::pods::ResourceNames;
use vcuda_quota::pods::bounds::Bounds;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// By counts of resources, which the device plugin gives out.
    #[default]
    Plugin,
    /// By claims, which Kubernetes' scheduler places.
    Dra,
}

/// Unit of `aliyun.com/gpu-mem`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum AliyunUnit {
    /// That of cGPU, and the default of gpushare.
    #[default]
    #[serde(rename = "GiB")]
    Gibibytes,
    /// That of gpushare with `--memory-unit=MiB`.
    #[serde(rename = "MiB")]
    Mebibytes,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    /// Names of shares, memory and cores.
    pub(crate) names: [String; 3],
    pub(crate) suspendable_memory: String,
    pub(crate) chunk_bytes: u64,
    /// Mode of pods that name none.
    pub(crate) mode: Mode,
    pub(crate) makes_claims: bool,
    /// Memory on each GPU for a container that asks for a GPU alone.
    pub(crate) default_memory_bytes: Option<u64>,
    /// Memory of a GPU, if all have the same: for requests in percent of it.
    pub(crate) gpu_memory_bytes: Option<u64>,
    /// Unit of `aliyun.com/gpu-mem`.
    pub(crate) aliyun_unit: AliyunUnit,
    /// MiB in a unit of `volcano.sh/vgpu-memory`.
    pub(crate) volcano_memory_factor: u64,
    pub(crate) tolerations: Vec<Value>,
    pub(crate) runtime_class: Option<String>,
    pub(crate) host_paths: Vec<PathBuf>,
    /// What pods of a namespace may choose.
    pub(crate) bounds: Bounds,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            names: ["vcuda.io/gpu", "vcuda.io/memory", "vcuda.io/cores"].map(str::to_owned),
            suspendable_memory: "vcuda.io/suspendable-memory".to_owned(),
            chunk_bytes: 256 << 20,
            mode: Mode::Plugin,
            makes_claims: false,
            default_memory_bytes: None,
            gpu_memory_bytes: None,
            aliyun_unit: AliyunUnit::Gibibytes,
            volcano_memory_factor: 1,
            tolerations: Vec::new(),
            runtime_class: None,
            host_paths: Vec::new(),
            bounds: Bounds::default(),
        }
    }
}

impl Rules {
    /// Names of the three resources.
    pub(crate) fn resources(&self) -> ResourceNames<'_> {
        let [gpu, memory, cores] = &self.names;
        ResourceNames { gpu, memory, cores }
    }

    /// The same, with memory for suspendable containers in the place of memory if `is_suspendable`.
    pub(crate) fn resources_of(&self, is_suspendable: bool) -> ResourceNames<'_> {
        let names = self.resources();
        match is_suspendable {
            true => ResourceNames { memory: &self.suspendable_memory, ..names },
            false => names,
        }
    }

    pub(crate) fn all_names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain([&self.suspendable_memory])
    }
}
