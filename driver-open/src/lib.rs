//! How vcuda's programs open NVIDIA's driver: calls of its C functions behind safe ones. The shim has its own way, as it is
//! loaded into programs that have opened the driver.
//!
//! So far: how much memory the GPUs have, as the CUDA driver says. NVML does not tell that of GPUs that share their memory with
//! the processor (`NVML_ERROR_NOT_SUPPORTED` on a GB10: nvtop issue 466).
#![expect(unsafe_code, reason = "calls into a C library")]

use std::ffi::c_int;
use std::path::Path;

use libloading::Library;
use thiserror::Error;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::{CUdevice, CUuuid, fn_types};

const NAME: &str = "libcuda.so.1";

/// Why the driver does not tell.
#[derive(Debug, Error)]
pub enum Problem {
    /// The library does not load. Holds the loader's words.
    #[error("{NAME} does not load: {0}")]
    NoDriver(String),
    /// A function is missing: a very old driver.
    #[error("{NAME} has no {0}: the driver is too old; update it")]
    Missing(&'static str),
    /// The driver answered with an error.
    #[error("{call}: {error}")]
    Refused {
        /// The function.
        call: &'static str,
        /// What it answered.
        error: CUerror,
    },
}

/// A GPU as the CUDA driver shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its UUID (`cuDeviceGetUuid`).
    pub uuid: [u8; 16],
    /// All of its memory (`cuDeviceTotalMem`), in bytes.
    pub total_bytes: u64,
}

/// A typed function of a library by its name, which is also its type's.
macro_rules! function {
    ($library:expr, $name:ident) => {{
        // SAFETY: the symbol of this name has this prototype (driver-api, the one list of prototypes); the library stays
        // loaded until after the last call.
        let found = unsafe { $library.get::<fn_types::$name>(stringify!($name)) };
        found.map(|symbol| *symbol).map_err(|_| Problem::Missing(stringify!($name)))?
    }};
}

/// A driver status, named for the call.
macro_rules! checked {
    ($name:ident, $status:expr) => {
        $status.map_err(|error| Problem::Refused {
            call: stringify!($name),
            error,
        })
    };
}

/// The GPUs that the CUDA driver shows, with their memory. Initialises the driver in this process, makes no context.
///
/// # Errors
/// There is no driver, or it refuses; `library` is where it lies, if not where the loader finds it.
pub fn memory_of_gpus(library: Option<&Path>) -> Result<Vec<GpuMemory>, Problem> {
    let path = library.unwrap_or(Path::new(NAME));
    // SAFETY: loading the driver runs its own initialisers, as every program with a GPU does.
    let library = unsafe { Library::new(path) }.map_err(|error| Problem::NoDriver(innermost(&error)))?;
    // Never unloaded: the driver may have started threads of its own.
    let library = std::mem::ManuallyDrop::new(library);
    let init = function!(library, cuInit);
    // SAFETY: takes a number only.
    checked!(cuInit, unsafe { init(0) })?;
    let get_count = function!(library, cuDeviceGetCount);
    let mut count: c_int = 0;
    // SAFETY: `count` is valid for writing.
    checked!(cuDeviceGetCount, unsafe { get_count(&raw mut count) })?;
    (0..count).map(|ordinal| memory_of(&library, ordinal)).collect()
}

fn memory_of(library: &Library, ordinal: c_int) -> Result<GpuMemory, Problem> {
    let get = function!(library, cuDeviceGet);
    let mut device: CUdevice = 0;
    // SAFETY: `device` is valid for writing.
    checked!(cuDeviceGet, unsafe { get(&raw mut device, ordinal) })?;
    let get_uuid = function!(library, cuDeviceGetUuid);
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is valid for writing.
    checked!(cuDeviceGetUuid, unsafe { get_uuid(&raw mut uuid, device) })?;
    let get_total = function!(library, cuDeviceTotalMem_v2);
    let mut total = 0_usize;
    // SAFETY: `total` is valid for writing.
    checked!(cuDeviceTotalMem_v2, unsafe { get_total(&raw mut total, device) })?;
    Ok(GpuMemory {
        // C's `char` is signed on some machines.
        uuid: uuid.bytes.map(|byte| byte.to_ne_bytes()[0]),
        total_bytes: total as u64,
    })
}

/// The loader's own words: libloading wraps them.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
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
