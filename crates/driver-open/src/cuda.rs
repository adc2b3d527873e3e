//! The CUDA driver API, opened as most programs do: `dlopen` of `libcuda.so.1`, then `dlsym`. So a benchmark calls the
//! functions that an application calls.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::null_mut;

use libloading::Library;
use thiserror::Error;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUdriverProcAddressQueryResult, CUfunction, CUmodule, CUuuid, fn_types,
};

use crate::innermost;

const NAME: &str = "libcuda.so.1";

/// The driver cannot be used, or refused a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CudaProblem {
    /// The library is not there: no NVIDIA driver. Holds the loader's message.
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
        /// The driver's answer.
        error: CUerror,
    },
}

impl CudaProblem {
    /// Whether the driver's answer is `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, CudaProblem::Refused { error: CUerror::OUT_OF_MEMORY, .. })
    }
}

/// The loaded driver. It is never unloaded, as it may have started threads of its own. A call fails as [`CudaProblem`] says.
pub struct Cuda {
    library: ManuallyDrop<Library>,
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
        // loaded for good.
        let found = unsafe { $cuda.library.get::<fn_types::$name>(stringify!($name)) };
        found.map(|symbol| *symbol).map_err(|_| CudaProblem::Missing(stringify!($name)))?
    }};
}

/// A driver status, named for the call.
macro_rules! checked {
    ($name:ident, $status:expr) => {
        $status.map_err(|error| CudaProblem::Refused { call: stringify!($name), error })
    };
}

pub(crate) mod calls;
mod checkpoint;

impl Cuda {
    /// Loads the driver that the loader finds; nothing is initialised yet.
    ///
    /// # Errors
    /// [`CudaProblem::NoDriver`]: the library does not load.
    pub fn load() -> Result<Cuda, CudaProblem> {
        Cuda::load_from(Path::new(NAME))
    }

    /// As [`Cuda::load`], with the library at this path.
    pub fn load_from(path: &Path) -> Result<Cuda, CudaProblem> {
        // SAFETY: loading the driver runs its own initialisers, as every program with a GPU does.
        let library = unsafe { Library::new(path) };
        library
            .map(|library| Cuda { library: ManuallyDrop::new(library) })
            .map_err(|error| CudaProblem::NoDriver(innermost(&error)))
    }

    /// `cuInit`.
    pub fn init(&self) -> Result<(), CudaProblem> {
        let init = function!(self, cuInit);
        // SAFETY: takes a number only.
        checked!(cuInit, unsafe { init(0) })
    }

    /// Number of GPUs that the driver shows.
    pub fn device_count(&self) -> Result<c_int, CudaProblem> {
        let get = function!(self, cuDeviceGetCount);
        let mut count: c_int = 0;
        // SAFETY: `count` is valid for writing.
        checked!(cuDeviceGetCount, unsafe { get(&raw mut count) })?;
        Ok(count)
    }

    /// The GPU of this ordinal.
    pub fn device(&self, ordinal: c_int) -> Result<CUdevice, CudaProblem> {
        let get = function!(self, cuDeviceGet);
        let mut device: CUdevice = 0;
        // SAFETY: `device` is valid for writing.
        checked!(cuDeviceGet, unsafe { get(&raw mut device, ordinal) })?;
        Ok(device)
    }

    /// The GPU's UUID.
    pub fn uuid(&self, device: CUdevice) -> Result<[u8; 16], CudaProblem> {
        let get = function!(self, cuDeviceGetUuid);
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is valid for writing.
        checked!(cuDeviceGetUuid, unsafe { get(&raw mut uuid, device) })?;
        // C's `char` is signed on some machines.
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// The GPU's whole memory (bytes).
    pub fn total_memory(&self, device: CUdevice) -> Result<u64, CudaProblem> {
        let get = function!(self, cuDeviceTotalMem_v2);
        let mut total = 0_usize;
        // SAFETY: `total` is valid for writing.
        checked!(cuDeviceTotalMem_v2, unsafe { get(&raw mut total, device) })?;
        Ok(total as u64)
    }

    /// Makes the GPU's primary context current in this thread.
    pub fn enter(&self, device: CUdevice) -> Result<CUcontext, CudaProblem> {
        let retain = function!(self, cuDevicePrimaryCtxRetain);
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is valid for writing.
        checked!(cuDevicePrimaryCtxRetain, unsafe { retain(&raw mut context, device) })?;
        self.set_current(context)?;
        Ok(context)
    }

    /// Makes `context` current in this thread.
    pub fn set_current(&self, context: CUcontext) -> Result<(), CudaProblem> {
        let set = function!(self, cuCtxSetCurrent);
        // SAFETY: `context` came from `enter` and is never destroyed.
        checked!(cuCtxSetCurrent, unsafe { set(context) })
    }

    /// Free and total bytes in the current context.
    pub fn memory_info(&self) -> Result<(u64, u64), CudaProblem> {
        let get = function!(self, cuMemGetInfo_v2);
        let (mut free, mut total): (usize, usize) = (0, 0);
        // SAFETY: both are valid for writing.
        checked!(cuMemGetInfo_v2, unsafe { get(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates device memory.
    pub fn alloc(&self, bytes: u64) -> Result<CUdeviceptr, CudaProblem> {
        let alloc = function!(self, cuMemAlloc_v2);
        let mut address: CUdeviceptr = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: `address` is valid for writing.
        checked!(cuMemAlloc_v2, unsafe { alloc(&raw mut address, bytes) })?;
        Ok(address)
    }

    /// Frees device memory.
    pub fn free(&self, address: CUdeviceptr) -> Result<(), CudaProblem> {
        let free = function!(self, cuMemFree_v2);
        // SAFETY: the driver checks the address itself.
        checked!(cuMemFree_v2, unsafe { free(address) })
    }

    /// Loads PTX text and finds one of its entries.
    pub fn kernel(&self, ptx: &CStr, entry: &CStr) -> Result<CUfunction, CudaProblem> {
        let load = function!(self, cuModuleLoadData);
        let mut module = CUmodule::NULL;
        // SAFETY: `module` is valid for writing; PTX text ends with NUL.
        checked!(cuModuleLoadData, unsafe { load(&raw mut module, ptx.as_ptr().cast()) })?;
        let get = function!(self, cuModuleGetFunction);
        let mut function = CUfunction::NULL;
        // SAFETY: `function` is valid for writing; `module` was loaded above and is never unloaded.
        checked!(cuModuleGetFunction, unsafe { get(&raw mut function, module, entry.as_ptr()) })?;
        Ok(function)
    }

    /// Address at which `dlsym` finds `symbol`; `None` if it finds none.
    pub fn symbol_address(&self, symbol: &str) -> Option<usize> {
        // SAFETY: only the address is looked at; nothing is called.
        let found = unsafe { self.library.get::<*const c_void>(symbol) };
        // A symbol of pointer type *is* the address.
        found.ok().map(|symbol| (*symbol).addr())
    }

    /// Address that `cuGetProcAddress` gives a CUDA 12 program for the function of this base name.
    pub fn proc_address(&self, base: &str) -> Result<usize, CudaProblem> {
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
