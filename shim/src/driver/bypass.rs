//! Outcome of a handler for a call that is not its own: a [`Bypass`], for which the driver answers ([`super::Call::conclude`]).
//! The reasons that a process has met are kept here, in one word; `runtime/bypass.rs` reports them.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

pub(crate) use vcuda_region::bypass::Bypass;

/// An early end of a handler: an error for the application, or a bypass. It is one word, as the driver's status is: a
/// bypass is a number from [`FIRST`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Stop<E>(E);

/// Outcome of a handler.
pub(crate) type Handled<E = CUerror> = Result<(), Stop<E>>;

/// The number of the first bypass. No status of the driver's has its highest bit. If the driver answers with such a
/// number all the same, that is the answer: [`crate::driver::Call::real`] keeps it.
const FIRST: u32 = 0x8000_0000;

/// Both libraries' errors.
macro_rules! stops {
    ($($error:ident)*) => {$(
        impl From<$error> for Stop<$error> {
            #[inline]
            fn from(error: $error) -> Self {
                Self(error)
            }
        }

        impl From<Bypass> for Stop<$error> {
            #[inline]
            fn from(reason: Bypass) -> Self {
                Self($error::new(FIRST + reason as u32).unwrap_or($error::UNKNOWN))
            }
        }
    )*};
}

stops! { CUerror NvmlError }

impl<E: Copy> Stop<E>
where
    Result<(), E>: Status,
{
    /// The error for the application.
    ///
    /// # Errors
    /// The reason, if it is a bypass.
    #[inline]
    pub(super) fn error(self) -> Result<E, Bypass> {
        let number = Err(self.0).code();
        if number < FIRST {
            return Ok(self.0);
        }
        match Bypass::ALL.get((number - FIRST) as usize) {
            Some(reason) => Err(*reason),
            None => Ok(self.0),
        }
    }
}

/// The bits of the reasons that this process has met.
static MET: AtomicU64 = AtomicU64::new(0);

/// The bits of the reasons that this process has met so far ([`Bypass::bit`]).
#[inline]
pub(crate) fn met() -> u64 {
    MET.load(Ordering::Relaxed)
}

/// Notes that a reason was met. Sets a bit and does no more: the loader may be at work in the calling thread.
pub(crate) fn note(reason: Bypass) {
    if met() & reason.bit() == 0 {
        MET.fetch_or(reason.bit(), Ordering::Relaxed);
    }
}

/// Calls the driver for a handler that returned `reason`.
#[cold]
pub(super) fn bypassed<E>(reason: Bypass, real: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let answer = real();
    note(match reason {
        // A handle that the driver does not know either was never made.
        Bypass::UnseenHandle if answer.is_err() => Bypass::BadArgument,
        reason => reason,
    });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_the_error_or_the_bypass_that_it_was_made_of() {
        for reason in Bypass::ALL {
            assert_eq!(Stop::<CUerror>::from(reason).error(), Err(reason));
            assert_eq!(Stop::<NvmlError>::from(reason).error(), Err(reason));
        }
        for error in CUerror::all() {
            assert_eq!(Stop::from(error).error(), Ok(error));
        }
        let unheard_of = NvmlError::new(u32::MAX).unwrap();
        assert_eq!(Stop::from(unheard_of).error(), Ok(unheard_of));
        assert_eq!(size_of::<Handled>(), size_of::<CUresult>());
    }
}
