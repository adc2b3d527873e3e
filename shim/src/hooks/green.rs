//! Green contexts: parts of a GPU's multiprocessors. One holds a reference of its device's primary context, which it may so
//! make or end, and whose memory is its memory (CUDA Driver API, "Green Contexts").
//!
//! "A green context can be current to only one thread at a time" (`cuGreenCtxCreate`): the shim makes none current. So the
//! context that stands for a green one is noted when that is made, and with it where it is.

use std::collections::HashMap;

use vcuda_driver_api::prelude::*;

use super::context::{is_primary_active, primary, primary_may_end};
use super::own as hooked;
use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::overhead::{self, DriverObject, What};
use crate::runtime::shim::{self, Shim};

/// What the table must know of these handlers.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// The green contexts of this process.
#[derive(Debug, Default)]
pub(crate) struct Greens {
    known: HashMap<CUgreenCtx, Green>,
    /// Contexts that stand for green ones, and their devices: what is allocated in them is the primary context's, and stays
    /// when the green one ends.
    contexts: HashMap<CUcontext, CUdevice>,
}

/// A green context.
#[derive(Debug, Clone, Copy)]
struct Green {
    ordinal: CUdevice,
    /// What stands for it, if the driver told.
    context: Option<CUcontext>,
}

impl Greens {
    /// The device of a context that stands for a green one, or did.
    pub(crate) fn ordinal_of(&self, context: CUcontext) -> Option<CUdevice> {
        self.contexts.get(&context).copied()
    }

    /// The contexts that stand for green ones of the device, or did.
    pub(super) fn on(&self, ordinal: CUdevice) -> Vec<CUcontext> {
        let its = self.contexts.iter().filter(|(_, on)| **on == ordinal);
        its.map(|(context, _)| *context).collect()
    }

    /// The device's primary context has ended, and all that stood for green ones with it.
    pub(super) fn end(&mut self, ordinal: CUdevice) {
        self.contexts.retain(|_, on| *on != ordinal);
    }

    /// A handle stands for a context of its own now.
    pub(super) fn forget(&mut self, context: CUcontext) {
        self.contexts.remove(&context);
    }

    fn stands_for(&mut self, context: CUcontext, green: CUgreenCtx) {
        if let Some(known) = self.known.get_mut(&green) {
            known.context = Some(context);
            self.contexts.insert(context, known.ordinal);
        }
    }
}

/// `cuGreenCtxCreate`: as a context, refused where what it takes does not fit.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    place: *mut CUgreenCtx,
    _description: CUdevResourceDesc,
    ordinal: CUdevice,
    _flags: c_uint,
) -> Handled {
    let shim = shim::managed()?;
    let device = shim.device(ordinal).ok_or(Bypass::BadArgument)?;
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    let unmake = || {
        // SAFETY: just made, and nobody uses it yet.
        let _ = unsafe { hooked::cuGreenCtxDestroy(kept.take_back()) };
    };
    let had_primary = is_primary_active(ordinal);
    let what = if had_primary {
        What::Green
    } else {
        What::GreenAndContext
    };
    let bytes = overhead::take(device, what, || call.real(), unmake)?;
    note(shim, kept.now(), ordinal);
    if let Some(primary) = primary(ordinal) {
        // The primary context may outlive this one, and be most of it.
        let thing = if had_primary {
            DriverObject::Green(kept.now())
        } else {
            DriverObject::Context(primary)
        };
        shim.overhead.note(device, primary, thing, bytes);
    }
    Ok(())
}

/// Notes a green context, and what stands for it. That question "does not create a new independent context and does not
/// change the underlying context lifetime" (CUDA Driver API, `cuCtxFromGreenCtx`).
fn note(shim: &'static Shim, green: CUgreenCtx, ordinal: CUdevice) {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver has just made it, and writes a handle or nothing.
    let told = unsafe { hooked::cuCtxFromGreenCtx(&raw mut context, green) };
    shim.devices().forget_contexts();
    let mut greens = shim.greens.lock();
    let unnamed = Green {
        ordinal,
        context: None,
    };
    greens.known.insert(green, unnamed);
    if told.is_ok() {
        greens.stands_for(context, green);
    }
}

/// `cuGreenCtxDestroy`.
pub(super) fn destroy(call: &Call<'_, CUresult>, green: CUgreenCtx) -> Handled {
    let shim = shim::managed()?;
    // Taken out first: the handle may come back at once.
    let known = shim.greens.lock().known.remove(&green);
    let known = known.ok_or(Bypass::UnseenHandle)?;
    let destroy = || call.conclude(primary_may_end(call, known.ordinal, known.context));
    let status = shim
        .overhead
        .end(shim.device(known.ordinal), DriverObject::Green(green), destroy);
    if status.is_err() {
        shim.greens.lock().known.insert(green, known);
    }
    Ok(status?)
}

/// `cuCtxFromGreenCtx`: what is allocated in that context is the primary context's.
pub(super) fn context(call: &Call<'_, CUresult>, place: *mut CUcontext, green: CUgreenCtx) -> Handled {
    let shim = shim::managed()?;
    call.real()?;
    if !place.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let context = unsafe { place.read() };
        shim.greens.lock().stands_for(context, green);
    }
    Ok(())
}
