//! Every name that the two libraries export: driver 550's, and what newer toolkits declare.
//!
//! From `data/`, sorted. A name need not have a prototype here: see [`crate::cuda::TYPED`] and
//! [`crate::nvml::TYPED`].

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Whether the driver library exports this name.
pub fn is_cuda_export(name: &str) -> bool {
    CUDA_EXPORTS.binary_search(&name).is_ok()
}

/// Whether the NVML library exports this name.
pub fn is_nvml_export(name: &str) -> bool {
    NVML_EXPORTS.binary_search(&name).is_ok()
}
