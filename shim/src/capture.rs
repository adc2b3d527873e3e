//! Whether streams are being captured into graphs. Asked of the driver only while a capture of this process is open, so
//! that a program without captures pays one load (I5, I6).

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_driver_api::prelude::*;

use crate::ffi::real;

/// Captures begun and not ended in this process.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// A capture has begun.
pub(crate) fn begun() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A capture has ended. One that began behind our back is not counted down.
pub(crate) fn ended() {
    let _ = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
}

/// Whether any capture is open.
#[inline]
pub(crate) fn any_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// What stream 0 means in the function that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// The legacy stream, for all threads.
    Legacy,
    /// The calling thread's own (`_ptsz`).
    PerThread,
}

/// Whether work on `stream` is captured. What the driver refuses to say counts as captured: it answers with 906 on the
/// legacy stream while a capture forbids it (CUDA Driver API, `cuStreamIsCapturing`).
#[inline]
pub(crate) fn is_capturing(stream: CUstream, default: Default) -> bool {
    any_open() && ask(stream, default)
}

#[cold]
fn ask(stream: CUstream, default: Default) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    let answer = match default {
        // SAFETY: the driver writes a status or nothing; the question is allowed during a capture.
        Default::Legacy => unsafe { real::cuStreamIsCapturing(stream, &raw mut status) },
        // SAFETY: as above.
        Default::PerThread => unsafe { real::cuStreamIsCapturing_ptsz(stream, &raw mut status) },
    };
    answer.is_err() || status != CUstreamCaptureStatus::NONE
}
