//! The application waits for the GPU: at that moment pools give back what they hold beyond their threshold (CUDA Driver
//! API, `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`), and what was freed in the order of a stream is free. So the container is
//! credited then. Without such memory on its way these hooks are idle.

use vcuda_driver_api::prelude::*;

use crate::ffi::Call;
use crate::{holdings, shim};

/// Nothing is on its way back: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    !holdings::is_ebbing() || shim::passes()
}

/// `cuStreamSynchronize`, `_ptsz`.
pub(super) fn stream(call: &Call<'_, CUresult>, _stream: CUstream) -> CUresult {
    waited(call)
}

/// `cuEventSynchronize`.
pub(super) fn event(call: &Call<'_, CUresult>, _event: CUevent) -> CUresult {
    waited(call)
}

/// `cuCtxSynchronize`.
pub(super) fn context(call: &Call<'_, CUresult>) -> CUresult {
    waited(call)
}

/// `cuCtxSynchronize_v2`.
pub(super) fn context_v2(call: &Call<'_, CUresult>, _context: CUcontext) -> CUresult {
    waited(call)
}

fn waited(call: &Call<'_, CUresult>) -> CUresult {
    call.real()?;
    if let Some(shim) = shim::get() {
        shim.holdings.synchronised();
    }
    Ok(())
}
