//! Contexts: what the driver takes for one is charged when it is made, and all that lived in it is given back when it
//! ends. Retaining a primary context that is active already changes nothing.

use vcuda_driver_api::prelude::*;

use crate::allocations::Allocation;
use crate::devices::{Device, current_context};
use crate::ffi::{Call, real};
use crate::shim::{self, Shim};
use crate::timing;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuCtxCreate`, `_v2`.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _flags: c_uint,
    ordinal: CUdevice,
) -> CUresult {
    created(call, context, ordinal)
}

/// `cuCtxCreate_v3`.
pub(super) fn create_v3(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _affinity: *mut CUexecAffinityParam,
    _affinities: c_int,
    _flags: c_uint,
    ordinal: CUdevice,
) -> CUresult {
    created(call, context, ordinal)
}

/// `cuCtxCreate_v4`.
pub(super) fn create_v4(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _parameters: *mut CUctxCreateParams,
    _flags: c_uint,
    ordinal: CUdevice,
) -> CUresult {
    created(call, context, ordinal)
}

/// `cuDevicePrimaryCtxRetain`.
pub(super) fn retain(call: &Call<'_, CUresult>, context: *mut CUcontext, ordinal: CUdevice) -> CUresult {
    if is_primary_active(ordinal) {
        call.real()
    } else {
        created(call, context, ordinal)
    }
}

/// `cuCtxDestroy`, `_v2`.
pub(super) fn destroy(call: &Call<'_, CUresult>, context: CUcontext) -> CUresult {
    ending(call, context, || true)
}

/// `cuCtxDetach`: destroys what nobody else attached to; it is then no longer current.
pub(super) fn detach(call: &Call<'_, CUresult>, context: CUcontext) -> CUresult {
    ending(call, context, || current_context() != context)
}

/// The handle is never shown to the driver but by the application: it may be wild, and afterwards it is nobody's.
fn ending(call: &Call<'_, CUresult>, context: CUcontext, has_ended: impl Fn() -> bool) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let gone = shim
        .allocations
        .take_all(|allocation| lives_in(allocation, context));
    let ordered = shim.holdings.ordered.take(context);
    timing::context_closing(context);
    let status = call.real();
    let ended = status.is_ok() && has_ended();
    timing::context_closed(context, ended);
    if ended {
        let device = shim.contexts.lock().remove(&context);
        end(shim, device, context, gone);
    } else {
        shim.holdings.ordered.put_back(ordered);
        shim.allocations.put_back(gone);
    }
    status
}

/// `cuDevicePrimaryCtxRelease`, `_v2`, `cuDevicePrimaryCtxReset`, `_v2`.
pub(super) fn release_primary(call: &Call<'_, CUresult>, ordinal: CUdevice) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let Some(device) = shim.device(ordinal) else {
        return call.real();
    };
    let Some(context) = primary(ordinal) else {
        return call.real();
    };
    let ordered = shim.holdings.ordered.take(context);
    timing::context_closing(context);
    let status = call.real();
    let ended = !is_primary_active(ordinal);
    timing::context_closed(context, ended);
    if !ended {
        shim.holdings.ordered.put_back(ordered);
    }
    status?;
    if ended {
        let gone = shim
            .allocations
            .take_all(|allocation| lives_in(allocation, context));
        end(shim, Some(device), context, gone);
    }
    Ok(())
}

fn created(call: &Call<'_, CUresult>, context: *mut CUcontext, ordinal: CUdevice) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let Some(device) = shim.device(ordinal).filter(|device| device.grant.is_some()) else {
        return call.real();
    };
    let before = shim.overhead.before(device);
    call.real()?;
    if !context.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let context = unsafe { context.read() };
        shim.contexts.lock().insert(context, device);
        shim.overhead.after(&before, context);
    }
    Ok(())
}

/// Gives back what lived in a context that has ended.
fn end(shim: &Shim, device: Option<&'static Device>, context: CUcontext, gone: Vec<(u64, Allocation)>) {
    drop(gone);
    if let Some(device) = device {
        shim.overhead.ended(device, context);
    }
}

/// Memory of a pool belongs to its device and outlives the context.
fn lives_in(allocation: &Allocation, context: CUcontext) -> bool {
    allocation.context == context && allocation.kind.ends_with_context()
}

/// The device's primary context, if it is active.
fn primary(ordinal: CUdevice) -> Option<CUcontext> {
    if !is_primary_active(ordinal) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing; the reference is given back at once.
    unsafe { super::real::cuDevicePrimaryCtxRetain(&raw mut context, ordinal) }.ok()?;
    // SAFETY: gives back the reference taken above; the application holds its own.
    let _ = unsafe { super::real::cuDevicePrimaryCtxRelease_v2(ordinal) };
    Some(context)
}

fn is_primary_active(ordinal: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver writes two numbers or nothing.
    let asked = unsafe { real::cuDevicePrimaryCtxGetState(ordinal, &raw mut flags, &raw mut active) };
    asked.is_ok() && active != 0
}
