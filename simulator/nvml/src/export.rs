//! Macros that turn table rows into exported C functions.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};

/// Exports functions: rows of `name => handler;`, a function or a closure of driver-api's prototype. `name | name_v2` are
/// aliases.
macro_rules! exports {
    ($($($name:ident)|+ => $handler:expr;)*) => {
        $($(vcuda_driver_api::signature!($name, exported! { $handler });)+)*

        #[cfg(test)]
        pub(crate) const HANDLED: &[&str] = &[$($(stringify!($name)),+),*];
    };
}

macro_rules! exported {
    ({ $handler:expr } $name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty) => {
        #[doc = concat!("`", stringify!($name), "` of the NVML API reference.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            let handler: fn($($type),*) -> $result = $handler;
            crate::export::guarded(|| handler($($argument),*))
        }
    };
}

/// Exports names that answer "not supported".
macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: not simulated. C callers may pass arguments; none is read.")]
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> vcuda_driver_api::nvmlReturn_t {
                crate::export::guarded(crate::state::not_supported)
            }
        )*

        #[cfg(test)]
        pub(crate) const UNSUPPORTED: &[&str] = &[$(stringify!($name)),*];
    };
}

/// Result type with a value for a handler that panicked.
pub(crate) trait Answer {
    fn broken() -> Self;
}

impl Answer for nvmlReturn_t {
    fn broken() -> Self {
        Err(NvmlError::UNKNOWN)
    }
}

impl Answer for *const c_char {
    fn broken() -> Self {
        c"Unknown Error".as_ptr()
    }
}

/// Runs a handler without letting a panic cross the C boundary.
pub(crate) fn guarded<A: Answer>(handler: impl FnOnce() -> A) -> A {
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or_else(|_| A::broken())
}
