//! Green contexts (CUDA Driver API, "Green Contexts"): a part of a device's multiprocessors with streams of its own.
//!
//! A green context "will retain the primary context", and memory, modules and events made while it is current belong to the
//! primary context. As a `CUcontext` it has streams of its own, and otherwise the primary context's identity. It takes
//! `green_context_bytes` of its device (docs/hardware.md, "green contexts' memory"; the documentation says only that
//! resources are provisioned). Work launched by graphs is not confined to its multiprocessors.

use crate::export::context::given;
use crate::export::prelude::*;
use crate::export::resource;
use crate::export::stream::priority_within;
use crate::object::context::{Context, context};
use crate::object::green::{green, of_context};
use crate::object::stream::NON_BLOCKING;
use crate::semantics::event::mark;

export! {
    cuGreenCtxCreate => create;
    // Destroys a green context; if its primary context was reset, also returns `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    cuGreenCtxDestroy => crate::semantics::context::destroy_green;
    cuCtxFromGreenCtx => |place, handle| put(place, CUcontext(green(handle)?.context.handle));
    cuGreenCtxGetDevResource => |handle, place, kind| resource_of(&green(handle)?.context, place, kind);
    cuCtxGetDevResource => |handle, place, kind| resource_of(&*context(handle.0)?, place, kind);
    cuGreenCtxStreamCreate => create_stream;
    cuGreenCtxRecordEvent => |handle, event| record(&green(handle)?.context, event);
    cuGreenCtxWaitEvent => |handle, event| wait(&green(handle)?.context, event);
    // "If the context is the primary context, hEvent will capture all the activities of the primary context and its green
    // contexts." A null context is the current one (docs/hardware.md, "events of a context").
    cuCtxRecordEvent => |handle, event| record(&*given(handle)?, event);
    cuCtxWaitEvent => |handle, event| wait(&*given(handle)?, event);
    // Null for a stream of an ordinary context.
    cuStreamGetGreenCtx => |stream, place| put(place, of_context(resolve(stream, Null::Legacy)?.context));
}

/// Creates a green context. Before CUDA 13 "CU_GREEN_CTX_DEFAULT_STREAM is required"; here it may be omitted.
fn create(
    place: *mut CUgreenCtx,
    description: CUdevResourceDesc,
    ordinal: CUdevice,
    flags: c_uint,
) -> CUresult {
    let device = device(ordinal)?;
    let description = crate::object::resource::description(description)?;
    if !is_possible(place) || flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if description.ordinal != ordinal {
        return Err(CUerror::INVALID_DEVICE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, CUgreenCtx(crate::semantics::context::create_green(device, description.sms)?))
}

fn resource_of(context: &Context, place: *mut CUdevResource, kind: CUdevResourceType) -> CUresult {
    let sms = context.green.as_ref().and_then(|part| part.sms);
    resource::answer(context.device, sms, place, kind)
}

/// Creates a stream; "CU_STREAM_NON_BLOCKING: this must be specified." The current context is ignored.
fn create_stream(place: *mut CUstream, handle: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult {
    crate::base::thread::permit()?;
    let green = green(handle)?;
    if !is_possible(place) || flags != NON_BLOCKING {
        return Err(CUerror::INVALID_VALUE);
    }
    let stream = crate::semantics::stream::create(&green.context, flags, priority_within(priority))?;
    put(place, CUstream(stream.handle))
}

/// "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the specified context has a stream in the capture mode"; an event of
/// another context is `CUDA_ERROR_INVALID_HANDLE`.
fn record(context: &Context, event: CUevent) -> CUresult {
    let event = crate::object::event::event(event)?;
    if event.context_unique != context.unique {
        return Err(CUerror::INVALID_HANDLE);
    }
    crate::semantics::capture::reject_if_context_captures(context)?;
    mark(&event, &*crate::semantics::stream::gather(context)?)
}

fn wait(context: &Context, event: CUevent) -> CUresult {
    let event = crate::object::event::event(event)?;
    crate::semantics::capture::reject_if_context_captures(context)?;
    crate::semantics::stream::hold_up_all(context, &event)
}
