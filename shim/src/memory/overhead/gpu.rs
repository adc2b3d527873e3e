//! Memory in use on the GPU as a whole, before and after an object is made. It is used if there is no figure for this
//! process alone.

use vcuda_driver_api::prelude::*;

use super::nvml;
use crate::driver::real;
use crate::runtime::shim::Shim;
use crate::runtime::shim::devices::{Device, current_context, primary_context};

/// Memory in use on the GPU before an object is made.
#[derive(Debug)]
pub(super) struct UsageBefore {
    used_bytes: Option<u64>,
    /// The part of it that the tenant's ledger has, without this process's overhead.
    known_bytes: u64,
    /// NVML's handle, if NVML tells what is in use.
    handle: Option<nvmlDevice_t>,
    /// If NVML does not tell, a context on the device, in which the driver does.
    context: CUcontext,
}

impl UsageBefore {
    /// A GPU that is not read.
    pub(super) const UNREAD: Self =
        Self { used_bytes: None, known_bytes: 0, handle: None, context: CUcontext::NULL };

    /// Reads the GPU now. `reserved_bytes` are counted for the object that is about to be made. If NVML does not tell,
    /// a context of this process does.
    pub(super) fn read(device: &'static Device, handle: Option<nvmlDevice_t>, reserved_bytes: u64) -> Self {
        let mut before = Self::UNREAD;
        before.handle = handle.filter(|handle| nvml::gpu_used_bytes(*handle).is_some());
        if before.handle.is_none() {
            before.context = context_on(device);
        }
        before.known_bytes = device.besides_overhead_bytes().saturating_sub(reserved_bytes);
        before.used_bytes = before.now_bytes();
        before
    }

    /// Memory in use now, by all processes (bytes).
    fn now_bytes(&self) -> Option<u64> {
        match self.handle {
            Some(handle) => nvml::gpu_used_bytes(handle),
            None if self.context.is_null() => None,
            None => used_by_driver(self.context),
        }
    }

    /// Growth since then (bytes), without what the tenant's ledger attributes to other calls.
    pub(super) fn growth_bytes(&self, device: &Device) -> Option<u64> {
        let now_bytes = self.now_bytes()?.saturating_add(self.known_bytes);
        let known_bytes = device.besides_overhead_bytes();
        Some(now_bytes.saturating_sub(self.used_bytes?.saturating_add(known_bytes)))
    }

    /// Shrinkage since then (bytes).
    pub(super) fn shrinkage_bytes(&self) -> Option<u64> {
        Some(self.used_bytes?.saturating_sub(self.now_bytes()?))
    }
}

/// A context of this process on the device; null if none is known.
pub(super) fn context_on(device: &'static Device) -> CUcontext {
    let shim: &'static Shim = device.shim();
    let current = current_context();
    if !current.is_null() && shim.current_device().is_some_and(|own| own.ordinal == device.ordinal) {
        return current;
    }
    let known = {
        let contexts = shim.contexts.lock();
        contexts.iter().find_map(|(context, on)| (on.ordinal == device.ordinal).then_some(*context))
    };
    known.or_else(|| primary_context(device.ordinal)).unwrap_or(CUcontext::NULL)
}

/// Memory in use on the GPU of a context, by all processes (bytes), by the driver (`cuMemGetInfo`).
pub(super) fn used_by_driver(context: CUcontext) -> Option<u64> {
    let is_current = current_context() == context;
    if !is_current {
        // SAFETY: the driver judges the handle; what is pushed is popped below.
        unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes two numbers or nothing.
    let asked = unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    if !is_current {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push above.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    asked.ok()?;
    Some(total.saturating_sub(free) as u64)
}
