//! The stream captures of this process. Work launched into a capture does not run yet. So it is neither charged nor
//! throttled, and no event is recorded behind it (I5). The driver is asked only while a capture is open, so that a
//! program without captures pays one load (I6).
//!
//! A capture that began unseen, by a private interface of the driver, is not known here. It is not broken either: the
//! shim makes its own calls in relaxed mode ([`crate::driver::Relaxed`]). It also records no event into a captured
//! stream ([`is_captured`]), which would become an event of the capture.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vcuda_driver_api::prelude::*;

use super::visits;
use crate::driver::{DefaultStream, real};

/// Captures begun and not ended in this process.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Open captures that have no entry in [`KNOWN`].
static UNKNOWN: AtomicU32 = AtomicU32::new(0);

/// The captures that are told apart.
static KNOWN: [Entry; 32] = [const { Entry::new() }; 32];

/// An open capture.
#[derive(Debug)]
struct Entry {
    /// The stream on which it began; 0 if the entry is free.
    stream: AtomicU64,
    /// The stream's context; 0: not known.
    context: AtomicUsize,
}

impl Entry {
    const fn new() -> Self {
        Self { stream: AtomicU64::new(0), context: AtomicUsize::new(0) }
    }

    /// Frees the entry of a capture that has ended. Returns `false` if another thread has done so.
    fn end(&self, stream: u64) -> bool {
        self.context.store(0, Ordering::Relaxed);
        let freed = self.stream.compare_exchange(stream, 0, Ordering::Relaxed, Ordering::Relaxed);
        if freed.is_ok() {
            OPEN.fetch_sub(1, Ordering::SeqCst);
        }
        freed.is_ok()
    }
}

/// A capture that is about to begin.
#[derive(Debug)]
#[must_use = "a capture that does not begin ends here"]
pub(crate) struct Beginning {
    entry: Option<&'static Entry>,
    stream: u64,
}

/// Notes that a capture is about to begin on `stream` (a [`super::stream::Stream::key`], not 0) of `context`.
pub(crate) fn begins(stream: u64, context: CUcontext) -> Beginning {
    OPEN.fetch_add(1, Ordering::SeqCst);
    visits::wait_for_all();
    let is_taken = |entry: &&Entry| {
        let free = entry.stream.compare_exchange(0, stream, Ordering::Relaxed, Ordering::Relaxed);
        free.is_ok()
    };
    let entry = KNOWN.iter().find(is_taken);
    match entry {
        Some(entry) => {
            entry.context.store(context.0, Ordering::Relaxed);
        }
        None => drop(UNKNOWN.fetch_add(1, Ordering::Relaxed)),
    }
    Beginning { entry, stream }
}

impl Beginning {
    /// Undoes [`begins`], as the driver did not begin the capture.
    pub(crate) fn failed(self) {
        match self.entry {
            Some(entry) => drop(entry.end(self.stream)),
            None => unknown_ended(),
        }
    }
}

/// Notes that the driver has ended the capture of `stream`. One that began unseen is not counted down.
pub(crate) fn ended(stream: u64) {
    if any_open() && !known_ended(stream) {
        unknown_ended();
    }
}

/// Notes that `stream` is gone, and with it a capture that began on it.
pub(crate) fn stream_ended(stream: u64) {
    if any_open() {
        known_ended(stream);
    }
}

/// Notes that `context` is gone with its streams, and with each capture that began on one of them.
pub(crate) fn context_ended(context: CUcontext) {
    if !any_open() {
        return;
    }
    let is_its = |entry: &&Entry| entry.context.load(Ordering::Relaxed) == context.0;
    for entry in KNOWN.iter().filter(is_its) {
        let stream = entry.stream.load(Ordering::Relaxed);
        if stream != 0 {
            entry.end(stream);
        }
    }
}

fn known_ended(stream: u64) -> bool {
    let is_it = |entry: &&Entry| entry.stream.load(Ordering::Relaxed) == stream;
    KNOWN.iter().filter(is_it).any(|entry| entry.end(stream))
}

fn unknown_ended() {
    let one_less = |count: u32| count.checked_sub(1);
    if UNKNOWN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        OPEN.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether any capture is open.
#[inline]
pub(crate) fn any_open() -> bool {
    OPEN.load(Ordering::SeqCst) != 0
}

/// Whether work on `stream` is captured. An error of the driver counts as yes: it answers 906 on the legacy stream
/// while a capture forbids its use (CUDA Driver API, `cuStreamIsCapturing`).
#[inline]
pub(crate) fn is_capturing(stream: CUstream, default: DefaultStream) -> bool {
    any_open() && is_captured(stream, default)
}

/// As [`is_capturing`], also for a capture that began unseen: the driver is always asked.
#[cold]
pub(crate) fn is_captured(stream: CUstream, default: DefaultStream) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    let answer = match default {
        // SAFETY: the driver writes a status or nothing; the question is allowed during a capture.
        DefaultStream::Legacy => unsafe { real::cuStreamIsCapturing(stream, &raw mut status) },
        // SAFETY: as above.
        DefaultStream::PerThread => unsafe { real::cuStreamIsCapturing_ptsz(stream, &raw mut status) },
    };
    answer.is_err() || status != CUstreamCaptureStatus::NONE
}

/// The driver's answer to an allocation that the quota refuses, if an open capture forbids the calling thread to allocate: the
/// driver looks at its memory only afterwards, and ends the capture ([`crate::driver::Relaxed`]).
#[cold]
pub(crate) fn forbids_allocation() -> Option<CUerror> {
    /// More than any GPU has: where no capture forbids the call, it takes nothing.
    const IMPOSSIBLE_BYTES: usize = 1 << 62;
    if !any_open() {
        return None;
    }
    let mut address = 0;
    // SAFETY: the place is ours.
    let answer = unsafe { real::cuMemAlloc_v2(&raw mut address, IMPOSSIBLE_BYTES) };
    let capture = CUerror::STREAM_CAPTURE_UNSUPPORTED.code()..=CUerror::STREAM_CAPTURE_WRONG_THREAD.code();
    answer.err().filter(|error| capture.contains(&error.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, as the captures of a process are counted together.
    #[test]
    fn every_capture_that_begins_is_counted_until_it_ends() {
        let [one, two] = [CUcontext(1), CUcontext(2)];
        assert!(!any_open());
        begins(8, one).failed();
        assert!(!any_open());

        let _open = begins(8, one);
        begins(8, one).failed();
        assert!(any_open(), "the first one goes on");
        stream_ended(9);
        ended(8);
        assert!(!any_open());

        let streams = 1..=100;
        for stream in streams.clone() {
            let _open = begins(stream, one);
        }
        begins(101, one).failed();
        for stream in streams.rev() {
            assert!(any_open());
            ended(stream);
        }
        assert!(!any_open(), "more than have a place are counted too");
        ended(1);
        assert!(!any_open(), "one that began unseen");

        let _open = begins(8, one);
        let _open = begins(16, two);
        context_ended(one);
        assert!(any_open());
        context_ended(two);
        assert!(!any_open(), "the streams went with their contexts");
    }
}
