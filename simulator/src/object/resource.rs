//! Multiprocessors for green contexts, and their descriptions.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind, Table};
use crate::object::process::process;

/// All descriptions, which "will remain valid for the lifetime of the process".
pub(crate) static DESCRIPTIONS: Table<Description> = Table::new(Kind::ResourceDescription);

/// Resources for a green context.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) ordinal: CUdevice,
    /// The multiprocessors; `None`: all (a description of work queues only).
    pub(crate) sms: Option<Sms>,
}

/// A range of multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sms {
    /// The first one's number.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

pub(crate) fn description(handle: CUdevResourceDesc) -> Result<Arc<Description>, CUerror> {
    process()?;
    DESCRIPTIONS.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}
