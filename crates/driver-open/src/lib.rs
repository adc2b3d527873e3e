//! Safe functions by which vcuda's programs call NVIDIA's driver. The shim does not use them: it is loaded into programs
//! that open the driver themselves.
#![expect(unsafe_code, reason = "calls into C libraries")]

mod cuda;
mod library;
mod memory;
mod memory_limits;
mod nvml;

pub use cuda::calls::Calls;
pub use cuda::{Cuda, CudaProblem};
pub use library::library_path;
pub use memory::{GpuMemory, memory_of_gpus};
pub use memory_limits::{MemoryLimits, memory_limits, set_memory_limits};
pub use nvml::{Nvml, NvmlGpu, NvmlProblem, Readings};

/// Ends the process at once: no handler of the driver runs, which could wait for a call that does not end.
pub fn end_at_once(status: u8) -> ! {
    // SAFETY: the call has no preconditions and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Whether two of nvml-wrapper's devices are one GPU. Handles are compared, as a lost GPU cannot be asked for its UUID.
pub fn is_same_device(one: &nvml_wrapper::Device<'_>, other: &nvml_wrapper::Device<'_>) -> bool {
    // SAFETY: the handle is only compared.
    let one = unsafe { one.handle() };
    // SAFETY: as above.
    let other = unsafe { other.handle() };
    one == other
}

/// The loader's own message, which libloading wraps.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
