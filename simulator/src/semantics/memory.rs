//! Memory and the work that uses it.

use std::sync::Arc;

use vcuda_driver_api::{CUerror, CUresult};

use crate::object::memory::Allocation;
use crate::object::sharing::{self, Shared};
use crate::semantics::{effects, stream};

/// Work that may still use memory must be over before its address is given away.
pub(crate) fn wait_for_owner(context: usize) -> CUresult {
    match crate::object::context::context(context) {
        Ok(context) => stream::drain(&context),
        Err(_) => Ok(()),
    }
}

/// Makes an object of an allocation, for other processes. Its contents stay what they are.
///
/// # Errors
/// As [`sharing::share`].
pub(crate) fn share(of: &Allocation, tag: u64) -> Result<Arc<Shared>, CUerror> {
    // Nothing that was submitted is done meanwhile, so nothing is written that would be lost.
    effects::hold_still(|| sharing::share(of.device, of.base, of.bytes, tag))
}
