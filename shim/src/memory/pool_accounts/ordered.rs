//! Memory that is freed once a stream reaches the free (`cuMemFreeAsync`), and of which the driver tells nothing
//! itself: memory of `cuMemAlloc`, and pieces of a pool that was destroyed. An event behind the free tells. It is
//! queried and never waited for. Live pools are asked themselves.
//!
//! If no event can be recorded now, one is recorded later: behind more work, so that it is reached no earlier. All of
//! the memory stays counted until the driver says that the event was reached, or the context has ended.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::freeing::Place;
use super::recount::may_shrink;
use super::{Block, PoolAccount};
use crate::driver::{DefaultStream, Relaxed, real};
use crate::memory::allocations::Allocation;
use crate::memory::mappings::Backing;
use crate::runtime::capture;
use crate::runtime::shim;
use crate::runtime::shim::devices::{
    Device, context_of_stream, current_context, device_of_context, shared_context,
};
use crate::runtime::stream::Stream;

/// Memory that is given back when the value is dropped.
#[derive(Debug)]
pub(crate) enum DeferredFree {
    /// Memory of `cuMemAlloc`.
    Linear(Allocation),
    /// A piece of a pool that was destroyed, or which other processes may import.
    Block(Block),
    /// The account of a pool of which pieces were freed in this stream, in case it is destroyed.
    #[expect(dead_code, reason = "held to be dropped")]
    Pool(Arc<PoolAccount>),
    /// Memory that was mapped into a sparse array.
    SparseMappings(Vec<Arc<Backing>>),
}

/// The event that tells that a stream has reached a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndEvent {
    /// An event of the shim.
    Event(CUevent),
    /// None yet: an event is recorded in this stream as soon as that succeeds.
    Missing(CUstream),
    /// No event, and the stream can no longer be named: the end of its context tells.
    Impossible,
}

#[derive(Debug)]
struct Waiting {
    event: EndEvent,
    context: CUcontext,
    deferred: DeferredFree,
}

impl DeferredFree {
    /// Bytes counted on the device for it, besides what pools count.
    fn bytes_on(&self, device: &Device) -> u64 {
        match self {
            Self::Linear(allocation) => allocation.own_bytes_on(device),
            Self::SparseMappings(memory) => memory.iter().map(|backing| backing.own_bytes_on(device)).sum(),
            Self::Block(block) => block.exported_bytes_on(device),
            Self::Pool(_) => 0,
        }
    }
}

/// The entries that waited for streams of some contexts.
#[derive(Debug)]
#[must_use = "dropping it gives all of it back"]
pub(super) struct RemovedEntries(Vec<Waiting>);

/// Memory that waits for streams, in the order of the frees.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    waiting: Mutex<Vec<Waiting>>,
}

impl Ordered {
    /// Gives back `deferred` once the stream has done all its work up to now.
    pub(crate) fn after(&self, stream: Stream, deferred: DeferredFree) {
        let _relaxed = Relaxed::enter();
        let of_stream = context_of_stream(stream.explicit());
        let context = if of_stream.is_null() { current_context() } else { of_stream };
        let stream = stream.explicit();
        self.wait_for(Place { stream, context }, deferred);
    }

    /// As [`Ordered::after`], for a stream that was noted before.
    pub(super) fn wait_for(&self, Place { stream, context }: Place, deferred: DeferredFree) {
        let _relaxed = Relaxed::enter();
        let context = event_context(context);
        let event = record_behind(stream, context);
        self.waiting.lock().push(Waiting { event, context, deferred });
        may_shrink();
    }

    /// Gives back memory whose streams have reached its free. Returns `true` if any is left.
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

    /// Bytes counted on the device for memory that waits, besides what pools count.
    pub(super) fn deferred_bytes(&self, device: &Device) -> u64 {
        let waiting = self.waiting.lock();
        waiting.iter().map(|waiting| waiting.deferred.bytes_on(device)).sum()
    }

    /// Prepares for the end of a stream: entries without an event get one now or never.
    pub(super) fn stream_closing(&self, stream: CUstream) {
        let _relaxed = Relaxed::enter();
        let mut waiting = self.waiting.lock();
        for waiting in waiting.iter_mut().filter(|waiting| waiting.event == EndEvent::Missing(stream)) {
            waiting.try_again();
            if waiting.event == EndEvent::Missing(stream) {
                waiting.event = EndEvent::Impossible;
            }
        }
    }

    /// Takes out the entries that wait for streams of contexts that are about to end. Their events end with the
    /// contexts. Dropping the result gives the memory back.
    pub(super) fn remove(&self, contexts: &[CUcontext]) -> RemovedEntries {
        let mut waiting = self.waiting.lock();
        RemovedEntries(waiting.extract_if(.., |waiting| contexts.contains(&waiting.context)).collect())
    }

    /// Undoes [`Ordered::remove`], as the contexts did not end.
    pub(super) fn put_back(&self, taken: RemovedEntries) {
        self.waiting.lock().extend(taken.0);
        // A look meanwhile found nothing that waits.
        may_shrink();
    }
}

impl Waiting {
    fn try_again(&mut self) {
        if let EndEvent::Missing(stream) = self.event {
            self.event = record_behind(stream, self.context);
        }
    }

    /// Whether the driver says that the stream has reached the event. An error proves nothing: a broken context keeps
    /// its memory until it ends, and this thread may not be allowed to ask.
    fn is_over(&mut self) -> bool {
        let EndEvent::Event(event) = self.event else {
            return false;
        };
        // SAFETY: our event, which is destroyed below or with its context.
        match unsafe { real::cuEventQuery(event) } {
            Ok(()) => {
                // SAFETY: as above; only this entry knows it.
                let _ = unsafe { real::cuEventDestroy_v2(event) };
                true
            }
            Err(_) => false,
        }
    }
}

/// The context in which to make an event for a stream of `context`. A green context may be current to another thread,
/// and then to no other.
fn event_context(context: CUcontext) -> CUcontext {
    if context == current_context() {
        return context;
    }
    shim::built()
        .and_then(|shim| Some(shared_context(shim, context, device_of_context(shim, context)?)))
        .unwrap_or(context)
}

/// Records an event behind the stream's work so far.
fn record_behind(stream: CUstream, context: CUcontext) -> EndEvent {
    let is_elsewhere = context != current_context();
    // SAFETY: a context that the driver has named; popped again below.
    if is_elsewhere && unsafe { real::cuCtxPushCurrent_v2(context) }.is_err() {
        return EndEvent::Missing(stream);
    }
    let event = record(stream);
    if is_elsewhere {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push above.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    match event {
        Some(event) => EndEvent::Event(event),
        // Another thread would record the event in a stream of its own.
        None if stream == super::freeing::OWN_DEFAULT => EndEvent::Impossible,
        None => EndEvent::Missing(stream),
    }
}

fn record(stream: CUstream) -> Option<CUevent> {
    // An event that is recorded during a capture of this very stream would become a part of the graph.
    if capture::is_capturing(stream, DefaultStream::Legacy) {
        return None;
    }
    let mut event = CUevent::NULL;
    // SAFETY: the driver writes an event or nothing.
    unsafe { real::cuEventCreate(&raw mut event, CUevent_flags::DISABLE_TIMING.0) }.ok()?;
    // SAFETY: our event, and a stream that has not ended.
    if unsafe { real::cuEventRecord(event, stream) }.is_err() {
        // SAFETY: made above, and known only here.
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
            event: EndEvent::Impossible,
            context: CUcontext::NULL,
            deferred: DeferredFree::Linear(Allocation::new(CUcontext::NULL, Kind::Linear, holds)),
        });
        assert_eq!(ordered.deferred_bytes(device), 1);
        assert!(ordered.poll(), "no event tells of it");
        drop(ordered.remove(&[CUcontext::NULL]));
        assert_eq!(ordered.deferred_bytes(device), 0);
    }
}
