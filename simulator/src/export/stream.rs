//! Streams.

use crate::base::thread::permit;
use crate::export::prelude::*;
use crate::object::graph::node::Operation;
use crate::object::stream::{NON_BLOCKING, STREAMS};
use crate::semantics::event::wait;
use crate::semantics::stream::{create, synchronize, synchronize_context};
use crate::semantics::{capture, ordering};

export! {
    cuStreamCreate => |place, flags| create_with_priority(place, flags, LEAST_PRIORITY);
    cuStreamCreateWithPriority => create_with_priority;
    cuStreamDestroy | cuStreamDestroy_v2 => destroy;
    cuStreamQuery / cuStreamQuery_ptsz => query;
    cuStreamSynchronize / cuStreamSynchronize_ptsz => synchronize_stream;
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz => wait_event;
    cuStreamGetPriority / cuStreamGetPriority_ptsz => |null, stream, place|
        put(place, resolve(stream, null)?.priority);
    cuStreamGetFlags / cuStreamGetFlags_ptsz => |null, stream, place|
        put(place, resolve(stream, null)?.flags);
    cuStreamGetId / cuStreamGetId_ptsz => |null, stream, place| put(place, resolve(stream, null)?.key);
    cuStreamGetCtx / cuStreamGetCtx_ptsz => |null, stream, place|
        put(place, CUcontext(resolve(stream, null)?.context));
    cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz => get_contexts;
    cuStreamGetDevice / cuStreamGetDevice_ptsz => |null, stream, place|
        put(place, resolve(stream, null)?.ordinal);
    cuCtxSynchronize => || permit().and_then(|()| synchronize_context(&*current()?));
    cuCtxGetStreamPriorityRange => priority_range;
}

/// Lowest priority. "Stream priorities follow a convention where lower numbers imply greater priorities"; there are six
/// levels, as on current data-centre GPUs.
const LEAST_PRIORITY: i32 = 0;
const GREATEST_PRIORITY: i32 = -5;

/// `cuCtxGetStreamPriorityRange`: either place may be null.
fn priority_range(least: *mut c_int, greatest: *mut c_int) -> CUresult {
    current()?;
    crate::base::ffi::put_if_wanted(least, LEAST_PRIORITY);
    crate::base::ffi::put_if_wanted(greatest, GREATEST_PRIORITY);
    Ok(())
}

/// Creates a stream; a priority outside the range is clamped.
fn create_with_priority(place: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult {
    permit()?;
    let context = current()?;
    if place.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUstream(create(&context, flags, priority_within(priority))?.handle))
}

pub(crate) fn priority_within(priority: c_int) -> c_int {
    priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY)
}

/// Destroys a stream and returns at once; pending work still runs. A default stream cannot be destroyed (docs/hardware.md,
/// "objects that are not the caller's": `CUDA_ERROR_INVALID_HANDLE`).
fn destroy(stream: CUstream) -> CUresult {
    permit()?;
    process()?;
    let stream = STREAMS.remove(stream.0).ok_or(CUerror::INVALID_HANDLE)?;
    capture::forget(&stream);
    stream.end();
    Ok(())
}

/// Queries a stream. Outside any capture this is a potentially unsafe call, as for an event (docs/hardware.md, "calls
/// during a capture").
fn query(null: Null, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    capture::reject_if_capturing(&stream)?;
    capture::reject_unsafe_call()?;
    if !ordering::is_idle(&stream) {
        return Err(CUerror::NOT_READY);
    }
    crate::semantics::effects::settle();
    Ok(())
}

fn synchronize_stream(null: Null, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    capture::reject_if_capturing(&stream)?;
    capture::reject_unsafe_call()?;
    synchronize(&stream)
}

/// Waits for an event. `CU_EVENT_WAIT_EXTERNAL` makes a node that waits outside the graph, and is only valid while
/// capturing.
fn wait_event(null: Null, stream: CUstream, event: CUevent, flags: c_uint) -> CUresult {
    let stream = resolve(stream, null)?;
    let event = crate::object::event::event(event)?;
    match CUevent_wait_flags(flags) {
        CUevent_wait_flags::DEFAULT => wait(&stream, &event),
        CUevent_wait_flags::EXTERNAL => match capture::intercept(&stream)? {
            Some(recording) => recording.add(Operation::EventWait(event)).map(drop),
            None => Err(CUerror::INVALID_VALUE),
        },
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// "If the stream is associated with a green context, the API returns the green context and the primary context".
fn get_contexts(null: Null, stream: CUstream, place: *mut CUcontext, green: *mut CUgreenCtx) -> CUresult {
    let stream = resolve(stream, null)?;
    let context = crate::object::context::context(stream.context)?;
    let primary = context.green.as_ref().map_or(context.handle, |part| part.primary.handle);
    if green.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUcontext(primary))?;
    put(green, crate::object::green::of_context(stream.context))
}
