//! Contexts. What the driver takes for a context is charged when it is made, and all that lived in it is given back
//! when it ends. A context that does not fit is not made: the answer is out-of-memory, and the process may go on, for
//! example on another GPU. Retaining an active primary context changes nothing.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::allocations::Allocation;
use crate::memory::overhead::{self, ContextCharges, DriverObject, ObjectKind};
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::shim::devices::{Device, current_context, is_primary_active, primary_context};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuCtxCreate`, `_v2`; `cuGLCtxCreate`, `_v2`.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _flags: c_uint,
    ordinal: CUdevice,
) -> Handled {
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
) -> Handled {
    created(call, context, ordinal)
}

/// `cuCtxCreate_v4`.
pub(super) fn create_v4(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _parameters: *mut CUctxCreateParams,
    _flags: c_uint,
    ordinal: CUdevice,
) -> Handled {
    created(call, context, ordinal)
}

/// `cuVDPAUCtxCreate`, `_v2`.
pub(super) fn create_vdpau(
    call: &Call<'_, CUresult>,
    context: *mut CUcontext,
    _flags: c_uint,
    ordinal: CUdevice,
    _vdpau: c_uint,
    _get: *mut c_void,
) -> Handled {
    created(call, context, ordinal)
}

/// `cuDevicePrimaryCtxRetain`.
pub(super) fn retain(call: &Call<'_, CUresult>, context: *mut CUcontext, ordinal: CUdevice) -> Handled {
    Bypass::Uncharged.when(is_primary_active(ordinal))?;
    made(call, context, ordinal, |_| {
        // SAFETY: gives back the reference that the driver has just given.
        let _ = unsafe { real::cuDevicePrimaryCtxRelease_v2(ordinal) };
    })
}

/// `cuCtxDestroy`, `_v2`.
pub(super) fn destroy(call: &Call<'_, CUresult>, context: CUcontext) -> Handled {
    ending(call, context, || true)
}

/// `cuCtxDetach`: destroys a context to which no other code attached; it is then no longer current.
pub(super) fn detach(call: &Call<'_, CUresult>, context: CUcontext) -> Handled {
    ending(call, context, || current_context() != context)
}

/// Ends a context. The shim itself never passes the handle to the driver: it may be wild, and afterwards it names none.
fn ending(call: &Call<'_, CUresult>, context: CUcontext, has_ended: impl Fn() -> bool) -> Handled {
    let shim = state::managed()?;
    let gone = shim.accounts().allocations.take_all(|allocation| lives_in(allocation, context));
    let streams = shim.accounts().pool_accounts.take_streams(&[context]);
    let device = shim.contexts.lock().remove(&context);
    let charged = shim.accounts().overhead.take_context(context);
    compute::context_closing(context);
    let status = call.real();
    let ended = status.is_ok() && has_ended();
    compute::context_closed(context, ended);
    shim.devices().forget_contexts();
    if ended {
        capture::context_ended(context);
        drop(streams);
        end(shim, device, &charged, gone);
    } else {
        if let Some(device) = device {
            shim.contexts.lock().insert(context, device);
        }
        shim.accounts().overhead.put_context_back(charged);
        shim.accounts().pool_accounts.put_streams_back(streams);
        shim.accounts().allocations.put_back(gone);
    }
    Ok(status?)
}

/// `cuDevicePrimaryCtxRelease`, `_v2`, `cuDevicePrimaryCtxReset`, `_v2`.
pub(super) fn release_primary(call: &Call<'_, CUresult>, ordinal: CUdevice) -> Handled {
    primary_may_end(call, ordinal, None)
}

/// Makes a call that may end the device's primary context, and that ends `green`, the context that stands for a green
/// one. All green contexts of the device end with the primary one.
pub(super) fn primary_may_end(
    call: &Call<'_, CUresult>,
    ordinal: CUdevice,
    green: Option<CUcontext>,
) -> Handled {
    let shim = state::managed()?;
    let device = shim.device(ordinal).ok_or(Bypass::BadArgument)?;
    let context = primary_context(ordinal).ok_or(Bypass::NoContext)?;
    let mut contexts = shim.greens.lock().on(ordinal);
    contexts.push(context);
    let streams = shim.accounts().pool_accounts.take_streams(&contexts);
    contexts.iter().copied().for_each(compute::context_closing);
    let status = call.real();
    let ended = !is_primary_active(ordinal);
    shim.devices().forget_contexts();
    for context in &contexts {
        let ended = ended || (status.is_ok() && green == Some(*context));
        compute::context_closed(*context, ended);
        if ended {
            capture::context_ended(*context);
        }
    }
    if ended {
        drop(streams);
    } else {
        shim.accounts().pool_accounts.put_streams_back(streams);
    }
    status?;
    if ended {
        shim.greens.lock().end(ordinal);
        let gone = shim
            .accounts()
            .allocations
            .take_all(|allocation| contexts.iter().any(|context| lives_in(allocation, *context)));
        shim.contexts.lock().remove(&context);
        let charged = shim.accounts().overhead.take_context(context);
        end(shim, Some(device), &charged, gone);
    }
    Ok(())
}

fn created(call: &Call<'_, CUresult>, context: *mut CUcontext, ordinal: CUdevice) -> Handled {
    made(call, context, ordinal, |context| {
        // SAFETY: just made, and no other code uses it yet. It is no longer current then.
        let _ = unsafe { real::cuCtxDestroy_v2(context) };
    })
}

/// Charges a context that was made. One that does not fit is undone, and its handle with it.
fn made(
    call: &Call<'_, CUresult>,
    place: *mut CUcontext,
    ordinal: CUdevice,
    unmake: impl FnOnce(CUcontext),
) -> Handled {
    let shim = state::managed()?;
    let device = shim.device(ordinal).ok_or(Bypass::BadArgument)?;
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    let bytes =
        overhead::make_charged(device, ObjectKind::Context, || call.real(), || unmake(kept.take_back()))?;
    let context = kept.now();
    shim.devices().forget_contexts();
    shim.greens.lock().forget(context);
    shim.contexts.lock().insert(context, device);
    shim.accounts().overhead.note(device, context, DriverObject::Context(context), bytes);
    Ok(())
}

/// Gives back what lived in a context that has ended. Memory that waited for its streams is given back before: the
/// driver's figure, with which the ledger is compared here, no longer includes it.
fn end(
    shim: &'static Shim,
    device: Option<&'static Device>,
    charged: &ContextCharges,
    gone: Vec<(u64, Allocation)>,
) {
    drop(gone);
    if let Some(device) = device {
        shim.accounts().overhead.ended(device, charged);
    }
}

/// Whether an allocation ends with the context. Memory of a pool belongs to its device and outlives the context.
fn lives_in(allocation: &Allocation, context: CUcontext) -> bool {
    allocation.context == context && allocation.kind.ends_with_context()
}
