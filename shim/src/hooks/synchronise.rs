//! Calls by which the application waits for the GPU. Pools then give back what they hold beyond their threshold (CUDA
//! Driver API, `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`), and memory freed in the order of a stream is free: the tenant is
//! credited. All launched work is done, so the next launch finds its stream idle ([`crate::compute`]). Without a share,
//! and without such memory, these hooks are idle.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute;
use crate::driver::{Call, Handled};
use crate::memory::pool_accounts;
use crate::memory::state;
use crate::runtime::limits;
use crate::runtime::shim;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// Whether nothing waits to be given back, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes() || (!pool_accounts::is_shrinking() && limits::is_idle())
}

/// `cuStreamSynchronize`.
pub(super) fn stream(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    Ok(compute::stream_drains(stream, || waited(call))?)
}

/// `cuEventSynchronize`.
pub(super) fn event(call: &Call<'_, CUresult>, _event: CUevent) -> Handled {
    Ok(compute::event_is_reached(|| waited(call))?)
}

/// `cuCtxSynchronize`.
pub(super) fn context(call: &Call<'_, CUresult>) -> Handled {
    let context = crate::runtime::shim::devices::current_context();
    Ok(compute::context_drains(context, || waited(call))?)
}

/// `cuCtxSynchronize_v2`.
pub(super) fn context_v2(call: &Call<'_, CUresult>, context: CUcontext) -> Handled {
    Ok(compute::context_drains(context, || waited(call))?)
}

fn waited(call: &Call<'_, CUresult>) -> CUresult {
    call.real()?;
    if let Some(shim) = state::get() {
        shim.accounts().pool_accounts.synchronised();
    }
    Ok(())
}
