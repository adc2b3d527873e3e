//! The driver's own memory limits of cgroups, through an NVML that nvml-wrapper has opened and that knows nothing of them. Drivers
//! before 615 have none.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nvml_wrapper::Device;
use vcuda_driver_api::NvmlError;
use vcuda_driver_api::nvml::{
    NVML_DEVICE_MEMORY_LIMIT_MAX, fn_types, nvmlDevice_t, nvmlGetMemoryLimits_v1_t, nvmlSetMemoryLimits_v1_t,
};

/// Memory limits of a cgroup on a GPU (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// What is reserved for the cgroup; 0: nothing.
    pub soft_bytes: u64,
    /// What its processes can have.
    pub hard_bytes: u64,
}

impl MemoryLimits {
    /// No limit at all.
    pub const NONE: MemoryLimits = MemoryLimits { soft_bytes: 0, hard_bytes: NVML_DEVICE_MEMORY_LIMIT_MAX };
}

/// A typed function of the device's NVML; `FUNCTION_NOT_FOUND` where it is missing, as NVML itself answers.
macro_rules! function {
    ($device:expr, $name:ident) => {{
        // SAFETY: the symbol of this name has this prototype (driver-api, the one list of prototypes); the device borrows the NVML
        // whose library this is, so that it stays loaded during the call that follows.
        let found = unsafe {
            $device.nvml().lib().__library.get::<fn_types::$name>(concat!(stringify!($name), "\0").as_bytes())
        };
        found.map(|symbol| *symbol).map_err(|_| NvmlError::FUNCTION_NOT_FOUND)?
    }};
}

/// The limits of the cgroup with this directory.
///
/// # Errors
/// NVML's answer.
pub fn memory_limits(device: &Device<'_>, cgroup: &Path) -> Result<MemoryLimits, NvmlError> {
    let get = function!(device, nvmlDeviceGetMemoryLimits_v1);
    let path = c_string(cgroup)?;
    let mut limits = nvmlGetMemoryLimits_v1_t {
        nameSpace: path.as_ptr().cast::<c_char>(),
        softLimit: 0,
        hardLimit: 0,
        currentUsed: 0,
    };
    // SAFETY: `limits` is valid for writing, and its path a C string that outlives the call.
    unsafe { get(handle(device), &raw mut limits) }?;
    Ok(MemoryLimits { soft_bytes: limits.softLimit, hard_bytes: limits.hardLimit })
}

/// Sets the limits of the cgroup with this directory. The driver rounds them.
///
/// # Errors
/// NVML's answer.
pub fn set_memory_limits(device: &Device<'_>, cgroup: &Path, limits: MemoryLimits) -> Result<(), NvmlError> {
    let set = function!(device, nvmlDeviceSetMemoryLimits_v1);
    let path = c_string(cgroup)?;
    let limits = nvmlSetMemoryLimits_v1_t {
        nameSpace: path.as_ptr().cast::<c_char>(),
        softLimit: limits.soft_bytes,
        hardLimit: limits.hard_bytes,
    };
    // SAFETY: `limits` is valid for reading, and its path a C string that outlives the call.
    unsafe { set(handle(device), &raw const limits) }
}

fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: the handle is only passed back to the NVML that it came from, which the device borrows.
    let handle = unsafe { device.handle() };
    nvmlDevice_t(handle.addr())
}

fn c_string(path: &Path) -> Result<CString, NvmlError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NvmlError::INVALID_ARGUMENT)
}
