//! The streams in whose order pieces of a pool were freed. The driver keeps such a piece until its stream reaches the
//! free. A live pool tells so itself. A destroyed pool cannot be asked: from then on an event in each of these
//! streams tells (`ordered.rs`).

use std::collections::HashMap;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::runtime::by_number::ByNumber;
use crate::runtime::shim::devices::{context_of_stream, current_context};
use crate::runtime::stream::{LEGACY, PER_THREAD, Stream};

/// A stream by a handle that means it in every thread, and its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// `CU_STREAM_LEGACY`, or the stream's own handle.
    pub(super) stream: CUstream,
    /// The context that it belongs to.
    pub(super) context: CUcontext,
}

/// A context's default stream.
const CONTEXT_DEFAULT: CUstream = CUstream(LEGACY);
/// The calling thread's own default stream.
pub(super) const OWN_DEFAULT: CUstream = CUstream(PER_THREAD);

/// The streams of one pool. A stream stays known until it or its context ends: whether it has reached its frees is
/// asked only if the pool is destroyed.
#[derive(Debug, Default)]
pub(super) struct Freeing(Mutex<HashMap<(CUstream, CUcontext), CUcontext, ByNumber>>);

impl Freeing {
    /// Notes that a piece is about to be freed in the order of `stream`. Returns `false`, and notes nothing, if only
    /// the calling thread can name the stream.
    pub(super) fn note(&self, stream: Stream) -> bool {
        let handle = stream.explicit();
        let (handle, of) = match handle {
            OWN_DEFAULT => return false,
            CUstream::NULL | CONTEXT_DEFAULT => (CONTEXT_DEFAULT, current_context()),
            other => (other, CUcontext::NULL),
        };
        let is_known = self.0.lock().contains_key(&(handle, of));
        if !is_known {
            // Asked without the lock.
            let context = if of.is_null() { context_of_stream(handle) } else { of };
            self.0.lock().insert((handle, of), context);
        }
        true
    }

    /// Takes out the streams for which `is_meant` is true.
    pub(super) fn remove(&self, is_meant: impl Fn(Place) -> bool) -> Vec<Place> {
        let mut known = self.0.lock();
        let meant =
            known.extract_if(|(stream, _), context| is_meant(Place { stream: *stream, context: *context }));
        meant.map(|((stream, _), context)| Place { stream, context }).collect()
    }

    /// Puts back streams that were taken out, as they did not end.
    pub(super) fn put_back(&self, places: Vec<Place>) {
        let mut known = self.0.lock();
        for Place { stream, context } in places {
            let of = if stream == CONTEXT_DEFAULT { context } else { CUcontext::NULL };
            known.insert((stream, of), context);
        }
    }
}
