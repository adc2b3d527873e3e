//! Memory that is freed when a stream gets there (`cuMemFreeAsync`), and that nobody but the stream can tell of: memory
//! of `cuMemAlloc`, and pieces of a pool that was destroyed. An event behind the free says when; it is asked and never
//! waited for. Pools that live are asked themselves.
//!
//! What cannot be marked with an event now is marked later: the stream has then been told more, so that the event comes
//! no earlier. Until the driver has said that the event was reached, or the context has ended, all of it stays counted.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::freeing::Place;
use super::{Block, MAY_SHRINK, PoolAccount};
use crate::driver::{DefaultStream, Relaxed, real};
use crate::memory::allocations::Allocation;
use crate::memory::mappings::Backing;
use crate::runtime::capture;
use crate::runtime::devices::{
    Device, context_of_stream, current_context, device_of_context, shared_context,
};
use crate::runtime::shim;
use crate::runtime::stream::Stream;

/// What is given back when it is dropped.
#[derive(Debug)]
pub(crate) enum Owed {
    /// Memory of `cuMemAlloc`.
    Linear(Allocation),
    /// A piece of a pool that was destroyed, or which other processes may import.
    Block(Block),
    /// A pool of which pieces were freed in this stream, if it is destroyed.
    #[expect(dead_code, reason = "held to be dropped")]
    Pool(Arc<PoolAccount>),
    /// What was mapped into a sparse array.
    SparseMappings(Vec<Arc<Backing>>),
}

/// What tells that a stream has got there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// An event, ours alone.
    Event(CUevent),
    /// None yet: one is recorded in this stream as soon as that succeeds.
    Missing(CUstream),
    /// None, and the stream can no longer be named: the end of its context tells.
    Impossible,
}

#[derive(Debug)]
struct Waiting {
    mark: Mark,
    context: CUcontext,
    owed: Owed,
}

impl Owed {
    /// What is counted on the device for it beside what pools count (bytes).
    fn bytes_on(&self, device: &Device) -> u64 {
        match self {
            Self::Linear(allocation) => allocation.own_bytes_on(device),
            Self::SparseMappings(memory) => memory.iter().map(|backing| backing.own_bytes_on(device)).sum(),
            Self::Block(block) => block.exported_bytes_on(device),
            Self::Pool(_) => 0,
        }
    }
}

/// What waited for streams of one context.
#[derive(Debug)]
#[must_use = "dropping it gives all of it back"]
pub(super) struct Taken(Vec<Waiting>);

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
        let context = if of_stream.is_null() {
            current_context()
        } else {
            of_stream
        };
        let stream = stream.explicit();
        self.wait_for(Place { stream, context }, owed);
    }

    /// As [`Ordered::after`], of a stream that was noted before.
    pub(super) fn wait_for(&self, Place { stream, context }: Place, owed: Owed) {
        let _relaxed = Relaxed::enter();
        let context = event_context(context);
        let mark = mark(stream, context);
        self.waiting.lock().push(Waiting { mark, context, owed });
        MAY_SHRINK.store(true, Ordering::Relaxed);
    }

    /// Gives back what streams have got to. `true` if anything is left.
    pub(crate) fn poll(&self) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return false;
        }
        let _relaxed = Relaxed::enter();
        for waiting in &mut *waiting {
            waiting.try_again();
        }
        let over: Vec<Waiting> = waiting.extract_if(.., |waiting| waiting.is_over()).collect();
        let is_left = !waiting.is_empty();
        drop(waiting);
        drop(over);
        is_left
    }

    /// What is counted on the device for what waits, beside what pools count (bytes).
    pub(super) fn owed_bytes(&self, device: &Device) -> u64 {
        let waiting = self.waiting.lock();
        waiting.iter().map(|waiting| waiting.owed.bytes_on(device)).sum()
    }

    /// The stream is about to end: what could not be marked in it is marked now or never.
    pub(super) fn stream_closing(&self, stream: CUstream) {
        let _relaxed = Relaxed::enter();
        let mut waiting = self.waiting.lock();
        for waiting in waiting
            .iter_mut()
            .filter(|waiting| waiting.mark == Mark::Missing(stream))
        {
            waiting.try_again();
            if waiting.mark == Mark::Missing(stream) {
                waiting.mark = Mark::Impossible;
            }
        }
    }

    /// Takes out what waits for streams of contexts that are about to end, and its events with it. Dropped, it is given
    /// back.
    pub(super) fn take(&self, contexts: &[CUcontext]) -> Taken {
        let mut waiting = self.waiting.lock();
        Taken(
            waiting
                .extract_if(.., |waiting| contexts.contains(&waiting.context))
                .collect(),
        )
    }

    /// The context did not end.
    pub(super) fn put_back(&self, taken: Taken) {
        self.waiting.lock().extend(taken.0);
        // A look meanwhile found nothing that is on its way.
        MAY_SHRINK.store(true, Ordering::Relaxed);
    }
}

impl Waiting {
    fn try_again(&mut self) {
        if let Mark::Missing(stream) = self.mark {
            self.mark = mark(stream, self.context);
        }
    }

    /// Whether the driver says that the stream has got there. An error proves nothing: the context may have broken, and
    /// keeps its memory until it ends; or this thread may not ask.
    fn is_over(&mut self) -> bool {
        let Mark::Event(event) = self.mark else {
            return false;
        };
        // SAFETY: our event, which is destroyed below or with its context.
        match unsafe { real::cuEventQuery(event) } {
            Ok(()) => {
                // SAFETY: as above; nobody else knows it.
                let _ = unsafe { real::cuEventDestroy_v2(event) };
                true
            }
            Err(_) => false,
        }
    }
}

/// The context in which to make an event for a stream of `context`: a green one may be current to another thread, and then
/// to no other.
fn event_context(context: CUcontext) -> CUcontext {
    if context == current_context() {
        return context;
    }
    shim::built()
        .and_then(|shim| Some(shared_context(shim, context, device_of_context(shim, context)?)))
        .unwrap_or(context)
}

/// An event behind what the stream was told to do so far.
fn mark(stream: CUstream, context: CUcontext) -> Mark {
    let is_elsewhere = context != current_context();
    // SAFETY: a context that the driver has named; popped again below.
    if is_elsewhere && unsafe { real::cuCtxPushCurrent_v2(context) }.is_err() {
        return Mark::Missing(stream);
    }
    let event = record(stream);
    if is_elsewhere {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push above.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    match event {
        Some(event) => Mark::Event(event),
        // Another thread would mark a stream of its own.
        None if stream == super::freeing::OWN_DEFAULT => Mark::Impossible,
        None => Mark::Missing(stream),
    }
}

fn record(stream: CUstream) -> Option<CUevent> {
    // Recorded during a capture of this very stream, it would become a part of the graph.
    if capture::is_capturing(stream, DefaultStream::Legacy) {
        return None;
    }
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes an event or nothing.
    unsafe { real::cuEventCreate(&raw mut event, CUevent_flags::DISABLE_TIMING.0) }.ok()?;
    // SAFETY: our event, and a stream that has not ended.
    if unsafe { real::cuEventRecord(event, stream) }.is_err() {
        // SAFETY: nobody else knows it.
        let _ = unsafe { real::cuEventDestroy_v2(event) };
        return None;
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocations::{Holds, Kind};
    use crate::memory::charge::Charge;
    use crate::runtime::shim::Shim;

    #[test]
    fn what_waits_for_a_stream_is_known_to_be_uncertain() {
        let (ordered, device) = (Ordered::default(), Device::for_tests(Shim::for_tests()));
        let holds = Holds::Charge(Charge::for_tests());
        ordered.waiting.lock().push(Waiting {
            mark: Mark::Impossible,
            context: CUcontext::NULL,
            owed: Owed::Linear(Allocation::new(CUcontext::NULL, Kind::Linear, holds)),
        });
        assert_eq!(ordered.owed_bytes(device), 1);
        assert!(ordered.poll(), "no event tells of it");
        drop(ordered.take(&[CUcontext::NULL]));
        assert_eq!(ordered.owed_bytes(device), 0);
    }
}
