//! Whether streams are being captured into graphs. Asked of the driver only while a capture of this process is open, so
//! that a program without captures pays one load (I5, I6).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

use crate::ffi::real;

/// Captures begun and not ended in this process.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Captures that are told apart; more are counted all the same.
const KNOWN: usize = 32;
/// Which stream each open capture began on, and by which thread. 0: none.
static BEGUN: [(AtomicU64, AtomicU64); KNOWN] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; KNOWN];

/// A capture begins on `stream` (an identity, not 0), by the thread `thread`.
pub(crate) fn begun(stream: u64, thread: u64) {
    OPEN.fetch_add(1, Ordering::SeqCst);
    for (held, by) in &BEGUN {
        if held
            .compare_exchange(0, stream, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            by.store(thread, Ordering::Relaxed);
            return;
        }
    }
}

/// The capture that began on `stream` has ended, if one did: what began behind our back is not counted down.
pub(crate) fn ended(stream: u64) {
    if !any_open() {
        return;
    }
    for (held, by) in &BEGUN {
        if held.load(Ordering::Relaxed) == stream {
            by.store(0, Ordering::Relaxed);
            if held
                .compare_exchange(stream, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                let _ = OPEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| open.checked_sub(1));
                return;
            }
        }
    }
}

/// Whether `thread` began a capture that is open.
pub(crate) fn is_capturing_thread(thread: u64) -> bool {
    any_open() && BEGUN.iter().any(|(_, by)| by.load(Ordering::Relaxed) == thread)
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
