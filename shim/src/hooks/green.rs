//! Green contexts: parts of a GPU's multiprocessors. One holds a reference of its device's primary context, which it may so
//! make or end, and whose memory is its memory (CUDA Driver API, "Green Contexts").
//!
//! "A green context can be current to only one thread at a time" (`cuGreenCtxCreate`): the shim makes none current. So the
//! context that stands for a green one is noted when that is made, and with it where it is.

use vcuda_driver_api::prelude::*;

use super::context::primary_may_end;
use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::overhead::{self, DriverObject, What};
use crate::memory::state;
use crate::runtime::devices::{GreenContext, is_primary_active, primary_context};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuGreenCtxCreate`: as a context, refused where what it takes does not fit.
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
    let what = if had_primary {
        What::Green
    } else {
        What::GreenAndContext
    };
    let bytes = overhead::take(device, what, || call.real(), unmake)?;
    note(shim, kept.now(), ordinal);
    if let Some(primary) = primary_context(ordinal) {
        // The primary context may outlive this one, and be most of it.
        let thing = if had_primary {
            DriverObject::Green(kept.now())
        } else {
            DriverObject::Context(primary)
        };
        shim.accounts().overhead.note(device, primary, thing, bytes);
    }
    Ok(())
}

/// Notes a green context, and what stands for it. That question "does not create a new independent context and does not
/// change the underlying context lifetime" (CUDA Driver API, `cuCtxFromGreenCtx`).
fn note(shim: &'static Shim, green: CUgreenCtx, ordinal: CUdevice) {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver has just made it, and writes a handle or nothing.
    let told = unsafe { real::cuCtxFromGreenCtx(&raw mut context, green) };
    shim.devices().forget_contexts();
    let mut greens = shim.greens.lock();
    let unnamed = GreenContext {
        ordinal,
        context: None,
    };
    greens.insert(green, unnamed);
    if told.is_ok() {
        greens.stands_for(context, green);
    }
}

/// `cuGreenCtxDestroy`.
pub(super) fn destroy(call: &Call<'_, CUresult>, green: CUgreenCtx) -> Handled {
    let shim = state::managed()?;
    // Taken out first: the handle may come back at once.
    let known = shim.greens.lock().remove(green);
    let known = known.ok_or(Bypass::UnseenHandle)?;
    let destroy = || call.conclude(primary_may_end(call, known.ordinal, known.context));
    let status =
        shim.accounts()
            .overhead
            .end(shim.device(known.ordinal), DriverObject::Green(green), destroy);
    if status.is_err() {
        shim.greens.lock().insert(green, known);
    }
    Ok(status?)
}

/// `cuCtxFromGreenCtx`: what is allocated in that context is the primary context's.
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
