//! Green contexts (CUDA Driver API, "Green Contexts"): a part of a device's multiprocessors with streams of its own.
//!
//! A green context "will retain the primary context", and memory, modules and events made while it is current are the
//! primary context's. Its form as a `CUcontext` has streams of its own and the primary context's identity for all
//! else. It takes `green_context_bytes` of its device (docs/hardware.md, "green contexts' memory"; the documentation
//! says only that resources are provisioned). Work launched by graphs is not confined to its multiprocessors.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::context::{CONTEXTS, Context, context};
use crate::current::current;
use crate::device::{Device, device};
use crate::ffi::{export, put};
use crate::process::process;
use crate::resource::{self, Sms};
use crate::stream::api::priority_within;
use crate::stream::queue::NON_BLOCKING;
use crate::stream::{Null, resolve};
use crate::table::{Kind, Table};

export! {
    cuGreenCtxCreate => create;
    cuGreenCtxDestroy => destroy;
    cuCtxFromGreenCtx => to_context;
    cuGreenCtxGetId => get_id;
    cuGreenCtxGetDevResource => get_resource;
    cuCtxGetDevResource => get_context_resource;
    cuGreenCtxStreamCreate => create_stream;
    cuGreenCtxRecordEvent => record_event;
    cuGreenCtxWaitEvent => wait_event;
    cuCtxRecordEvent => record_context_event;
    cuCtxWaitEvent => wait_context_event;
    cuStreamGetGreenCtx => get_green_of_stream;
    cuStreamGetDevResource => get_stream_resource::<false>;
    cuStreamGetDevResource_ptsz => get_stream_resource::<true>;
}

/// All green contexts, also those whose primary context was reset.
static GREENS: Table<Green> = Table::new(Kind::GreenContext);
/// Whether there has ever been one: nothing else is looked up where there has not.
static ANY: AtomicBool = AtomicBool::new(false);

/// A green context.
#[derive(Debug)]
struct Green {
    device: &'static Device,
    /// Its form as a `CUcontext`.
    context: Arc<Context>,
    /// Bytes taken; 0 once given back.
    cost: Mutex<u64>,
}

/// What a context that stands for a green one knows beyond others.
#[derive(Debug)]
pub(crate) struct Part {
    /// The green context's handle.
    pub(crate) handle: usize,
    /// `cuGreenCtxGetId`.
    pub(crate) unique: u64,
    /// Its multiprocessors; none are all.
    pub(crate) sms: Option<Sms>,
    /// The context that it is a part of.
    pub(crate) primary: Arc<Context>,
    /// The thread that has it.
    pub(crate) holder: crate::current::Holder,
}

impl Green {
    /// Ends its streams and gives back what it takes. Memory, modules and events are the primary context's.
    fn end(&self) {
        if self.context.end_green() {
            crate::stream::detach_all(&self.context);
            CONTEXTS.remove(self.context.handle);
        }
        let cost = core::mem::take(&mut *self.cost.lock());
        if let Ok(process) = process() {
            process.client.give(self.device.gpu, cost);
        }
    }
}

fn green(handle: CUgreenCtx) -> Result<Arc<Green>, CUerror> {
    process()?;
    let green = GREENS.get(handle.0).ok_or(CUerror::INVALID_CONTEXT)?;
    if green.context.is_alive() {
        Ok(green)
    } else {
        Err(CUerror::CONTEXT_IS_DESTROYED)
    }
}

/// The green contexts of a primary context, in their form as contexts.
pub(crate) fn parts_of(primary: &Context) -> Vec<Arc<Context>> {
    if !ANY.load(Ordering::Acquire) || primary.green.is_some() {
        return Vec::new();
    }
    let all = GREENS.all().into_iter();
    all.map(|green| Arc::clone(&green.context))
        .filter(|context| context.unique == primary.unique && context.is_alive())
        .collect()
}

/// A primary context ends, and its green contexts with it; their handles stay until they are destroyed.
pub(crate) fn forget_primary(primary: &Context) {
    if ANY.load(Ordering::Acquire) {
        let all = GREENS.all().into_iter();
        all.filter(|green| green.context.unique == primary.unique)
            .for_each(|green| green.end());
    }
}

/// Before CUDA 13 "CU_GREEN_CTX_DEFAULT_STREAM is required"; here no flags are accepted too.
fn create(
    place: *mut CUgreenCtx,
    description: CUdevResourceDesc,
    ordinal: CUdevice,
    flags: c_uint,
) -> CUresult {
    let device = device(ordinal)?;
    let description = resource::description(description)?;
    if place.is_null() || flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if description.ordinal != ordinal {
        return Err(CUerror::INVALID_DEVICE);
    }
    crate::capture::call_unsafe()?;
    let primary = crate::primary::retain_on(device)?;
    let cost = process()?.machine.config().green_context_bytes;
    if let Err(refused) = crate::backing::take(device, cost) {
        crate::primary::release_on(device)?;
        return Err(refused);
    }
    let (handle, _) = GREENS.insert_with(|handle| Green {
        device,
        context: Context::green(&primary, handle, description.sms),
        cost: Mutex::new(cost),
    });
    ANY.store(true, Ordering::Release);
    put(place, CUgreenCtx(handle))
}

/// One whose primary context was reset is `CUDA_ERROR_CONTEXT_IS_DESTROYED`, and ends.
fn destroy(handle: CUgreenCtx) -> CUresult {
    process()?;
    let green = GREENS.remove(handle.0).ok_or(CUerror::INVALID_CONTEXT)?;
    let was_alive = green.context.is_alive();
    green.end();
    crate::primary::release_on(green.device)?;
    if was_alive {
        Ok(())
    } else {
        Err(CUerror::CONTEXT_IS_DESTROYED)
    }
}

fn to_context(place: *mut CUcontext, handle: CUgreenCtx) -> CUresult {
    put(place, CUcontext(green(handle)?.context.handle))
}

/// "If green context is supplied as NULL and the current context is set to a green context, the Id of the current
/// green context is returned."
fn get_id(handle: CUgreenCtx, place: *mut u64) -> CUresult {
    let context = if handle.is_null() {
        current()?
    } else {
        Arc::clone(&green(handle)?.context)
    };
    let part = context.green.as_ref().ok_or(CUerror::INVALID_CONTEXT)?;
    put(place, part.unique)
}

fn resource_of(context: &Context, place: *mut CUdevResource, kind: CUdevResourceType) -> CUresult {
    let sms = context.green.as_ref().and_then(|part| part.sms);
    resource::answer(context.device, sms, place, kind)
}

fn get_resource(handle: CUgreenCtx, place: *mut CUdevResource, kind: CUdevResourceType) -> CUresult {
    resource_of(&green(handle)?.context, place, kind)
}

fn get_context_resource(handle: CUcontext, place: *mut CUdevResource, kind: CUdevResourceType) -> CUresult {
    resource_of(&*context(handle.0)?, place, kind)
}

/// "CUDA_ERROR_INVALID_RESOURCE_TYPE if type is" one of work queues.
fn get_stream_resource<const PER_THREAD: bool>(
    stream: CUstream,
    place: *mut CUdevResource,
    kind: CUdevResourceType,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    if kind != CUdevResourceType::SM {
        return Err(CUerror::INVALID_RESOURCE_TYPE);
    }
    resource_of(&*context(stream.context)?, place, kind)
}

/// "CU_STREAM_NON_BLOCKING: this must be specified." The current context is ignored.
fn create_stream(place: *mut CUstream, handle: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult {
    crate::hostfunc::permit()?;
    let green = green(handle)?;
    if place.is_null() || flags != NON_BLOCKING {
        return Err(CUerror::INVALID_VALUE);
    }
    let stream = crate::stream::create(&green.context, flags, priority_within(priority))?;
    put(place, CUstream(stream.handle))
}

fn record_event(handle: CUgreenCtx, event: CUevent) -> CUresult {
    record(&green(handle)?.context, event)
}

fn wait_event(handle: CUgreenCtx, event: CUevent) -> CUresult {
    wait(&green(handle)?.context, event)
}

/// "If the context is the primary context, hEvent will capture all the activities of the primary context and its green
/// contexts." A null context is the current one (docs/hardware.md, "events of a context").
fn record_context_event(handle: CUcontext, event: CUevent) -> CUresult {
    record(&*given(handle)?, event)
}

fn wait_context_event(handle: CUcontext, event: CUevent) -> CUresult {
    wait(&*given(handle)?, event)
}

fn given(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    if handle.is_null() {
        current()
    } else {
        context(handle.0)
    }
}

/// "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the specified context has a stream in the capture mode"; an event of
/// another context is `CUDA_ERROR_INVALID_HANDLE`.
fn record(context: &Context, event: CUevent) -> CUresult {
    let event = crate::event::event(event)?;
    if event.context_unique != context.unique {
        return Err(CUerror::INVALID_HANDLE);
    }
    crate::capture::refuse_context(context)?;
    event.mark(&*crate::stream::gather(context)?)
}

fn wait(context: &Context, event: CUevent) -> CUresult {
    let event = crate::event::event(event)?;
    crate::capture::refuse_context(context)?;
    crate::stream::hold_up_all(context, &event)
}

/// Null for a stream of an ordinary context.
fn get_green_of_stream(stream: CUstream, place: *mut CUgreenCtx) -> CUresult {
    let stream = resolve(stream, Null::Legacy)?;
    put(place, of_context(stream.context))
}

/// The green context that a context stands for; null for an ordinary one.
pub(crate) fn of_context(handle: usize) -> CUgreenCtx {
    let context = CONTEXTS.get(handle);
    let part = context.as_ref().and_then(|context| context.green.as_ref());
    CUgreenCtx(part.map_or(0, |part| part.handle))
}
