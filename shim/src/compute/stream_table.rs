//! The streams in use: how a launch names one, and where its entry is.

use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use vcuda_driver_api::prelude::*;

use super::device_limiter::{self, DeviceLimiter};
use super::stream_state::{FREE, StreamState, TAKEN};
use super::sys;
use crate::driver::real;
use crate::runtime::capture::Default;
use crate::runtime::devices::{device_of_context, shared_context};
use crate::runtime::shim;

/// Streams that are measured at a time. Their memory is only touched when they are used.
const STREAMS_MAX: usize = 4096;
/// Places where a stream's entry can be.
const PROBES: usize = 16;
/// A stream without work in flight for this long may lose its entry to another one (ns).
const UNUSED_NS: u64 = 1_000_000_000;

/// A stream as a launch names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// The handle.
    pub(crate) handle: CUstream,
    /// What handle 0 means.
    pub(crate) default: Default,
}

impl Stream {
    /// As a function without `_ptsz` means it.
    pub(crate) const fn legacy(handle: CUstream) -> Self {
        Self {
            handle,
            default: Default::Legacy,
        }
    }

    /// As a function with `_ptsz` means it.
    pub(crate) const fn per_thread(handle: CUstream) -> Self {
        Self {
            handle,
            default: Default::PerThread,
        }
    }

    /// What tells this stream from others in this process; not 0.
    pub(crate) fn identity(self) -> u64 {
        key_of(self).max(1)
    }

    /// The handle that means this stream in every function.
    pub(crate) fn explicit(self) -> CUstream {
        match (self.handle.0, self.default) {
            (0, Default::PerThread) => CUstream(PER_THREAD),
            _ => self.handle,
        }
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A stream's identity in this process: its handle, or for a default stream what it belongs to. Handles are aligned, so
/// the low bits tell them apart.
#[inline]
fn key_of(stream: Stream) -> u64 {
    let handle = stream.explicit().0;
    if handle > PER_THREAD {
        handle as u64
    } else {
        default_key(handle)
    }
}

fn default_key(handle: usize) -> u64 {
    let context = crate::runtime::devices::current_context().0 as u64;
    if context == 0 {
        return FREE;
    }
    if handle == PER_THREAD {
        // The context's own stream of this thread.
        (context ^ sys::thread_mark().rotate_left(13)) & !7 | 2
    } else {
        context & !7 | 1
    }
}

/// Entries that one word of [`StreamTable::taken`] tells of.
const PER_WORD: usize = 64;

/// The streams in use.
#[derive(Debug)]
pub(super) struct StreamTable {
    streams: Box<[StreamState]>,
    /// Which entries were ever taken, a bit each: each look at all of them would else touch a page per entry.
    taken: [AtomicU64; STREAMS_MAX / PER_WORD],
}

/// Goes through the entries in use.
#[derive(Debug)]
pub(super) struct InUse<'a> {
    streams: &'a StreamTable,
    word: usize,
    bits: u64,
}

impl<'a> Iterator for InUse<'a> {
    type Item = &'a StreamState;

    #[inline(never)]
    fn next(&mut self) -> Option<&'a StreamState> {
        loop {
            while self.bits == 0 {
                self.bits = self.streams.taken.get(self.word)?.load(Ordering::Relaxed);
                self.word += 1;
            }
            let position = (self.word - 1) * PER_WORD + self.bits.trailing_zeros() as usize;
            self.bits &= self.bits - 1;
            let stream_state = self.streams.streams.get(position)?;
            if stream_state.in_use() {
                return Some(stream_state);
            }
        }
    }
}

impl StreamTable {
    pub(super) fn new() -> Self {
        Self {
            streams: zeroed_streams(),
            taken: [const { AtomicU64::new(0) }; STREAMS_MAX / PER_WORD],
        }
    }

    /// Every entry in use.
    pub(super) fn all(&self) -> InUse<'_> {
        InUse {
            streams: self,
            word: 0,
            bits: 0,
        }
    }

    /// The entry of a stream, made when first needed. Nothing without a context, for a device that the container was not
    /// given, or if all places are taken.
    #[inline]
    pub(super) fn find(
        &'static self,
        limiters: &'static [DeviceLimiter],
        stream: Stream,
    ) -> Option<&'static StreamState> {
        let key = key_of(stream);
        if key == FREE {
            return None;
        }
        match self
            .places(key)
            .find(|stream_state| stream_state.key.load(Ordering::Acquire) == key)
        {
            Some(stream_state) => Some(stream_state),
            None => self.claim(limiters, key, stream),
        }
    }

    /// The entry of a stream, if it has one.
    pub(super) fn known(&self, stream: Stream) -> Option<&StreamState> {
        let key = key_of(stream);
        self.places(key)
            .find(|stream_state| key != FREE && stream_state.key.load(Ordering::Acquire) == key)
    }

    #[inline]
    fn places(&self, key: u64) -> impl Iterator<Item = &StreamState> {
        positions(key).filter_map(|position| self.streams.get(position))
    }

    #[cold]
    fn claim(
        &'static self,
        limiters: &'static [DeviceLimiter],
        key: u64,
        stream: Stream,
    ) -> Option<&'static StreamState> {
        let context = context_of(stream)?;
        let device = device_of_context(shim::get()?, context)?;
        device.notice_contexts();
        let (_, limiter) = device.region()?;
        let limiter = limiters.get(limiter.get())?;
        let asked_in = shared_context(device.shim(), context, device);
        let unused_ns = device_limiter::now_ns().saturating_sub(UNUSED_NS);
        let (position, stream_state) = self
            .take_place(key, |stream_state| !stream_state.is_held())
            .or_else(|| self.take_place(key, |stream_state| stream_state.is_unused_since(unused_ns)))?;
        stream_state.reset();
        // Before the key: what is launched on the stream is rung for later, and who is rung for sees the bit.
        self.taken
            .get(position / PER_WORD)?
            .fetch_or(1 << (position % PER_WORD), Ordering::Relaxed);
        if stream_state.context.swap(context.0, Ordering::Relaxed) != context.0 {
            // Events belong to their context; those of another one are of no use here.
            for timing_event in &stream_state.timing_events {
                let event = CUevent(timing_event.event.swap(0, Ordering::Relaxed));
                // SAFETY: an event of ours, or none; if its context is gone, the driver says so.
                let _ = unsafe { real::cuEventDestroy_v2(event) };
            }
        }
        stream_state.asked_in.store(asked_in.0, Ordering::Relaxed);
        stream_state
            .limiter
            .store(core::ptr::from_ref(limiter).cast_mut(), Ordering::Relaxed);
        stream_state.key.store(key, Ordering::Release);
        Some(stream_state)
    }
}

impl StreamTable {
    /// Takes the first place for `key` of which `may` says so.
    fn take_place(
        &'static self,
        key: u64,
        may: impl Fn(&StreamState) -> bool,
    ) -> Option<(usize, &'static StreamState)> {
        positions(key)
            .filter_map(|position| Some((position, self.streams.get(position)?)))
            .find(|(_, stream_state)| {
                let held = stream_state.key.load(Ordering::Acquire);
                held != TAKEN
                    && may(stream_state)
                    && stream_state
                        .key
                        .compare_exchange(held, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            })
    }
}

/// Entries without a stream. The kernel gives their memory, some 18 MB, only where it is written.
fn zeroed_streams() -> Box<[StreamState]> {
    let Ok(layout) = Layout::array::<StreamState>(STREAMS_MAX) else {
        return Box::default();
    };
    // SAFETY: the layout is of more than no bytes.
    let zeroed = unsafe { alloc_zeroed(layout) }.cast::<StreamState>();
    if zeroed.is_null() {
        handle_alloc_error(layout);
    }
    let streams = core::ptr::slice_from_raw_parts_mut(zeroed, STREAMS_MAX);
    // SAFETY: allocated above by the global allocator with this layout; all bytes zero are a stream entry without a stream: it
    // consists of atomic integers, booleans and pointers.
    unsafe { Box::from_raw(streams) }
}

/// Where the entry of a key can be.
#[inline]
fn positions(key: u64) -> impl Iterator<Item = usize> {
    let hash = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).unwrap_or(0);
    (0..PROBES).map(move |probe| (hash + probe) % STREAMS_MAX)
}

/// The context of a stream (CUDA Driver API, `cuStreamGetCtx`).
fn context_of(stream: Stream) -> Option<CUcontext> {
    let handle = stream.explicit();
    let mut context = CUcontext::NULL;
    if handle.0 > PER_THREAD {
        // SAFETY: the application's handle, as it gave it to the driver; the driver writes a context or nothing.
        unsafe { real::cuStreamGetCtx(handle, &raw mut context) }.ok()?;
    } else {
        context = crate::runtime::devices::current_context();
    }
    (!context.is_null()).then_some(context)
}

/// The limiter of the stream's device: for a launch that no entry could be had for.
#[cold]
pub(super) fn limiter_of_stream(stream: Stream) -> Option<usize> {
    let (_, limiter) = device_of_context(shim::get()?, context_of(stream)?)?.region()?;
    Some(limiter.get())
}
