//! Memory of the GPUs, as the CUDA driver says. NVML does not tell that of GPUs that share their memory with the processor
//! (`NVML_ERROR_NOT_SUPPORTED` on a GB10: nvtop issue 466).

use std::path::Path;

use crate::cuda::{Cuda, CudaProblem};

/// A GPU as the CUDA driver shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its UUID (`cuDeviceGetUuid`).
    pub uuid: [u8; 16],
    /// All of its memory (`cuDeviceTotalMem`), in bytes.
    pub total_bytes: u64,
}

/// The GPUs that the CUDA driver shows, with their memory. Initialises the driver in this process, makes no context.
///
/// # Errors
/// There is no driver, or it refuses; `library` is where it lies, if not where the loader finds it.
pub fn memory_of_gpus(library: Option<&Path>) -> Result<Vec<GpuMemory>, CudaProblem> {
    let cuda = library.map_or_else(Cuda::load, Cuda::load_from)?;
    cuda.init()?;
    let memory_of = |ordinal| {
        let device = cuda.device(ordinal)?;
        Ok(GpuMemory {
            uuid: cuda.uuid(device)?,
            total_bytes: cuda.total_memory(device)?,
        })
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
