//! Creation and end of contexts, with primary and green ones.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::object::context::{CONTEXTS, Context};
use crate::object::device::Device;
use crate::object::green::{self, GREENS, Green};
use crate::object::memory::{self, Kind};
use crate::object::primary::{Primary, primary};
use crate::object::process::process;
use crate::object::resource::Sms;
use crate::object::{array, backing, external, host, ipc, library, module};
use crate::semantics::stream;

/// Ends a context and all that is in it: memory, modules, streams, events ("destroys and cleans up all resources
/// associated with the context"). Waits for its work first (`cuCtxDestroy`: "it is the responsibility of the calling
/// function to ensure that no API call issues using ctx while cuCtxDestroy() is executing"). Error:
/// `CUDA_ERROR_INVALID_CONTEXT` for one that has ended.
pub(crate) fn destroy(context: &Context) -> CUresult {
    if !context.end() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let process = process()?;
    // Handles of its green contexts stay until they are destroyed.
    green::all_of(context).iter().for_each(|green| end_green(green));
    stream::destroy_all(context);
    module::forget_context(context);
    library::forget_context(context.unique);
    array::forget_context(context);
    free_memory(context);
    context.limits.end();
    process.client.context_destroy(context.id);
    if !context.is_primary {
        CONTEXTS.remove(context.handle);
    }
    Ok(())
}

/// Frees the memory of an ending context ("destroys and cleans up all resources associated with the context").
fn free_memory(context: &Context) {
    let Ok(process) = process() else { return };
    external::forget_context(context.unique);
    for range in memory::of_context(context.unique) {
        match range.kind {
            Kind::Device | Kind::Managed | Kind::Global => {
                if memory::remove(range.base, |kind| kind == range.kind).is_some() {
                    memory::release(process, &range);
                }
            }
            Kind::Host(_) => {
                if memory::remove(range.base, Kind::is_host).is_some() {
                    host::unmap(&range);
                }
            }
            Kind::Registered(_) => drop(memory::remove(range.base, Kind::is_host)),
            Kind::Ipc => ipc::close_all(range.base),
            Kind::External => {
                // If it was freed meanwhile, nothing is left to do.
                let _ = external::free(range.base);
            }
            Kind::Pool(_) | Kind::Imported(_) | Kind::Graph | Kind::Mapped(_) => {}
        }
    }
}

/// Answer of `cuCtxGetApiVersion` for contexts of this interface.
const API_VERSION: u32 = 3020;

/// `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain_on(device: &'static Device) -> Result<Arc<Context>, CUerror> {
    let mut primary = primary(device)?.lock();
    let context = match &primary.context {
        Some(context) => Arc::clone(context),
        None => {
            let again = Some(primary.handle).filter(|handle| *handle != 0);
            let context = Context::create(device, primary.flags, API_VERSION, true, again)?;
            primary.handle = context.handle;
            primary.context = Some(Arc::clone(&context));
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// `cuDevicePrimaryCtxRelease`.
pub(crate) fn release_on(device: &'static Device) -> CUresult {
    let mut primary = primary(device)?.lock();
    if primary.retained == 0 {
        return Err(CUerror::INVALID_CONTEXT);
    }
    primary.retained -= 1;
    if primary.retained == 0 { end_primary(&mut primary) } else { Ok(()) }
}

/// Ends the context if it is alive. It stays retained.
pub(crate) fn end_primary(primary: &mut Primary) -> CUresult {
    match primary.context.take() {
        Some(context) => destroy(&context),
        None => Ok(()),
    }
}

/// Makes a green context with these multiprocessors; it retains the primary context.
pub(crate) fn create_green(device: &'static Device, sms: Option<Sms>) -> Result<usize, CUerror> {
    let primary = retain_on(device)?;
    let cost = process()?.machine.config().green_context_bytes;
    if let Err(refused) = backing::take(device, cost) {
        release_on(device)?;
        return Err(refused);
    }
    Ok(green::insert(&primary, sms, cost))
}

/// `cuGreenCtxDestroy`. Errors: `CUDA_ERROR_INVALID_CONTEXT`; `CUDA_ERROR_CONTEXT_IS_DESTROYED` if its primary context
/// was reset, after which it has ended too.
pub(crate) fn destroy_green(handle: CUgreenCtx) -> CUresult {
    process()?;
    let green = GREENS.remove(handle.0).ok_or(CUerror::INVALID_CONTEXT)?;
    let was_alive = green.context.is_alive();
    end_green(&green);
    release_on(green.device)?;
    if was_alive { Ok(()) } else { Err(CUerror::CONTEXT_IS_DESTROYED) }
}

/// Ends a green context's streams and frees its memory. Memory, modules and events belong to the primary context.
fn end_green(green: &Green) {
    if green.context.end() {
        stream::detach_all(&green.context);
        CONTEXTS.remove(green.context.handle);
    }
    let cost = core::mem::take(&mut *green.cost.lock());
    if let Ok(process) = process() {
        process.client.give(green.device.gpu, cost);
    }
}
