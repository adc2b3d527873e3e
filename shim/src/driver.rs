//! The C boundary: how a call of the application reaches a handler, and how the shim reaches the driver.

pub(crate) mod bypass;
pub(crate) mod cancel;
mod default_stream;
pub(crate) mod elf;
pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod loader;
mod object_list;
pub(crate) mod objects;
pub(crate) mod real;
pub(crate) mod reentrancy;
mod relaxed;
pub(crate) mod saved_answer;

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use cancel::Shield;
use real::DriverStatus;
use reentrancy::HookGuard;
use vcuda_driver_api::Status;

pub(crate) use bypass::{Bypass, Handled, Stop};
pub(crate) use default_stream::DefaultStream;
pub(crate) use object_list::ObjectList;
pub(crate) use relaxed::Relaxed;

/// Answer of a hook if the shim panics before the driver was called: the first word of its row.
#[expect(non_camel_case_types, reason = "the words of the table's rows")]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Out of memory: no unaccounted allocation.
    deny,
    /// The driver's answer.
    pass,
}

/// A call of the application, on its way to the driver.
pub(crate) struct Call<'a, R> {
    real: &'a dyn Fn() -> R,
    status: Cell<Option<R>>,
    /// Meaning of stream 0 in the call.
    pub(crate) default_stream: DefaultStream,
}

impl<R: core::fmt::Debug> core::fmt::Debug for Call<'_, R>
where
    R: Copy,
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call").field("status", &self.status.get()).finish_non_exhaustive()
    }
}

impl<R: DriverStatus> Call<'_, R> {
    /// Calls the driver with the application's own arguments. The driver is called once: a second call of this function
    /// returns the first answer.
    #[inline]
    pub(crate) fn real(&self) -> R {
        if let Some(status) = self.status.get() {
            return status;
        }
        let status = (self.real)();
        self.status.set(Some(status));
        status
    }

    /// Notes the driver's answer to an equivalent call that was made in place of the application's own.
    pub(crate) fn answered(&self, status: R) {
        self.status.set(Some(status));
    }
}

impl<E: Copy> Call<'_, Result<(), E>>
where
    Result<(), E>: DriverStatus + Status,
{
    /// Whether a handler with this outcome has reserved memory within the quota, and the driver has answered that it has none.
    #[inline]
    pub(crate) fn lacks_room(&self, outcome: Handled<E>) -> bool {
        outcome.is_err_and(|stop| self.is_driver_out_of_memory(stop))
    }

    #[cold]
    fn is_driver_out_of_memory(&self, stop: Stop<E>) -> bool {
        let no_memory = Result::<(), E>::DENIED.code();
        let is_driver_out = self.status.get().is_some_and(|status| status.code() == no_memory);
        is_driver_out && stop.error().is_ok_and(|error| Err(error).code() == no_memory)
    }

    /// Turns a handler's outcome into the application's answer: for a bypass, the driver's.
    #[inline]
    pub(crate) fn conclude(&self, outcome: Handled<E>) -> Result<(), E> {
        match outcome {
            Ok(()) => Ok(()),
            Err(stop) => match stop.error() {
                Ok(error) => Err(error),
                Err(reason) => bypass::bypassed(reason, || self.real()),
            },
        }
    }
}

/// Runs a handler. A panic ends here. If `SHIELDED`, a cancellation of the thread waits.
#[inline]
pub(crate) fn guarded<const SHIELDED: bool, R: DriverStatus>(
    answer: Answer,
    default_stream: DefaultStream,
    real: &dyn Fn() -> R,
    handler: impl FnOnce(&Call<'_, R>) -> R,
) -> R {
    let _inside = HookGuard::enter::<SHIELDED>();
    let _shield = SHIELDED.then(Shield::raise);
    let call = Call { real, status: Cell::new(None), default_stream };
    match catch_unwind(AssertUnwindSafe(|| handler(&call))) {
        Ok(status) => status,
        Err(payload) => after_panic(answer, &call, payload),
    }
}

#[cold]
fn after_panic<R: DriverStatus>(
    answer: Answer,
    call: &Call<'_, R>,
    payload: Box<dyn core::any::Any + Send>,
) -> R {
    // Its destructor could panic again.
    core::mem::forget(payload);
    match (call.status.get(), answer) {
        (Some(status), _) => status,
        (None, Answer::deny) => R::DENIED,
        (None, Answer::pass) => call.real(),
    }
}
