//! Green contexts: parts of a GPU's multiprocessors. One holds a reference of its device's primary context, which it may so
//! make or end, and whose memory is its memory (CUDA Driver API, "Green Contexts").

use std::collections::HashMap;

use vcuda_driver_api::prelude::*;

use super::context::{is_primary_active, primary, primary_may_end};
use super::real as hooked;
use crate::ffi::Call;
use crate::ffi::peek::Kept;
use crate::overhead::{self, Thing, What};
use crate::shim;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// The green contexts of this process.
#[derive(Debug, Default)]
pub(crate) struct Greens {
    known: HashMap<CUgreenCtx, CUdevice>,
    /// Contexts that stand for green ones, and their devices: what is allocated in them is the primary context's, and stays
    /// when the green one ends.
    contexts: HashMap<CUcontext, CUdevice>,
}

impl Greens {
    /// The device's primary context has ended. Returns the contexts that stood for green ones there.
    pub(super) fn end(&mut self, ordinal: CUdevice) -> Vec<CUcontext> {
        let ended = self.contexts.extract_if(|_, on| *on == ordinal);
        ended.map(|(context, _)| context).collect()
    }

    /// A handle stands for a context of its own now.
    pub(super) fn forget(&mut self, context: CUcontext) {
        self.contexts.remove(&context);
    }
}

/// `cuGreenCtxCreate`: as a context, refused where what it takes does not fit.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    place: *mut CUgreenCtx,
    _description: CUdevResourceDesc,
    ordinal: CUdevice,
    _flags: c_uint,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let Some((device, kept)) = shim.device(ordinal).zip(Kept::at(place)) else {
        return call.real();
    };
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
    shim.greens.lock().known.insert(kept.now(), ordinal);
    if let Some(primary) = primary(ordinal) {
        // The primary context may outlive this one, and be most of it.
        let thing = if had_primary {
            Thing::Green(kept.now())
        } else {
            Thing::Context(primary)
        };
        shim.overhead.note(device, primary, thing, bytes);
    }
    Ok(())
}

/// `cuGreenCtxDestroy`.
pub(super) fn destroy(call: &Call<'_, CUresult>, green: CUgreenCtx) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    // Taken out first: the handle may come back at once.
    let Some(ordinal) = shim.greens.lock().known.remove(&green) else {
        return call.real();
    };
    let destroy = || primary_may_end(call, ordinal);
    let status = shim
        .overhead
        .end(shim.device(ordinal), Thing::Green(green), destroy);
    if status.is_err() {
        shim.greens.lock().known.insert(green, ordinal);
    }
    status
}

/// `cuCtxFromGreenCtx`: what is allocated in that context is the primary context's.
pub(super) fn context(call: &Call<'_, CUresult>, place: *mut CUcontext, green: CUgreenCtx) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    call.real()?;
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just written a handle here.
    let context = unsafe { place.read() };
    let mut greens = shim.greens.lock();
    if let Some(ordinal) = greens.known.get(&green).copied() {
        greens.contexts.insert(context, ordinal);
    }
    Ok(())
}
