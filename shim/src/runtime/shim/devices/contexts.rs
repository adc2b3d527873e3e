//! Contexts: the current one, the device of any, and contexts that are made current for a while.

use core::marker::PhantomData;

use vcuda_driver_api::prelude::*;

use super::Device;
use crate::driver::real;
use crate::runtime::shim::Shim;

/// The ordinal of the current context's device; `None` without a context.
#[inline]
pub(crate) fn current_ordinal() -> Option<CUdevice> {
    let mut ordinal = 0;
    // SAFETY: the driver writes an ordinal or nothing.
    unsafe { real::cuCtxGetDevice(&raw mut ordinal) }.ok()?;
    Some(ordinal)
}

/// The device of a context, whether it is current or not; `None` if it is no context.
pub(crate) fn device_of_context(shim: &'static Shim, context: CUcontext) -> Option<&'static Device> {
    if context.is_null() {
        return None;
    }
    if context == current_context() {
        return shim.current_device();
    }
    let made_here = shim.contexts.lock().get(&context).copied();
    if made_here.is_some() {
        return made_here;
    }
    let green = shim.greens.lock().ordinal_of(context);
    if let Some(ordinal) = green {
        return shim.device(ordinal);
    }
    let _pushed = Pushed::make_current(context)?;
    shim.current_device()
}

/// A context that is current as long as this value lives. Then the previous one is current again.
#[derive(Debug)]
#[must_use = "the context is current until this is dropped"]
pub(crate) struct Pushed(PhantomData<*const ()>);

impl Pushed {
    /// Makes `context` current. `None` if the driver knows no such context.
    pub(crate) fn make_current(context: CUcontext) -> Option<Self> {
        // SAFETY: the driver judges the handle itself; what is pushed is popped again in `drop`.
        unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
        Some(Self(PhantomData))
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push of `make_current`, on the same thread: this type is not sent to others.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

/// The context that any thread may make current to query objects of `context`, which is on `device`. It is `context`
/// itself, or for a green context the device's primary one. A green context "can be current to only one thread at a
/// time" (CUDA Driver API, `cuGreenCtxCreate`), which is a thread of the application.
pub(crate) fn shared_context(shim: &Shim, context: CUcontext, device: &Device) -> CUcontext {
    if shim.contexts.lock().contains_key(&context) {
        return context;
    }
    // A context whose creation was not seen is a green one, as far as is known. Its device then has a primary
    // context.
    primary_context(device.ordinal).unwrap_or(context)
}

/// The device's primary context, if it is active.
pub(crate) fn primary_context(ordinal: CUdevice) -> Option<CUcontext> {
    if !is_primary_active(ordinal) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing; the reference is given back at once.
    unsafe { real::cuDevicePrimaryCtxRetain(&raw mut context, ordinal) }.ok()?;
    // SAFETY: gives back the reference taken above; the application holds its own.
    let _ = unsafe { real::cuDevicePrimaryCtxRelease_v2(ordinal) };
    Some(context)
}

/// Whether the primary context of this ordinal is active.
pub(crate) fn is_primary_active(ordinal: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver writes two numbers or nothing.
    let asked = unsafe { real::cuDevicePrimaryCtxGetState(ordinal, &raw mut flags, &raw mut active) };
    asked.is_ok() && active != 0
}

/// The context of a stream. Null for a default stream, which is the current context's, and if the driver does not
/// tell.
pub(crate) fn context_of_stream(stream: CUstream) -> CUcontext {
    let mut context = CUcontext::NULL;
    if stream.0 <= crate::runtime::stream::PER_THREAD {
        return context;
    }
    // SAFETY: the driver judges the handle itself and writes a context or nothing.
    let asked = unsafe { real::cuStreamGetCtx(stream, &raw mut context) };
    if asked.is_ok() { context } else { CUcontext::NULL }
}

/// Whether the driver was initialised in this process (`cuInit`), as far as it tells.
pub(crate) fn is_driver_initialised() -> bool {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing.
    let asked = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    asked != Err(CUerror::NOT_INITIALIZED)
}

/// The current context; null without one.
#[inline]
pub(crate) fn current_context() -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing.
    let asked = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    if asked.is_ok() { context } else { CUcontext::NULL }
}
