//! A stream as the application's calls name it.

use vcuda_driver_api::prelude::*;

use super::capture;
use super::shim::devices::current_context;
use crate::driver::{Call, DefaultStream, Relaxed, real};

/// A stream as a launch names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// The handle in the call.
    pub(crate) handle: CUstream,
    /// The meaning of handle 0.
    pub(crate) default: DefaultStream,
}

impl Stream {
    /// Whether the driver reports that all of the stream's work is done. A captured stream may not be queried.
    pub(crate) fn has_run_dry(self) -> bool {
        let _relaxed = Relaxed::enter();
        // SAFETY: a stream that the application uses in this call, or one that it cannot destroy before this visit is over.
        !capture::is_captured(self.handle, self.default)
            && unsafe { real::cuStreamQuery(self.explicit()) }.is_ok()
    }

    /// A stream as a call of the application means it.
    #[inline]
    pub(crate) fn of_call(call: &Call<'_, CUresult>, handle: CUstream) -> Self {
        Self { handle, default: call.default_stream }
    }

    /// A stream as a function without `_ptsz` means it.
    pub(crate) const fn legacy(handle: CUstream) -> Self {
        Self { handle, default: DefaultStream::Legacy }
    }

    /// The stream with this key ([`Stream::key`]), as the calling thread names it; `None` for a default stream of another context or
    /// thread, and for a key that is none.
    pub(crate) fn of_key(key: u64) -> Option<Self> {
        let handle = match key & 7 {
            0 => usize::try_from(key).ok().filter(|handle| *handle != 0)?,
            1 if key == legacy_key() => LEGACY,
            2 if key == per_thread_key() => PER_THREAD,
            _ => return None,
        };
        Some(Self::legacy(CUstream(handle)))
    }

    /// The handle that means this stream in every function.
    pub(crate) fn explicit(self) -> CUstream {
        match (self.handle.0, self.default) {
            (0, DefaultStream::PerThread) => CUstream(PER_THREAD),
            _ => self.handle,
        }
    }

    /// Identity of the stream in this process: its handle, or for a default stream the context or thread that it
    /// belongs to. Handles are aligned, so the low bits tell the two apart. It is never 0, even if no context is
    /// current.
    #[inline]
    pub(crate) fn key(self) -> u64 {
        let handle = self.explicit().0;
        match handle {
            0 | LEGACY => legacy_key(),
            PER_THREAD => per_thread_key(),
            _ => handle as u64,
        }
    }
}

/// `CU_STREAM_LEGACY`: each context has one.
pub(crate) const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: each thread has one in each context. The last of the handles that mean default streams.
pub(crate) const PER_THREAD: usize = 2;

#[inline(never)]
fn legacy_key() -> u64 {
    current_context().0 as u64 | 1
}

/// Key of the current context's default stream of this thread.
#[inline(never)]
fn per_thread_key() -> u64 {
    let context = current_context().0 as u64;
    (context ^ thread_number().rotate_left(13)) & !7 | 2
}

/// A number that no other living thread of this process has.
#[inline]
fn thread_number() -> u64 {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as u64 }
}
