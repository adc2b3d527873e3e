//! Functions of the program that the driver calls.

use vcuda_driver_api::prelude::*;

/// A program's function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

// SAFETY: the API's contract is that the function may be called from the driver's thread with its argument.
unsafe impl Send for HostFunction {}

// SAFETY: as above; the argument is only handed on.
unsafe impl Sync for HostFunction {}
