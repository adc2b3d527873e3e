//! NVML: handles, structures, values, and the list of prototypes.
//!
//! Source: NVML API reference. Spelling is NVML's.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "NVML's spelling")]

mod codes;
mod constants;
mod functions;
mod structs;

pub use codes::*;
pub use constants::*;
pub use functions::{TYPED, fn_types};
pub use structs::*;

use crate::result::nvmlReturn_t;

handles! {
    /// A device.
    nvmlDevice_t
    /// A set of events to wait for.
    nvmlEventSet_t
}

/// The newest UUID structure.
pub type nvmlUUID_t = nvmlUUID_v1_t;
/// The newest extended PCI address.
pub type nvmlPciInfoExt_t = nvmlPciInfoExt_v1_t;
/// The newest list of processes.
pub type nvmlProcessDetailList_t = nvmlProcessDetailList_v1_t;
/// The newest list of utilisation samples.
pub type nvmlProcessesUtilizationInfo_t = nvmlProcessesUtilizationInfo_v1_t;
/// The newest temperature structure.
pub type nvmlTemperature_t = nvmlTemperature_v1_t;
/// A process, its memory in bytes and its MIG instance, as version 3 of the calls names it.
pub type nvmlProcessInfo_t = nvmlProcessInfo_v2_t;
