//! Quota of a tenant on one GPU: memory, GPU time, and its competition with others. Declared once for every crate.
//!
//! | type | what it is |
//! |---|---|
//! | [`Quota`] | a quota as the command line, a pod or the manager states it |
//! | [`QuotaChange`] | the parts of a quota that a command line or a pod names; [`Quota::merge`] puts them into a quota |
//! | [`Policy`], [`Priority`], [`WEIGHTS`] | how tenants compete for GPU time (docs/policies.md) |
//! | [`MemorySize`], [`CoreShare`] | memory and GPU time as people type and read them |
//! | [`DeviceConfig`] | the form of a quota in the file `limits` |
//!
//! The feature `serde` reads and writes quotas as JSON or TOML, the feature `pods` has the requests of pods ([`pods`]), the feature `time` reads lengths of time. Without
//! them the crate depends on nothing, as the shim needs.
#![forbid(unsafe_code)]

mod competition;
mod config;
#[cfg(feature = "pods")]
pub mod pods;
mod quantity;
mod quota;
#[cfg(feature = "time")]
mod time;

pub use competition::{Policy, Priority, WEIGHTS, parse_weight};
pub use config::{DeviceConfig, NO_MEMORY_LIMIT};
pub use quantity::{CoreShare, MemorySize, ParseError};
pub use quota::{Contradiction, Quota, QuotaChange};
#[cfg(feature = "time")]
pub use time::parse_time;
