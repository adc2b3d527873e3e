//! Primary contexts of devices (CUDA Driver API, "Primary Context Management").

use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::object::context::Context;
use crate::object::device::Device;
use crate::object::process::process;

#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Number of retains without release.
    pub(crate) retained: u32,
    /// Flags for the next context.
    pub(crate) flags: u32,
    pub(crate) context: Option<Arc<Context>>,
    /// Handle, the same for all contexts of the device; 0 before the first.
    pub(crate) handle: usize,
}

/// State of a device's primary context.
pub(crate) fn primary(device: &Device) -> Result<&'static Mutex<Primary>, CUerror> {
    static PRIMARIES: OnceCell<Vec<Mutex<Primary>>> = OnceCell::new();
    let devices = &process()?.devices;
    let all = PRIMARIES.get_or_init(|| devices.iter().map(|_| Mutex::default()).collect());
    let index = usize::try_from(device.ordinal).map_err(|_| CUerror::INVALID_DEVICE)?;
    all.get(index).ok_or(CUerror::INVALID_DEVICE)
}
