//! Relaxed capture mode, in which the shim makes its own calls of the driver (I5).
//!
//! While a thread captures a stream, a *potentially unsafe* call ends the capture with an error: each such call of that
//! thread and, if the capture is a global one, of every other thread (CUDA Driver API, `cuThreadExchangeStreamCaptureMode`).
//! The documentation has no list of these calls. Queries are among them: `cuEventQuery`, `cuMemPoolGetAttribute` (NVIDIA/cccl
//! pull request 11360, NVIDIA/cuda-python issue 2834), `cuStreamGetId`, `cuStreamGetDevice` (NVIDIA/cccl pull request 11118).
//! A thread in relaxed mode "is not prohibited from potentially unsafe API calls", its own capture or not. That is how
//! libcu++ asks pools, and how PyTorch's allocator queries events, while another thread captures.
//!
//! So each of the shim's own calls is made in relaxed mode, whether a capture is open or not. The shim need not know,
//! and a capture that begins at the same moment is not broken either. The exceptions are listed in `real/own.rs`.

use core::marker::PhantomData;

use vcuda_driver_api::prelude::*;

use super::{real, reentrancy};

/// A guard: the calling thread is in relaxed mode while it lives. It is never held during the application's own call:
/// what the driver would refuse it must be refused.
#[derive(Debug)]
#[must_use = "the mode ends when this is dropped"]
pub(crate) struct Relaxed {
    /// Whether the thread is in another mode again afterwards. Not if it was relaxed already, or the driver knows no modes.
    returns: bool,
    /// Not `Send`: the mode is the thread's.
    not_send: PhantomData<*const ()>,
}

impl Relaxed {
    /// Enters relaxed mode. If the thread is in it already, that costs a load.
    #[inline]
    pub(crate) fn enter() -> Self {
        Self { returns: reentrancy::relaxed().is_none() && relax().is_some(), not_send: PhantomData }
    }
}

impl Drop for Relaxed {
    #[inline]
    fn drop(&mut self) {
        if self.returns
            && let Some(mode) = reentrancy::relaxed()
        {
            reentrancy::set_relaxed(None);
            restore(mode);
        }
    }
}

/// Changes to relaxed mode, and notes the mode before; `None` if it could not be changed.
fn relax() -> Option<()> {
    let mut mode = CUstreamCaptureMode::RELAXED;
    // SAFETY: the driver exchanges the mode, or does nothing.
    unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.ok()?;
    reentrancy::set_relaxed(Some(mode.0));
    Some(())
}

/// Gives the thread the mode that it had.
pub(super) fn restore(mode: u32) {
    let mut mode = CUstreamCaptureMode(mode);
    // SAFETY: the driver exchanges the mode.
    let _ = unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
}
