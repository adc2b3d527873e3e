//! Access of vcuda's programs to NVIDIA's driver: calls of its C functions behind safe ones. The shim has its own way, as
//! it is loaded into programs that have opened the driver.
#![expect(unsafe_code, reason = "calls into C libraries")]

mod cuda;
mod memory;
mod nvml;

pub use cuda::calls::Calls;
pub use cuda::{Cuda, CudaProblem};
pub use memory::{GpuMemory, memory_of_gpus};
pub use nvml::{Nvml, NvmlGpu, NvmlProblem};

/// Whether two of nvml-wrapper's devices are one GPU, by their handles: a GPU that has just been lost cannot be asked who it is.
#[must_use]
pub fn is_same_device(one: &nvml_wrapper::Device<'_>, other: &nvml_wrapper::Device<'_>) -> bool {
    // SAFETY: the handle is compared and goes nowhere.
    let one = unsafe { one.handle() };
    // SAFETY: as above.
    let other = unsafe { other.handle() };
    one == other
}

/// The loader's own words: libloading wraps them.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
