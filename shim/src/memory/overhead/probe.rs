//! Throw-away objects, made to measure.

use vcuda_driver_api::prelude::*;

use super::gpu;
use crate::driver::real;
use crate::hooks::own as hooked;
use crate::runtime::devices::{Device, Reserved};

/// A context of our own for a moment, current to no thread. Memory is reserved for it as long as it lives, so that it takes the
/// GPU over no quota (I7) once the container knows what a context takes.
#[derive(Debug)]
pub(super) struct Probe {
    context: CUcontext,
    #[expect(dead_code, reason = "held to be dropped, after the context has ended")]
    reserved: Reserved,
}

impl Probe {
    /// Makes one; nothing if the quota has no room for it, or the driver makes none.
    pub(super) fn make(device: &'static Device) -> Option<Self> {
        let reserved = device.reserve_if_it_fits(device.most_context_bytes(false))?;
        let mut context = CUcontext::NULL;
        // SAFETY: the driver writes a handle or nothing.
        unsafe { hooked::cuCtxCreate_v2(&raw mut context, 0, device.ordinal) }.ok()?;
        let mut popped = CUcontext::NULL;
        // SAFETY: the new context was made current to this thread; it is not to stay so.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
        Some(Self { context, reserved })
    }

    /// Its handle.
    pub(super) fn context(&self) -> CUcontext {
        self.context
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: a context of our own that nobody else knows.
        let _ = unsafe { hooked::cuCtxDestroy_v2(self.context) };
    }
}

/// What one more context takes of the GPU (bytes), with what neighbours did meanwhile; nothing if that cannot be had. Asked
/// by a context of this process.
pub(super) fn context_bytes(device: &'static Device) -> Option<u64> {
    let own = gpu::context_on(device);
    if own.is_null() {
        return None;
    }
    let before_bytes = gpu::used_by_driver(own)?;
    let probe = Probe::make(device)?;
    let after_bytes = gpu::used_by_driver(own)?;
    drop(probe);
    after_bytes.checked_sub(before_bytes).filter(|bytes| *bytes > 0)
}
