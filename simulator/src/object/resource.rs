//! Multiprocessors that green contexts are made of, and descriptions of them.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind, Table};
use crate::object::process::process;

/// Descriptions; "will remain valid for the lifetime of the process".
pub(crate) static DESCRIPTIONS: Table<Description> = Table::new(Kind::ResourceDescription);

/// Resources that a green context will have.
#[derive(Debug)]
pub(crate) struct Description {
    /// On this device.
    pub(crate) ordinal: CUdevice,
    /// The multiprocessors; none are all (a description of work queues only).
    pub(crate) sms: Option<Sms>,
}

/// A run of multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sms {
    /// The first one's number.
    pub(crate) first: u32,
    /// Number of multiprocessors.
    pub(crate) count: u32,
}

/// The description behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) fn description(handle: CUdevResourceDesc) -> Result<Arc<Description>, CUerror> {
    process()?;
    DESCRIPTIONS.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}
