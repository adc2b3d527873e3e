//! A stream as the application's calls name it.

use vcuda_driver_api::prelude::*;

use super::devices::current_context;
use crate::driver::{Call, DefaultStream};

/// A stream as a launch names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// The handle.
    pub(crate) handle: CUstream,
    /// What handle 0 means.
    pub(crate) default: DefaultStream,
}

impl Stream {
    /// As a call of the application means it.
    #[inline]
    pub(crate) fn of_call(call: &Call<'_, CUresult>, handle: CUstream) -> Self {
        Self {
            handle,
            default: call.default_stream,
        }
    }

    /// As a function without `_ptsz` means it.
    pub(crate) const fn legacy(handle: CUstream) -> Self {
        Self {
            handle,
            default: DefaultStream::Legacy,
        }
    }

    /// What tells this stream from others in this process; not 0.
    pub(crate) fn identity(self) -> u64 {
        self.key().max(1)
    }

    /// The handle that means this stream in every function.
    pub(crate) fn explicit(self) -> CUstream {
        match (self.handle.0, self.default) {
            (0, DefaultStream::PerThread) => CUstream(PER_THREAD),
            _ => self.handle,
        }
    }

    /// A stream's identity in this process: its handle, or for a default stream what it belongs to. Handles are aligned, so
    /// the low bits tell them apart. 0: no context is current.
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
    match current_context().0 as u64 {
        0 => 0,
        context => context & !7 | 1,
    }
}

/// Of the context's own stream of this thread.
#[inline(never)]
fn per_thread_key() -> u64 {
    match current_context().0 as u64 {
        0 => 0,
        context => (context ^ thread_number().rotate_left(13)) & !7 | 2,
    }
}

/// A number that no other living thread of this process has.
#[inline]
fn thread_number() -> u64 {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as u64 }
}
