//! The streams in use: how a launch names one, and where its entry is.

use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, handle_alloc_error};

use vcuda_driver_api::prelude::*;

use super::lane::{self, Lane};
use super::sys;
use super::track::{FREE, TAKEN, Track};
use crate::capture::Default;
use crate::devices::{device_of_context, shared_context};
use crate::ffi::real;
use crate::shim;

/// Streams that are measured at a time. Their memory is only touched when they are used.
const TRACKS: usize = 4096;
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

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A stream's identity in this process: its handle, or for a default stream what it belongs to. Handles are aligned, so
/// the low bits tell them apart.
#[inline]
fn key_of(stream: Stream) -> u64 {
    let handle = stream.explicit().0;
    match handle {
        0 | LEGACY => legacy_key(),
        PER_THREAD => per_thread_key(),
        _ => handle as u64,
    }
}

#[inline(never)]
fn legacy_key() -> u64 {
    match crate::devices::current_context().0 as u64 {
        0 => FREE,
        context => context & !7 | 1,
    }
}

/// Of the context's own stream of this thread.
#[inline(never)]
fn per_thread_key() -> u64 {
    match crate::devices::current_context().0 as u64 {
        0 => FREE,
        context => (context ^ sys::thread_mark().rotate_left(13)) & !7 | 2,
    }
}

/// Entries that one word of [`Tracks::taken`] tells of.
const PER_WORD: usize = 64;

/// The streams in use.
#[derive(Debug)]
pub(super) struct Tracks {
    tracks: &'static [Track; TRACKS],
    /// Which entries were ever taken, a bit each: each look at all of them would else touch a page per entry.
    taken: [AtomicU64; TRACKS / PER_WORD],
}

/// Goes through the entries in use.
#[derive(Debug)]
pub(super) struct InUse<'a> {
    tracks: &'a Tracks,
    word: usize,
    bits: u64,
}

impl<'a> Iterator for InUse<'a> {
    type Item = &'a Track;

    #[inline(never)]
    fn next(&mut self) -> Option<&'a Track> {
        loop {
            while self.bits == 0 {
                self.bits = self.tracks.taken.get(self.word)?.load(Ordering::Relaxed);
                self.word += 1;
            }
            let position = (self.word - 1) * PER_WORD + self.bits.trailing_zeros() as usize;
            self.bits &= self.bits - 1;
            let track = self.tracks.tracks.get(position)?;
            if track.in_use() {
                return Some(track);
            }
        }
    }
}

impl Tracks {
    pub(super) fn new() -> Self {
        Self {
            tracks: zeroed_tracks(),
            taken: [const { AtomicU64::new(0) }; TRACKS / PER_WORD],
        }
    }

    /// Every entry in use.
    pub(super) fn all(&self) -> InUse<'_> {
        InUse {
            tracks: self,
            word: 0,
            bits: 0,
        }
    }

    /// The entry of a stream, made when first needed. Nothing without a context, for a device that the container was not
    /// given, or if all places are taken.
    #[inline]
    pub(super) fn find(&'static self, lanes: &'static [Lane], stream: Stream) -> Option<&'static Track> {
        let key = key_of(stream);
        if key == FREE {
            return None;
        }
        match self
            .places(key)
            .find(|track| track.key.load(Ordering::Acquire) == key)
        {
            Some(track) => Some(track),
            None => self.claim(lanes, key, stream),
        }
    }

    /// The entry of a stream, if it has one in the first place where that can be, as nearly all have.
    #[inline(always)]
    pub(super) fn at_first_place(&self, stream: Stream) -> Option<&Track> {
        let key = key_of(stream);
        self.places(key)
            .next()
            .filter(|track| key != FREE && track.key.load(Ordering::Acquire) == key)
    }

    /// The entry of a stream, if it has one.
    pub(super) fn known(&self, stream: Stream) -> Option<&Track> {
        let key = key_of(stream);
        self.places(key)
            .find(|track| key != FREE && track.key.load(Ordering::Acquire) == key)
    }

    #[inline]
    fn places(&self, key: u64) -> impl Iterator<Item = &Track> {
        positions(key).filter_map(|position| self.tracks.get(position))
    }

    #[cold]
    fn claim(&'static self, lanes: &'static [Lane], key: u64, stream: Stream) -> Option<&'static Track> {
        let context = context_of(stream)?;
        let device = device_of_context(shim::get()?, context)?;
        device.notice_contexts();
        let (_, lane) = device.region()?;
        let lane = lanes.get(lane.get())?;
        let asked_in = shared_context(device.shim(), context, device);
        let unused_ns = lane::now_ns().saturating_sub(UNUSED_NS);
        let (position, track) = self
            .take_place(key, |track| !track.is_held())
            .or_else(|| self.take_place(key, |track| track.is_unused_since(unused_ns)))?;
        track.reset();
        // Before the key: what is launched on the stream is rung for later, and who is rung for sees the bit.
        self.taken
            .get(position / PER_WORD)?
            .fetch_or(1 << (position % PER_WORD), Ordering::Relaxed);
        if track.context.swap(context.0, Ordering::Relaxed) != context.0 {
            // Events belong to their context; those of another one are of no use here.
            for mark in &track.marks {
                let event = CUevent(mark.event.swap(0, Ordering::Relaxed));
                // SAFETY: an event of ours, or none; if its context is gone, the driver says so.
                let _ = unsafe { real::cuEventDestroy_v2(event) };
            }
        }
        track.asked_in.store(asked_in.0, Ordering::Relaxed);
        track
            .lane
            .store(core::ptr::from_ref(lane).cast_mut(), Ordering::Relaxed);
        track.key.store(key, Ordering::Release);
        Some(track)
    }
}

impl Tracks {
    /// Takes the first place for `key` of which `may` says so.
    fn take_place(&'static self, key: u64, may: impl Fn(&Track) -> bool) -> Option<(usize, &'static Track)> {
        positions(key)
            .filter_map(|position| Some((position, self.tracks.get(position)?)))
            .find(|(_, track)| {
                let held = track.key.load(Ordering::Acquire);
                held != TAKEN
                    && may(track)
                    && track
                        .key
                        .compare_exchange(held, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            })
    }
}

/// Entries without a stream. The kernel gives their memory, some 18 MB, only where it is written: asked for by `mmap`, as an
/// allocator that is asked for zeroed memory of such an alignment writes all of it.
fn zeroed_tracks() -> &'static [Track; TRACKS] {
    let layout = Layout::new::<[Track; TRACKS]>();
    // SAFETY: new memory, wherever the kernel has room.
    let zeroed = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            layout.size(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if zeroed == libc::MAP_FAILED {
        handle_alloc_error(layout);
    }
    // SAFETY: mapped above for good, of this size, and pages are aligned to more than an entry is; all bytes zero are a track
    // without a stream: it consists of atomic integers, booleans and pointers.
    unsafe { &*zeroed.cast() }
}

/// Where the entry of a key can be.
#[inline]
fn positions(key: u64) -> impl Iterator<Item = usize> {
    let hash = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).unwrap_or(0);
    (0..PROBES).map(move |probe| (hash + probe) % TRACKS)
}

/// The context of a stream (CUDA Driver API, `cuStreamGetCtx`).
fn context_of(stream: Stream) -> Option<CUcontext> {
    let handle = stream.explicit();
    let mut context = CUcontext::NULL;
    if handle.0 > PER_THREAD {
        // SAFETY: the application's handle, as it gave it to the driver; the driver writes a context or nothing.
        unsafe { real::cuStreamGetCtx(handle, &raw mut context) }.ok()?;
    } else {
        context = crate::devices::current_context();
    }
    (!context.is_null()).then_some(context)
}

/// The lane of the stream's device: for a launch that no entry could be had for.
#[cold]
pub(super) fn lane_of_stream(stream: Stream) -> Option<usize> {
    let (_, lane) = device_of_context(shim::get()?, context_of(stream)?)?.region()?;
    Some(lane.get())
}
