//! The streams in use: how a launch names one, and where its entry is.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

use super::lane::Lane;
use super::sys;
use super::track::{FREE, TAKEN, Track};
use crate::capture::Default;
use crate::devices::{Device, shared_context};
use crate::ffi::real;
use crate::shim;

/// Streams that are metered exactly.
const TRACKS: usize = 256;
/// Places where a stream's entry can be.
const PROBES: usize = 16;

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
    let context = crate::devices::current_context().0 as u64;
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

/// Entries that one word of [`Tracks::taken`] tells of.
const PER_WORD: usize = 64;

/// The streams in use.
#[derive(Debug)]
pub(super) struct Tracks {
    tracks: Box<[Track]>,
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
            tracks: (0..TRACKS).map(|_| Track::new()).collect(),
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
        let device = device_of(context)?;
        device.notice_contexts();
        let (_, lane) = device.region()?;
        let lane = lanes.get(lane.get())?;
        let asked_in = shared_context(device.shim(), context, device);
        let (position, track) = positions(key)
            .filter_map(|position| Some((position, self.tracks.get(position)?)))
            .find(|(_, track)| {
                track
                    .key
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            })?;
        // Before the key: what is launched on the stream is rung for later, and who is rung for sees the bit.
        self.taken
            .get(position / PER_WORD)?
            .fetch_or(1 << (position % PER_WORD), Ordering::Relaxed);
        if track.context.swap(context.0, Ordering::Relaxed) != context.0 {
            // Events belong to their context; those of another one are of no use here.
            for mark in &track.marks {
                mark.event.store(0, Ordering::Relaxed);
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
    let (_, lane) = device_of(context_of(stream)?)?.region()?;
    Some(lane.get())
}

/// A context's device. Only the current context can be asked for it.
fn device_of(context: CUcontext) -> Option<&'static Device> {
    if crate::devices::current_context() != context {
        return None;
    }
    shim::get()?.current_device()
}
