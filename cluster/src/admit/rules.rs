//! Rules of admission, as they are configured.

use std::path::PathBuf;

use serde_json::Value;
use vcuda_quota::pods::ResourceNames;
use vcuda_quota::pods::bounds::Bounds;

/// Way in which pods get their shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// By counts of resources, which the device plugin gives out.
    #[default]
    Plugin,
    /// By claims, which Kubernetes' scheduler places.
    Dra,
}

/// Unit of `aliyun.com/gpu-mem`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AliyunUnit {
    /// That of cGPU, and the default of gpushare.
    #[default]
    Gibibytes,
    /// That of gpushare with `--memory-unit=MiB`.
    Mebibytes,
}

/// Rules of admission.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Names of shares, memory and cores.
    pub names: [String; 3],
    /// Name of memory for suspendable containers.
    pub suspendable_memory: String,
    /// Size of a chunk.
    pub chunk_bytes: u64,
    /// Mode of pods that name none.
    pub mode: Mode,
    /// Whether pods can have claims.
    pub makes_claims: bool,
    /// Memory on each GPU for a container that asks for a GPU alone.
    pub default_memory_bytes: Option<u64>,
    /// Memory of a GPU, if all have the same: for requests in percent of it.
    pub gpu_memory_bytes: Option<u64>,
    /// Unit of `aliyun.com/gpu-mem`.
    pub aliyun_unit: AliyunUnit,
    /// MiB in a unit of `volcano.sh/vgpu-memory`.
    pub volcano_memory_factor: u64,
    /// Tolerations that pods with shares get.
    pub tolerations: Vec<Value>,
    /// Runtime class that pods with shares get.
    pub runtime_class: Option<String>,
    /// Folders of the node that pods with shares may mount.
    pub host_paths: Vec<PathBuf>,
    /// What pods of a namespace may choose.
    pub bounds: Bounds,
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
    pub fn resources(&self) -> ResourceNames<'_> {
        let [gpu, memory, cores] = &self.names;
        ResourceNames { gpu, memory, cores }
    }

    /// The same, with memory for suspendable containers in the place of memory if `is_suspendable`.
    pub fn resources_of(&self, is_suspendable: bool) -> ResourceNames<'_> {
        let names = self.resources();
        match is_suspendable {
            true => ResourceNames { memory: &self.suspendable_memory, ..names },
            false => names,
        }
    }

    /// All names.
    pub fn all_names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain([&self.suspendable_memory])
    }
}
