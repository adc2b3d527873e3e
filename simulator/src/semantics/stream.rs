//! Streams of contexts and threads: lookup, waits, and end (CUDA Driver API, "Stream Management"; CUDA C++ Programming
//! Guide, "Streams"; "Stream synchronization behavior" for default streams).
//!
//! The order between streams is in `ordering.rs`, the effects of commands on memory in `effects.rs`.

use std::cell::RefCell;
use std::sync::Arc;

use vcuda_driver_api::cuda::CUstream;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Command, Stamp, StreamId};

use crate::object::context::Context;
use crate::object::current::current;
use crate::object::event::Event;
use crate::object::process::process;
use crate::object::stream::{LEGACY, NON_BLOCKING, Owner, PER_THREAD, Role, STREAMS, Stream};
use crate::semantics::{capture, event, ordering};

/// Meaning of a null stream handle. At entry points named `_ptds` or `_ptsz` it is the thread's default stream ("API
/// synchronization behavior", "Default stream").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The context's legacy default stream.
    Legacy,
    /// The thread's own default stream.
    PerThread,
}

/// A thread's default streams by context; they end with the thread.
struct Own(RefCell<Vec<Arc<Stream>>>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|stream| stream.end());
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}

/// Makes a stream for a program. Error: `CUDA_ERROR_OUT_OF_MEMORY` if the machine has no room for another stream.
pub(crate) fn create(context: &Context, flags: u32, priority: i32) -> Result<Arc<Stream>, CUerror> {
    let id = new_queue(context, priority)?;
    let make = |handle| Stream::new(owner_of(context), Role::Created(handle), flags, priority, id);
    let (_, stream) = STREAMS.insert_with(make);
    add_to_context(context, &stream)?;
    Ok(stream)
}

fn owner_of(context: &Context) -> Owner {
    let part = context.green.as_ref().and_then(|part| part.sms);
    Owner {
        context: context.handle,
        unique: context.unique,
        gpu: context.device.gpu,
        ordinal: context.device.ordinal,
        sms: part.map_or(context.device.config.sms, |sms| sms.count),
    }
}

fn new_queue(context: &Context, priority: i32) -> Result<StreamId, CUerror> {
    process()?.client.stream_create(context.id, priority).map_err(|_| CUerror::OUT_OF_MEMORY)
}

fn make(context: &Context, role: Role) -> Result<Arc<Stream>, CUerror> {
    let flags = if role == Role::Gathering { NON_BLOCKING } else { 0 };
    let stream = Arc::new(Stream::new(owner_of(context), role, flags, 0, new_queue(context, 0)?));
    add_to_context(context, &stream)?;
    Ok(stream)
}

fn add_to_context(context: &Context, stream: &Arc<Stream>) -> CUresult {
    stream.join(&context.streams.group);
    for stamp in held_by(context) {
        ordering::submit(stream, Command::Wait { ticket: stamp.ticket() })?;
    }
    let mut all = context.streams.all.lock();
    // A destroyed stream is kept for waits for the whole context until its work is done.
    all.retain(|stream| !stream.is_ended() || !ordering::is_idle(stream));
    all.push(Arc::clone(stream));
    Ok(())
}

/// Stamps that new streams of a context must wait for.
fn held_by(context: &Context) -> Vec<Stamp> {
    let mut held = context.streams.held.lock().clone();
    if let Some(part) = &context.green {
        held.extend(part.primary.streams.held.lock().iter().cloned());
    }
    held
}

/// The context's helper stream, after submitting waits for all present work of the context and its green contexts.
/// Error: `CUDA_ERROR_OUT_OF_MEMORY` if the machine has no room for another stream.
pub(crate) fn gather(context: &Context) -> Result<Arc<Stream>, CUerror> {
    let gathering = context.streams.gathering.get_or_try_init(|| make(context, Role::Gathering))?;
    for stream in with_parts(context) {
        if !Arc::ptr_eq(&stream, gathering) && !stream.is_ended() {
            let stamp = ordering::mark(&stream)?;
            ordering::submit(gathering, Command::Wait { ticket: stamp.ticket() })?;
        }
    }
    Ok(Arc::clone(gathering))
}

/// Makes all later work of the context and its green contexts wait for an event.
pub(crate) fn hold_up_all(context: &Context, event: &Event) -> CUresult {
    for stream in with_parts(context) {
        if !stream.is_ended() {
            event::hold_up(event, &stream)?;
        }
    }
    let Some(stamp) = event::stamp(event)? else {
        return Ok(());
    };
    let client = &process()?.client;
    let mut held = context.streams.held.lock();
    held.retain(|stamp| !client.is_done(stamp.ticket()));
    held.push(stamp);
    Ok(())
}

/// Streams of a context and of its green contexts.
fn with_parts(context: &Context) -> Vec<Arc<Stream>> {
    let mut streams = context.streams.all();
    for part in crate::object::green::parts_of(context) {
        streams.extend(part.streams.all());
    }
    streams
}

/// Detaches the streams of an ending green context after their work; their handles can then only be destroyed.
pub(crate) fn detach_all(context: &Context) {
    for stream in context.streams.all() {
        // As in `destroy_all`.
        let _ = ordering::wait_until_idle(&stream);
        capture::forget(&stream);
        stream.detach();
        stream.end();
    }
    context.streams.all.lock().clear();
}

/// The legacy default stream of a context.
pub(crate) fn legacy(context: &Context) -> Result<Arc<Stream>, CUerror> {
    context.streams.legacy.get_or_try_init(|| make(context, Role::Legacy)).cloned()
}

/// The calling thread's default stream in a context. It is a blocking stream ("the per-thread default stream is not a
/// non-blocking stream").
pub(crate) fn per_thread(context: &Context) -> Result<Arc<Stream>, CUerror> {
    // "CUDA_ERROR_INVALID_HANDLE if a green context is current" (`cuStreamGetCtx_v2`).
    if context.green.is_some() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let own = |stream: &&Arc<Stream>| stream.context_unique == context.unique && !stream.is_ended();
    let known = OWN.try_with(|streams| streams.0.borrow().iter().find(own).cloned());
    if let Ok(Some(stream)) = known {
        return Ok(stream);
    }
    let stream = make(context, Role::PerThread)?;
    // A thread that is ending cannot store it; it then ends with the context.
    let _ = OWN.try_with(|streams| {
        let mut streams = streams.0.borrow_mut();
        streams.retain(|stream| !stream.is_ended());
        streams.push(Arc::clone(&stream));
    });
    Ok(stream)
}

/// The stream of a caller's handle. Default streams are those of the current context. Errors:
/// `CUDA_ERROR_NOT_PERMITTED` in a host function or callback; `CUDA_ERROR_INVALID_HANDLE`; those of [`current`].
#[inline]
pub(crate) fn resolve(stream: CUstream, null: Null) -> Result<Arc<Stream>, CUerror> {
    crate::base::thread::permit()?;
    match (stream.0, null) {
        (0, Null::Legacy) | (LEGACY, _) => legacy(&*current()?),
        (0, Null::PerThread) | (PER_THREAD, _) => per_thread(&*current()?),
        (handle, _) => {
            process()?;
            let stream = STREAMS.get(handle).ok_or(CUerror::INVALID_HANDLE)?;
            // "Any subsequent API calls involving these streams" (`cuGreenCtxDestroy`).
            if stream.is_detached() {
                return Err(CUerror::STREAM_DETACHED);
            }
            Ok(stream)
        }
    }
}

/// The default stream for a synchronous copy or set, which no capture takes.
pub(crate) fn default_stream(null: Null) -> Result<Arc<Stream>, CUerror> {
    let stream = resolve(CUstream::NULL, null)?;
    capture::reject_unsafe_call()?;
    capture::reject_if_capturing(&stream)?;
    Ok(stream)
}

/// Waits for a stream; its results are then visible to the host. Error: `CUDA_ERROR_STREAM_CAPTURE_*` if it takes part
/// in a capture.
pub(crate) fn synchronize(stream: &Stream) -> CUresult {
    capture::reject_if_capturing(stream)?;
    ordering::wait_until_idle(stream)?;
    crate::semantics::pool::synchronized();
    Ok(())
}

/// `cuCtxSynchronize`: waits for all streams of a context. Error: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of
/// them is capturing.
pub(crate) fn synchronize_context(context: &Context) -> CUresult {
    crate::base::thread::permit()?;
    capture::reject_if_context_captures(context)?;
    drain(context)?;
    // "If the current context is the primary context, green contexts that have been created will also be
    // synchronized" (`cuCtxSynchronize`).
    for part in crate::object::green::parts_of(context) {
        capture::reject_if_context_captures(&part)?;
        drain(&part)?;
    }
    crate::semantics::pool::synchronized();
    Ok(())
}

/// Waits for all streams of a context, even while capturing.
pub(crate) fn drain(context: &Context) -> CUresult {
    for stream in context.streams.all() {
        ordering::wait_until_idle(&stream)?;
    }
    Ok(())
}

/// Ends the streams and events of an ending context, after their work (docs/hardware.md, "end of a context"; the
/// documentation leaves open whether `cuCtxDestroy` waits).
pub(crate) fn destroy_all(context: &Context) {
    for stream in context.streams.all() {
        // Fails only if the process is no longer initialised, and then there is nothing to wait for.
        let _ = ordering::wait_until_idle(&stream);
        capture::forget(&stream);
        STREAMS.remove(stream.handle);
        stream.end();
    }
    crate::object::event::forget_context(context.unique);
    context.streams.all.lock().clear();
}
