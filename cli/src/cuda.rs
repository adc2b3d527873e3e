//! The CUDA driver API, opened as most programs do: `dlopen` of `libcuda.so.1`, then `dlsym`. For the demo's tenants and
//! for the doctor, which look through the same door as the programs that they stand for.
#![expect(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr::null_mut;

use libloading::Library;
use thiserror::Error;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUdriverProcAddressQueryResult, CUfunction, CUmodule, CUuuid, fn_types,
};
use vcuda_region::GpuUuid;

const NAME: &str = "libcuda.so.1";

/// The driver cannot be used, or refused a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum CudaProblem {
    /// The library is not there: no NVIDIA driver. Holds the loader's words.
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

impl CudaProblem {
    /// Whether it is `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            CudaProblem::Refused {
                error: CUerror::OUT_OF_MEMORY,
                ..
            }
        )
    }
}

/// The loaded driver.
pub(crate) struct Cuda {
    library: Library,
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuda")
    }
}

/// A typed function of `$cuda` by its name, which is also its type's.
macro_rules! function {
    ($cuda:expr, $name:ident) => {{
        // SAFETY: the symbol of this name has this prototype (driver-api, the one list of prototypes); the library stays
        // loaded as long as `$cuda`, which outlives the call that follows.
        let found = unsafe { $cuda.library.get::<fn_types::$name>(stringify!($name)) };
        found.map(|symbol| *symbol).map_err(|_| CudaProblem::Missing(stringify!($name)))?
    }};
}

/// A driver status, named for the call.
macro_rules! checked {
    ($name:ident, $status:expr) => {
        $status.map_err(|error| CudaProblem::Refused {
            call: stringify!($name),
            error,
        })
    };
}

pub(crate) mod calls;

impl Cuda {
    /// Loads the driver; nothing is initialised yet.
    pub(crate) fn load() -> Result<Cuda, CudaProblem> {
        // SAFETY: loading the driver runs its own initialisers, as every program with a GPU does.
        let library = unsafe { Library::new(NAME) };
        library
            .map(|library| Cuda { library })
            .map_err(|error| CudaProblem::NoDriver(innermost(&error)))
    }

    /// `cuInit`.
    pub(crate) fn init(&self) -> Result<(), CudaProblem> {
        let init = function!(self, cuInit);
        // SAFETY: takes a number only.
        checked!(cuInit, unsafe { init(0) })
    }

    /// The GPU of this ordinal.
    pub(crate) fn device(&self, ordinal: c_int) -> Result<CUdevice, CudaProblem> {
        let get = function!(self, cuDeviceGet);
        let mut device: CUdevice = 0;
        // SAFETY: `device` is valid for writing.
        checked!(cuDeviceGet, unsafe { get(&raw mut device, ordinal) })?;
        Ok(device)
    }

    /// The GPU's UUID.
    pub(crate) fn uuid(&self, device: CUdevice) -> Result<GpuUuid, CudaProblem> {
        let get = function!(self, cuDeviceGetUuid);
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is valid for writing.
        checked!(cuDeviceGetUuid, unsafe { get(&raw mut uuid, device) })?;
        Ok(GpuUuid::from_bytes(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }

    /// Makes the GPU's primary context current in this thread.
    pub(crate) fn enter(&self, device: CUdevice) -> Result<CUcontext, CudaProblem> {
        let retain = function!(self, cuDevicePrimaryCtxRetain);
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is valid for writing.
        checked!(cuDevicePrimaryCtxRetain, unsafe {
            retain(&raw mut context, device)
        })?;
        self.set_current(context)?;
        Ok(context)
    }

    /// Makes `context` current in this thread.
    pub(crate) fn set_current(&self, context: CUcontext) -> Result<(), CudaProblem> {
        let set = function!(self, cuCtxSetCurrent);
        // SAFETY: `context` came from `enter` and is never destroyed.
        checked!(cuCtxSetCurrent, unsafe { set(context) })
    }

    /// Free and total bytes in the current context.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), CudaProblem> {
        let get = function!(self, cuMemGetInfo_v2);
        let (mut free, mut total): (usize, usize) = (0, 0);
        // SAFETY: both are valid for writing.
        checked!(cuMemGetInfo_v2, unsafe { get(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates device memory.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<CUdeviceptr, CudaProblem> {
        let alloc = function!(self, cuMemAlloc_v2);
        let mut address: CUdeviceptr = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: `address` is valid for writing.
        checked!(cuMemAlloc_v2, unsafe { alloc(&raw mut address, bytes) })?;
        Ok(address)
    }

    /// Frees device memory.
    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<(), CudaProblem> {
        let free = function!(self, cuMemFree_v2);
        // SAFETY: the driver checks the address itself.
        checked!(cuMemFree_v2, unsafe { free(address) })
    }

    /// Loads PTX text and finds one of its entries.
    pub(crate) fn kernel(&self, ptx: &CStr, entry: &CStr) -> Result<CUfunction, CudaProblem> {
        let load = function!(self, cuModuleLoadData);
        let mut module = CUmodule::NULL;
        // SAFETY: `module` is valid for writing; PTX text ends with NUL.
        checked!(cuModuleLoadData, unsafe {
            load(&raw mut module, ptx.as_ptr().cast())
        })?;
        let get = function!(self, cuModuleGetFunction);
        let mut function = CUfunction::NULL;
        // SAFETY: `function` is valid for writing; `module` was loaded above and is never unloaded.
        checked!(cuModuleGetFunction, unsafe {
            get(&raw mut function, module, entry.as_ptr())
        })?;
        Ok(function)
    }

    /// Where `dlsym` finds `symbol`.
    pub(crate) fn symbol_address(&self, symbol: &str) -> Option<usize> {
        // SAFETY: only the address is looked at; nothing is called.
        let found = unsafe { self.library.get::<*const c_void>(symbol) };
        // A symbol of pointer type *is* the address.
        found.ok().map(|symbol| (*symbol).addr())
    }

    /// Where `cuGetProcAddress` of a CUDA 12 program finds the function of this base name.
    pub(crate) fn proc_address(&self, base: &str) -> Result<usize, CudaProblem> {
        let get = function!(self, cuGetProcAddress_v2);
        let name = CString::new(base).unwrap_or_default();
        let mut address: *mut c_void = null_mut();
        let mut status = CUdriverProcAddressQueryResult::default();
        // SAFETY: `name` ends with NUL; `address` and `status` are valid for writing.
        let result = unsafe { get(name.as_ptr(), &raw mut address, 12_000, 0, &raw mut status) };
        checked!(cuGetProcAddress_v2, result)?;
        Ok(address as usize)
    }
}

/// The loader's own words: libloading wraps them.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
