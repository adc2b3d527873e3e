//! Memory that is freed when a stream gets there (`cuMemFreeAsync`), and that nobody but the stream can tell of: memory
//! of `cuMemAlloc`, and the last piece of a pool that was destroyed. An event behind the free says when; it is asked and
//! never waited for. Pools that live are asked themselves.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Block, IS_EBBING};
use crate::allocations::Allocation;
use crate::capture;
use crate::devices::{context_of_stream, current_context, device_of_context, shared_context};
use crate::ffi::{Relaxed, real};
use crate::mappings::Backing;
use crate::shim;
use crate::timing::Stream;

/// What is given back when it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held to be dropped")]
pub(crate) enum Owed {
    /// Memory of `cuMemAlloc`.
    Linear(Allocation),
    /// A piece of a destroyed pool.
    Block(Block),
    /// What was mapped into a sparse array.
    Tiles(Vec<Arc<Backing>>),
}

#[derive(Debug)]
struct Waiting {
    /// Null if none could be recorded.
    event: CUevent,
    context: CUcontext,
    #[expect(dead_code, reason = "held to be dropped")]
    owed: Owed,
}

/// What waited for streams of one context.
#[derive(Debug)]
#[must_use = "dropping it gives all of it back"]
pub(crate) struct Taken(Vec<Waiting>);

/// In the order of the frees.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    waiting: Mutex<Vec<Waiting>>,
}

impl Ordered {
    /// Gives back `owed` once the stream has done all that it was told to do up to now.
    pub(crate) fn after(&self, stream: Stream, owed: Owed) {
        let _relaxed = Relaxed::enter();
        let of_stream = context_of_stream(stream.explicit());
        let current = current_context();
        let is_elsewhere = !of_stream.is_null() && of_stream != current;
        let context = if is_elsewhere {
            event_context(of_stream)
        } else {
            current
        };
        let event = if is_elsewhere {
            mark_in(context, stream)
        } else {
            mark(stream)
        };
        // Without an event nothing tells before the context ends.
        let event = event.unwrap_or(CUevent::NULL);
        self.waiting.lock().push(Waiting { event, context, owed });
    }

    /// Gives back what streams have got to. `true` if anything is left.
    pub(crate) fn poll(&self) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return false;
        }
        let _relaxed = Relaxed::enter();
        let is_over = |waiting: &mut Waiting| {
            if waiting.event.is_null() {
                return false;
            }
            // SAFETY: our event, whose context has not ended.
            match unsafe { real::cuEventQuery(waiting.event) } {
                Ok(()) => {
                    // SAFETY: as above; nobody else knows it.
                    let _ = unsafe { real::cuEventDestroy_v2(waiting.event) };
                    true
                }
                // Not yet; or the context has broken, and keeps its memory until it ends; or this thread may not ask.
                Err(_) => false,
            }
        };
        let over: Vec<Waiting> = waiting.extract_if(.., is_over).collect();
        let is_left = !waiting.is_empty();
        drop(waiting);
        drop(over);
        is_left
    }

    /// Takes out what waits for streams of contexts that are about to end, and its events with it. Dropped, it is given
    /// back.
    pub(crate) fn take(&self, contexts: &[CUcontext]) -> Taken {
        let mut waiting = self.waiting.lock();
        Taken(
            waiting
                .extract_if(.., |waiting| contexts.contains(&waiting.context))
                .collect(),
        )
    }

    /// The context did not end.
    pub(crate) fn put_back(&self, taken: Taken) {
        self.waiting.lock().extend(taken.0);
        // A look meanwhile found nothing that is on its way.
        IS_EBBING.store(true, Ordering::Relaxed);
    }
}

/// The context in which to make an event for a stream of `context`, which is not current.
fn event_context(context: CUcontext) -> CUcontext {
    shim::built()
        .and_then(|shim| Some(shared_context(shim, context, device_of_context(shim, context)?)))
        .unwrap_or(context)
}

/// As [`mark`], for a stream whose context is not current.
fn mark_in(context: CUcontext, stream: Stream) -> Option<CUevent> {
    // SAFETY: the driver judges the handle; popped again below.
    unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
    let event = mark(stream);
    let mut popped = CUcontext::NULL;
    // SAFETY: undoes the push above.
    let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    event
}

/// An event behind what the stream was told to do so far; nothing if it cannot be recorded there.
fn mark(stream: Stream) -> Option<CUevent> {
    if capture::is_captured(stream.handle, stream.default) {
        return None;
    }
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes an event or nothing.
    unsafe { real::cuEventCreate(&raw mut event, CUevent_flags::DISABLE_TIMING.0) }.ok()?;
    // SAFETY: our event, and the stream that the application has just used.
    if unsafe { real::cuEventRecord(event, stream.explicit()) }.is_err() {
        // SAFETY: nobody else knows it.
        let _ = unsafe { real::cuEventDestroy_v2(event) };
        return None;
    }
    Some(event)
}
