//! The CUDA driver API and NVML as data: types, open result codes, one declared list of functions.
//!
//! Everything is a fact of the C interface: names, prototypes, values and layouts as CUDA 13.5 and NVML 13 declare
//! them (and as older versions declared what is gone from the newest). There is no behaviour here.
//!
//! - [`result`]: [`CUresult`], [`nvmlReturn_t`]. Codes are open: an unknown number is a valid error.
//! - [`cuda`]: handles, structures, values; its `functions/` hold **the** list of prototypes.
//! - [`nvml`]: the same for NVML.
//! - [`names`]: every name that a driver library exports, typed here or not.
//! - [`lookup`]: what `cuGetProcAddress` answers.
//!
//! A prototype is written once. Macros hand it on:
//!
//! - `signature!(cuMemAlloc_v2, callback! { anything })` expands to
//!   `callback! { { anything } cuMemAlloc_v2 (dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult }`;
//! - `cuda_functions!(callback! { anything })` and `nvml_functions!(callback! { anything })` expand to
//!   `callback! { { anything } name (args) -> Result; name (args) -> Result; ... }`.
//!
//! Types stand in a prototype by their plain names. So the place of use needs
//! `use vcuda_driver_api::{cuda::*, nvml::*, result::*}` and `use std::ffi::{c_char, c_int, c_uint, c_void}`, or
//! [`prelude`], which has all of them. [`cuda::fn_types`] and [`nvml::fn_types`] hold the function pointer types.
#![forbid(unsafe_code)]

#[macro_use]
mod declare;

pub mod cuda;
pub mod lookup;
pub mod names;
pub mod nvml;
pub mod result;

pub use result::{CUerror, CUresult, NvmlError, Status, nvmlReturn_t};

/// All names that a prototype of `signature!` mentions.
#[expect(ambiguous_glob_reexports, reason = "`TYPED` and `fn_types` are reached through their modules")]
pub mod prelude {
    pub use crate::cuda::*;
    pub use crate::nvml::*;
    pub use crate::result::*;
    pub use std::ffi::{c_char, c_int, c_uint, c_void};
}
