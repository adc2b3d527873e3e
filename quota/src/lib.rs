//! What a tenant may use of one GPU: memory, GPU time, and how it competes. Declared once for every crate.
//!
//! [`Quota`] is what a person or Kubernetes asks for; [`DeviceConfig`] is what that means in the file `limits`.
#![forbid(unsafe_code)]

mod config;
mod quota;

pub use config::{DeviceConfig, NO_MEMORY_LIMIT, Policy, Priority};
pub use quota::Quota;
