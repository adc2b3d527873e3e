//! Green contexts: parts of a GPU's multiprocessors. A green context holds a reference to its device's primary context,
//! which it may so make or end. Its memory is the primary context's (CUDA Driver API, "Green Contexts").
//!
//! "A green context can be current to only one thread at a time" (`cuGreenCtxCreate`): the shim makes none current. So
//! the context that stands for a green one is noted when that is made, with its device.

use vcuda_driver_api::prelude::*;

use super::context::primary_may_end;
use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::overhead::{self, DriverObject, ObjectKind};
use crate::memory::state;
use crate::runtime::shim::devices::{GreenContext, is_primary_active, primary_context};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuGreenCtxCreate`: as a context, refused if its memory does not fit.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    place: *mut CUgreenCtx,
    _description: CUdevResourceDesc,
    ordinal: CUdevice,
    _flags: c_uint,
) -> Handled {
    let shim = state::managed()?;
    let device = shim.device(ordinal).ok_or(Bypass::BadArgument)?;
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    let unmake = || {
        // SAFETY: just made, and no other code uses it yet.
        let _ = unsafe { real::cuGreenCtxDestroy(kept.take_back()) };
    };
    let had_primary = is_primary_active(ordinal);
    let kind = if had_primary { ObjectKind::Green } else { ObjectKind::GreenAndContext };
    let bytes = overhead::make_charged(device, kind, || call.real(), unmake)?;
    note(shim, kept.now(), ordinal);
    if let Some(primary) = primary_context(ordinal) {
        // The primary context may outlive this one, and be most of it.
        let object =
            if had_primary { DriverObject::Green(kept.now()) } else { DriverObject::Context(primary) };
        shim.accounts().overhead.note(device, primary, object, bytes);
    }
    Ok(())
}

/// Notes a green context, and the context that stands for it. To ask for that one "does not create a new independent
/// context and does not change the underlying context lifetime" (CUDA Driver API, `cuCtxFromGreenCtx`).
fn note(shim: &'static Shim, green: CUgreenCtx, ordinal: CUdevice) {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver has just made it, and writes a handle or nothing.
    let told = unsafe { real::cuCtxFromGreenCtx(&raw mut context, green) };
    shim.devices().forget_contexts();
    let mut greens = shim.greens.lock();
    let unnamed = GreenContext { ordinal, context: None };
    greens.insert(green, unnamed);
    if told.is_ok() {
        greens.stands_for(context, green);
    }
}

/// `cuGreenCtxDestroy`.
pub(super) fn destroy(call: &Call<'_, CUresult>, green: CUgreenCtx) -> Handled {
    let shim = state::managed()?;
    // Removed first: the handle may be reused at once.
    let known = shim.greens.lock().remove(green);
    let known = known.ok_or(Bypass::UnseenHandle)?;
    let destroy = || call.conclude(primary_may_end(call, known.ordinal, known.context));
    let status =
        shim.accounts().overhead.end(shim.device(known.ordinal), DriverObject::Green(green), destroy);
    if status.is_err() {
        shim.greens.lock().insert(green, known);
    }
    Ok(status?)
}

/// `cuCtxFromGreenCtx`: memory that is allocated in that context is the primary context's.
pub(super) fn context(call: &Call<'_, CUresult>, place: *mut CUcontext, green: CUgreenCtx) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if !place.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let context = unsafe { place.read() };
        shim.greens.lock().stands_for(context, green);
    }
    Ok(())
}
