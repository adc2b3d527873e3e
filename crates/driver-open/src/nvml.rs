//! NVML, which comes with NVIDIA's driver.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;
use std::path::Path;

use libloading::Library;
use thiserror::Error;
use vcuda_driver_api::NvmlError;
use vcuda_driver_api::nvml::{
    fn_types, nvmlComputeMode_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlProcessInfo_t,
};

use crate::cuda::CudaProblem;

const NAME: &str = "libnvidia-ml.so.1";

/// NVML cannot be used.
#[derive(Debug, Error)]
pub enum NvmlProblem {
    /// The library is not there: no NVIDIA driver.
    #[error("no NVIDIA driver here ({NAME} does not load)")]
    NoDriver,
    /// A function is missing: a very old driver.
    #[error("{NAME} has no {0}: the driver is too old; update it")]
    Missing(&'static str),
    /// Neither NVML nor the CUDA driver reports how much memory a GPU has.
    #[error("NVML does not tell how much memory the GPU has, and {0}")]
    Untold(CudaProblem),
    /// NVML answered with an error.
    #[error("{call}: {error}")]
    Refused {
        /// The function.
        call: &'static str,
        /// NVML's answer.
        error: NvmlError,
    },
}

impl NvmlProblem {
    /// Whether NVML does not support the call for this GPU.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, NvmlProblem::Refused { error: NvmlError::NOT_SUPPORTED, .. })
    }
}

/// An initialised NVML. It is never shut down: vcuda's processes are short, and a shutdown would only cost time. A call
/// fails as [`NvmlProblem`] says.
pub struct Nvml {
    library: Library,
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nvml")
    }
}

/// A GPU, by NVML's handle.
#[derive(Clone, Copy, Debug)]
pub struct NvmlGpu(nvmlDevice_t);

/// Loads a typed function of `$nvml` by its name, which is also its type's.
macro_rules! function {
    ($nvml:expr, $name:ident) => {{
        // SAFETY: the symbol of this name has this prototype (driver-api, the one list of prototypes); the library stays
        // loaded as long as `$nvml`, which outlives the call that follows.
        let found = unsafe { $nvml.library.get::<fn_types::$name>(stringify!($name)) };
        found.map(|symbol| *symbol).map_err(|_| NvmlProblem::Missing(stringify!($name)))?
    }};
}

/// An NVML status, named for the call.
macro_rules! checked {
    ($name:ident, $status:expr) => {
        $status.map_err(|error| NvmlProblem::Refused { call: stringify!($name), error })
    };
}

mod readings;

pub use readings::Readings;

impl Nvml {
    /// Opens and initialises NVML.
    pub fn open() -> Result<Nvml, NvmlProblem> {
        Nvml::open_library(Path::new(NAME))
    }

    /// As [`Nvml::open`], with the library of this path: the simulated NVML, for example.
    pub fn open_library(path: &Path) -> Result<Nvml, NvmlProblem> {
        // SAFETY: loading NVML runs the driver's own initialisers, as every program with a GPU does.
        let library = unsafe { Library::new(path) }.map_err(|_| NvmlProblem::NoDriver)?;
        let nvml = Nvml { library };
        let init = function!(nvml, nvmlInit_v2);
        // SAFETY: takes nothing.
        checked!(nvmlInit_v2, unsafe { init() })?;
        Ok(nvml)
    }

    /// All GPUs, in NVML's order.
    pub fn gpus(&self) -> Result<Vec<NvmlGpu>, NvmlProblem> {
        let get_count = function!(self, nvmlDeviceGetCount_v2);
        let mut count: c_uint = 0;
        // SAFETY: `count` is valid for writing.
        checked!(nvmlDeviceGetCount_v2, unsafe { get_count(&raw mut count) })?;
        let by_index = function!(self, nvmlDeviceGetHandleByIndex_v2);
        let mut gpus = Vec::new();
        for index in 0..count {
            let mut device = nvmlDevice_t::default();
            // SAFETY: `device` is valid for writing.
            checked!(nvmlDeviceGetHandleByIndex_v2, unsafe { by_index(index, &raw mut device) })?;
            gpus.push(NvmlGpu(device));
        }
        Ok(gpus)
    }

    /// The GPU of this UUID, if NVML shows it.
    pub fn find(&self, uuid: &str) -> Result<Option<NvmlGpu>, NvmlProblem> {
        for gpu in self.gpus()? {
            if self.uuid(gpu)? == uuid {
                return Ok(Some(gpu));
            }
        }
        Ok(None)
    }

    /// The GPU's UUID: `GPU-...`.
    pub fn uuid(&self, gpu: NvmlGpu) -> Result<String, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetUUID);
        // SAFETY: `text` writes at most the length that is passed with it.
        text(|buffer, length| checked!(nvmlDeviceGetUUID, unsafe { get(gpu.0, buffer, length) }))
    }

    /// The GPU's marketing name.
    pub fn name(&self, gpu: NvmlGpu) -> Result<String, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetName);
        // SAFETY: `text` passes a buffer of the length that it names.
        text(|buffer, length| checked!(nvmlDeviceGetName, unsafe { get(gpu.0, buffer, length) }))
    }

    /// The driver's release, such as `550.163.01`.
    pub fn driver_version(&self) -> Result<String, NvmlProblem> {
        let get = function!(self, nvmlSystemGetDriverVersion);
        // SAFETY: `text` passes a buffer of the length that it names.
        text(|buffer, length| checked!(nvmlSystemGetDriverVersion, unsafe { get(buffer, length) }))
    }

    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub fn cuda_version(&self) -> Result<String, NvmlProblem> {
        let get = function!(self, nvmlSystemGetCudaDriverVersion_v2);
        let mut number: c_int = 0;
        // SAFETY: `number` is valid for writing.
        checked!(nvmlSystemGetCudaDriverVersion_v2, unsafe { get(&raw mut number) })?;
        Ok(format!("{}.{}", number / 1000, number % 1000 / 10))
    }

    /// Total and used bytes.
    pub fn memory(&self, gpu: NvmlGpu) -> Result<nvmlMemory_t, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetMemoryInfo);
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: `memory` is valid for writing.
        checked!(nvmlDeviceGetMemoryInfo, unsafe { get(gpu.0, &raw mut memory) })?;
        Ok(memory)
    }

    /// Sum of the memory of the compute processes on the GPU (bytes), as far as NVML reports it.
    pub fn used_by_processes(&self, gpu: NvmlGpu) -> Result<u64, NvmlProblem> {
        Ok(self.processes(gpu)?.values().flatten().sum())
    }

    /// Memory of the compute processes on the GPU (bytes; `None` if NVML does not tell it) by PID. None are listed if NVML does not
    /// support the call.
    pub fn processes(&self, gpu: NvmlGpu) -> Result<BTreeMap<u32, Option<u64>>, NvmlProblem> {
        let list = function!(self, nvmlDeviceGetComputeRunningProcesses_v3);
        let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut infos = vec![empty; 4096];
        let mut count: c_uint = 4096;
        // SAFETY: room for `count` records; NVML writes at most as many.
        let status = unsafe { list(gpu.0, &raw mut count, infos.as_mut_ptr()) };
        match checked!(nvmlDeviceGetComputeRunningProcesses_v3, status) {
            Err(problem) if problem.is_unsupported() => return Ok(BTreeMap::new()),
            answer => answer?,
        }
        let listed = infos.iter().take(count as usize);
        // NVML_VALUE_NOT_AVAILABLE is the largest number. A process may be listed twice, each time with all of its memory.
        let bytes = |info: &nvmlProcessInfo_t| Some(info.usedGpuMemory).filter(|bytes| *bytes != u64::MAX);
        Ok(listed.map(|info| (info.pid, bytes(info))).collect())
    }

    /// Memory that the driver keeps for itself (bytes); 0 if NVML does not report it.
    pub fn reserved_bytes(&self, gpu: NvmlGpu) -> u64 {
        let ask = || {
            let get = function!(self, nvmlDeviceGetMemoryInfo_v2);
            let mut memory =
                nvmlMemory_v2_t { version: nvmlMemory_v2, total: 0, reserved: 0, free: 0, used: 0 };
            // SAFETY: `memory` is valid for writing, and of the version that it names.
            checked!(nvmlDeviceGetMemoryInfo_v2, unsafe { get(gpu.0, &raw mut memory) })?;
            Ok::<_, NvmlProblem>(memory.reserved)
        };
        ask().unwrap_or(0)
    }

    /// The GPU's PCI address: domain, bus, device.
    pub fn pci_address(&self, gpu: NvmlGpu) -> Result<[u32; 3], NvmlProblem> {
        let get = function!(self, nvmlDeviceGetPciInfo_v3);
        let mut info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        // SAFETY: `info` is valid for writing.
        checked!(nvmlDeviceGetPciInfo_v3, unsafe { get(gpu.0, &raw mut info) })?;
        Ok([info.domain, info.bus, info.device])
    }

    /// Compute mode: which processes may make contexts on the GPU.
    pub fn compute_mode(&self, gpu: NvmlGpu) -> Result<nvmlComputeMode_t, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetComputeMode);
        let mut mode = nvmlComputeMode_t::DEFAULT;
        // SAFETY: `mode` is valid for writing.
        checked!(nvmlDeviceGetComputeMode, unsafe { get(gpu.0, &raw mut mode) })?;
        Ok(mode)
    }

    /// Whether the GPU is divided by MIG now.
    pub fn is_mig(&self, gpu: NvmlGpu) -> Result<bool, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetMigMode);
        let (mut current, mut pending): (c_uint, c_uint) = (0, 0);
        // SAFETY: both are valid for writing.
        checked!(nvmlDeviceGetMigMode, unsafe { get(gpu.0, &raw mut current, &raw mut pending) })?;
        Ok(current != 0)
    }
}

/// Text that NVML writes into a buffer, through `write`.
fn text(write: impl FnOnce(*mut c_char, c_uint) -> Result<(), NvmlProblem>) -> Result<String, NvmlProblem> {
    // NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE are 96, the longest of the three.
    let mut buffer = [0_u8; 96];
    write(buffer.as_mut_ptr().cast(), 96)?;
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}
