//! Streams (CUDA Driver API, "Stream Management"; CUDA C++ Programming Guide, "Streams"; "Stream
//! synchronization behavior" for the default ones).
//!
//! `queue.rs` has the object and the order between streams, `effects.rs` what happens in memory when
//! commands complete, `api.rs` and `memory_operations.rs` the exported functions, `attributes.rs` theirs.

pub(crate) mod api;
pub(crate) mod attributes;
pub(crate) mod effects;
pub(crate) mod memory_operations;
pub(crate) mod queue;

use std::cell::RefCell;
use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::cuda::CUstream;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Command, Stamp, StreamId};

use crate::capture;
use crate::context::Context;
use crate::current::current;
use crate::event::Event;
use crate::graph::node::Operation;
use crate::process::process;
use crate::stream::queue::{Group, Role, Stream};
use crate::table::{Kind, Table};
use crate::work::Work;

pub(crate) use effects::settle;

/// All streams that programs have made (the default ones have fixed handles).
pub(crate) static STREAMS: Table<Stream> = Table::new(Kind::Stream);

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: usize = 2;

/// What a null stream handle means to an entry point: the ones with `_ptds` or `_ptsz` in their names mean
/// the thread's own ("API synchronization behavior", "Default stream").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The context's legacy default stream.
    Legacy,
    /// The thread's own default stream.
    PerThread,
}

impl Null {
    /// `const` parameter of handlers: whether the entry point is a per-thread one.
    pub(crate) const fn of(per_thread: bool) -> Null {
        if per_thread { Null::PerThread } else { Null::Legacy }
    }
}

/// The streams of one context.
#[derive(Debug)]
pub(crate) struct ContextStreams {
    group: Arc<Group>,
    legacy: OnceCell<Arc<Stream>>,
    /// Waits for all others when an event is recorded in the whole context.
    gathering: OnceCell<Arc<Stream>>,
    all: Mutex<Vec<Arc<Stream>>>,
    /// What the whole context was made to wait for: streams made later wait for it too.
    held: Mutex<Vec<Stamp>>,
}

impl ContextStreams {
    /// None yet: even the legacy stream is made at its first use.
    pub(crate) fn new() -> ContextStreams {
        ContextStreams {
            group: Arc::default(),
            legacy: OnceCell::new(),
            gathering: OnceCell::new(),
            all: Mutex::new(Vec::new()),
            held: Mutex::new(Vec::new()),
        }
    }

    /// Every stream that may still hold work, those that the program has destroyed among them.
    fn all(&self) -> Vec<Arc<Stream>> {
        self.all.lock().clone()
    }
}

/// One thread's own default streams, by context; they end with the thread.
struct Own(RefCell<Vec<Arc<Stream>>>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|stream| stream.end());
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}

/// Makes a stream for a program.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where the machine has no room for another stream.
pub(crate) fn create(context: &Context, flags: u32, priority: i32) -> Result<Arc<Stream>, CUerror> {
    let id = new_queue(context, priority)?;
    let make = |handle| Stream::new(context, Role::Created(handle), flags, priority, id);
    let (_, stream) = STREAMS.insert_with(make);
    adopt(context, &stream)?;
    Ok(stream)
}

fn new_queue(context: &Context, priority: i32) -> Result<StreamId, CUerror> {
    process()?
        .client
        .stream_create(context.id, priority)
        .map_err(|_| CUerror::OUT_OF_MEMORY)
}

/// Makes a default stream.
fn make(context: &Context, role: Role) -> Result<Arc<Stream>, CUerror> {
    let flags = if role == Role::Gathering {
        queue::NON_BLOCKING
    } else {
        0
    };
    let stream = Arc::new(Stream::new(context, role, flags, 0, new_queue(context, 0)?));
    adopt(context, &stream)?;
    Ok(stream)
}

/// Makes a stream one of its context's.
fn adopt(context: &Context, stream: &Arc<Stream>) -> CUresult {
    stream.join(&context.streams.group);
    for stamp in held_by(context) {
        stream.submit(Command::Wait {
            ticket: stamp.ticket(),
        })?;
    }
    let mut all = context.streams.all.lock();
    // A destroyed stream is kept for context-wide waits until its work is done.
    all.retain(|stream| !stream.is_ended() || !stream.is_idle());
    all.push(Arc::clone(stream));
    Ok(())
}

/// What new streams of a context have to wait for.
fn held_by(context: &Context) -> Vec<Stamp> {
    let mut held = context.streams.held.lock().clone();
    if let Some(part) = &context.green {
        held.extend(part.primary.streams.held.lock().iter().cloned());
    }
    held
}

/// The context's stream that has waited for all work so far in the context and its green contexts.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where the machine has no room for another stream.
pub(crate) fn gather(context: &Context) -> Result<Arc<Stream>, CUerror> {
    let gathering = context
        .streams
        .gathering
        .get_or_try_init(|| make(context, Role::Gathering))?;
    for stream in with_parts(context) {
        if !Arc::ptr_eq(&stream, gathering) && !stream.is_ended() {
            let stamp = stream.mark()?;
            gathering.submit(Command::Wait {
                ticket: stamp.ticket(),
            })?;
        }
    }
    Ok(Arc::clone(gathering))
}

/// Makes all work to come of the context and its green contexts wait for an event.
///
/// # Errors
/// Those of [`Event::hold_up`].
pub(crate) fn hold_up_all(context: &Context, event: &Event) -> CUresult {
    for stream in with_parts(context) {
        if !stream.is_ended() {
            event.hold_up(&stream)?;
        }
    }
    let Some(stamp) = event.stamp()? else {
        return Ok(());
    };
    let client = &process()?.client;
    let mut held = context.streams.held.lock();
    held.retain(|stamp| !client.is_done(stamp.ticket()));
    held.push(stamp);
    Ok(())
}

/// The streams of a context and of its green contexts.
fn with_parts(context: &Context) -> Vec<Arc<Stream>> {
    let mut streams = context.streams.all();
    for part in crate::green::parts_of(context) {
        streams.extend(part.streams.all());
    }
    streams
}

/// A green context ends: its streams remain as handles that can only be destroyed, after their work.
pub(crate) fn detach_all(context: &Context) {
    for stream in context.streams.all() {
        // As in `destroy_all`.
        let _ = stream.wait_until_idle();
        capture::forget(&stream);
        stream.detach();
        stream.end();
    }
    context.streams.all.lock().clear();
}

/// The legacy default stream of a context.
pub(crate) fn legacy(context: &Context) -> Result<Arc<Stream>, CUerror> {
    context
        .streams
        .legacy
        .get_or_try_init(|| make(context, Role::Legacy))
        .cloned()
}

/// The calling thread's own default stream in a context. It blocks with the legacy stream ("the per-thread
/// default stream is not a non-blocking stream").
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
    // A thread that is ending has no place to keep it; it ends with the context then.
    let _ = OWN.try_with(|streams| {
        let mut streams = streams.0.borrow_mut();
        streams.retain(|stream| !stream.is_ended());
        streams.push(Arc::clone(&stream));
    });
    Ok(stream)
}

/// The stream that a caller means. The default ones are those of the current context.
///
/// # Errors
/// `CUDA_ERROR_NOT_PERMITTED` in a host function or callback; `CUDA_ERROR_INVALID_HANDLE`; those of
/// [`current`].
#[inline]
pub(crate) fn resolve(stream: CUstream, null: Null) -> Result<Arc<Stream>, CUerror> {
    crate::hostfunc::permit()?;
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

/// Hands a copy, a set or stream-ordered memory to a stream: it becomes a node of the graph being captured,
/// or the machine's next command there, and happens in this process once the machine has completed it.
///
/// # Errors
/// Those of capture (900 to 906).
pub(crate) fn enqueue(stream: &Stream, mut work: Work) -> CUresult {
    if let Some(recording) = capture::intercept(stream)? {
        return recording
            .add(Operation::from_work(work, stream.context))
            .map(drop);
    }
    work.stage();
    let command = work.command(process()?);
    stream.submit_with_effect(command, effects::of(work))
}

/// Waits for a stream, after which everything that it did is visible to the host.
///
/// # Errors
/// `CUDA_ERROR_STREAM_CAPTURE_*` where it takes part in a capture.
pub(crate) fn synchronize(stream: &Stream) -> CUresult {
    capture::refuse(stream)?;
    stream.wait_until_idle()?;
    crate::pool::synchronized();
    Ok(())
}

/// `cuCtxSynchronize`: waits for all streams of a context.
///
/// # Errors
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` where one of them is capturing.
pub(crate) fn synchronize_context(context: &Context) -> CUresult {
    crate::hostfunc::permit()?;
    capture::refuse_context(context)?;
    drain(context)?;
    // "If the current context is the primary context, green contexts that have been created will also be
    // synchronized" (`cuCtxSynchronize`).
    for part in crate::green::parts_of(context) {
        capture::refuse_context(&part)?;
        drain(&part)?;
    }
    crate::pool::synchronized();
    Ok(())
}

/// Waits for all streams of a context, whatever is being captured.
///
/// # Errors
/// `CUDA_ERROR_NOT_INITIALIZED`.
pub(crate) fn drain(context: &Context) -> CUresult {
    for stream in context.streams.all() {
        stream.wait_until_idle()?;
    }
    Ok(())
}

/// A context ends: so do its streams and events, after their work (docs/hardware.md, "end of a context"; the
/// documentation leaves open whether `cuCtxDestroy` waits).
pub(crate) fn destroy_all(context: &Context) {
    for stream in context.streams.all() {
        // An error would be a process that is not initialised any more: then nothing is left to wait for.
        let _ = stream.wait_until_idle();
        capture::forget(&stream);
        STREAMS.remove(stream.handle);
        stream.end();
    }
    crate::event::forget_context(context.unique);
    context.streams.all.lock().clear();
}
