//! Streams.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::put;
use crate::object::current::current;
use crate::object::graph::node::Operation;
use crate::object::stream::{NON_BLOCKING, STREAMS};
use crate::semantics::event::wait;
use crate::semantics::stream::{Null, create, resolve, synchronize, synchronize_context};
use crate::semantics::{capture, ordering};

export! {
    cuStreamCreate => create_plain;
    cuStreamCreateWithPriority => create_with_priority;
    cuStreamDestroy => destroy;
    cuStreamDestroy_v2 => destroy;
    cuStreamQuery => query::<false>;
    cuStreamQuery_ptsz => query::<true>;
    cuStreamSynchronize => synchronize_stream::<false>;
    cuStreamSynchronize_ptsz => synchronize_stream::<true>;
    cuStreamWaitEvent => wait_event::<false>;
    cuStreamWaitEvent_ptsz => wait_event::<true>;
    cuStreamGetPriority => get_priority::<false>;
    cuStreamGetPriority_ptsz => get_priority::<true>;
    cuStreamGetFlags => get_flags::<false>;
    cuStreamGetFlags_ptsz => get_flags::<true>;
    cuStreamGetId => get_id::<false>;
    cuStreamGetId_ptsz => get_id::<true>;
    cuStreamGetCtx => get_context::<false>;
    cuStreamGetCtx_ptsz => get_context::<true>;
    cuStreamGetCtx_v2 => get_contexts::<false>;
    cuStreamGetCtx_v2_ptsz => get_contexts::<true>;
    cuStreamGetDevice => get_device::<false>;
    cuStreamGetDevice_ptsz => get_device::<true>;
    cuCtxSynchronize => synchronize_current;
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

fn create_plain(place: *mut CUstream, flags: c_uint) -> CUresult {
    create_with_priority(place, flags, LEAST_PRIORITY)
}

/// Creates a stream; a priority outside the range is clamped.
fn create_with_priority(place: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult {
    crate::base::thread::permit()?;
    let context = current()?;
    if place.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUstream(create(&context, flags, priority_within(priority))?.handle))
}

/// The nearest valid priority.
pub(crate) fn priority_within(priority: c_int) -> c_int {
    priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY)
}

/// Destroys a stream and returns at once; pending work still runs. A default stream cannot be destroyed (docs/hardware.md,
/// "objects that are not the caller's": `CUDA_ERROR_INVALID_HANDLE`).
fn destroy(stream: CUstream) -> CUresult {
    crate::base::thread::permit()?;
    crate::object::process::process()?;
    let stream = STREAMS.remove(stream.0).ok_or(CUerror::INVALID_HANDLE)?;
    capture::forget(&stream);
    stream.end();
    Ok(())
}

/// Queries a stream. Outside any capture this is a potentially unsafe call, as for an event (docs/hardware.md, "calls
/// during a capture").
fn query<const PER_THREAD: bool>(stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    capture::reject_if_capturing(&stream)?;
    capture::reject_unsafe_call()?;
    if !ordering::is_idle(&stream) {
        return Err(CUerror::NOT_READY);
    }
    crate::semantics::effects::settle();
    Ok(())
}

fn synchronize_stream<const PER_THREAD: bool>(stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    capture::reject_if_capturing(&stream)?;
    capture::reject_unsafe_call()?;
    synchronize(&stream)
}

fn synchronize_current() -> CUresult {
    crate::base::thread::permit()?;
    let context = current()?;
    synchronize_context(&context)
}

/// Waits for an event. `CU_EVENT_WAIT_EXTERNAL` makes a node that waits outside the graph, and is only valid while
/// capturing.
fn wait_event<const PER_THREAD: bool>(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
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

fn get_priority<const PER_THREAD: bool>(stream: CUstream, place: *mut c_int) -> CUresult {
    put(place, resolve(stream, Null::of(PER_THREAD))?.priority)
}

fn get_flags<const PER_THREAD: bool>(stream: CUstream, place: *mut c_uint) -> CUresult {
    put(place, resolve(stream, Null::of(PER_THREAD))?.flags)
}

fn get_id<const PER_THREAD: bool>(stream: CUstream, place: *mut u64) -> CUresult {
    put(place, resolve(stream, Null::of(PER_THREAD))?.key)
}

fn get_context<const PER_THREAD: bool>(stream: CUstream, place: *mut CUcontext) -> CUresult {
    put(place, CUcontext(resolve(stream, Null::of(PER_THREAD))?.context))
}

/// "If the stream is associated with a green context, the API returns the green context and the primary context".
fn get_contexts<const PER_THREAD: bool>(
    stream: CUstream,
    place: *mut CUcontext,
    green: *mut CUgreenCtx,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let context = crate::object::context::context(stream.context)?;
    let primary = context.green.as_ref().map_or(context.handle, |part| part.primary.handle);
    if green.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUcontext(primary))?;
    put(green, crate::object::green::of_context(stream.context))
}

fn get_device<const PER_THREAD: bool>(stream: CUstream, place: *mut CUdevice) -> CUresult {
    put(place, resolve(stream, Null::of(PER_THREAD))?.ordinal)
}
