//! Memory of the GPUs, as the CUDA driver reports it. NVML does not report it for a GPU that shares its memory with the
//! processor (`NVML_ERROR_NOT_SUPPORTED` on a GB10: nvtop issue 466).

use std::path::Path;

use crate::cuda::{Cuda, CudaProblem};

/// A GPU as the CUDA driver shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// UUID of the GPU (`cuDeviceGetUuid`).
    pub uuid: [u8; 16],
    /// The GPU's whole memory (`cuDeviceTotalMem`), in bytes.
    pub total_bytes: u64,
}

/// The GPUs that the CUDA driver shows, with their memory. Initialises the driver in this process, but makes no context.
/// `library`: the driver's path, or None for the library that the loader finds.
///
/// # Errors
/// The driver does not load, or refuses a call.
pub fn memory_of_gpus(library: Option<&Path>) -> Result<Vec<GpuMemory>, CudaProblem> {
    let cuda = library.map_or_else(Cuda::load, Cuda::load_from)?;
    cuda.init()?;
    let memory_of = |ordinal| {
        let device = cuda.device(ordinal)?;
        Ok(GpuMemory { uuid: cuda.uuid(device)?, total_bytes: cuda.total_memory(device)? })
    };
    (0..cuda.device_count()?).map(memory_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_by_the_loader() {
        let problem = memory_of_gpus(Some(Path::new("/nowhere/libcuda.so.1"))).unwrap_err();
        assert!(problem.to_string().contains("/nowhere/libcuda.so.1"), "{problem}");
    }
}
