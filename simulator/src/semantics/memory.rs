//! Order between memory and the work that uses it.

use std::sync::Arc;

use vcuda_driver_api::{CUerror, CUresult};

use crate::object::memory::Allocation;
use crate::object::sharing::{self, Shared};
use crate::semantics::{effects, stream};

/// Waits for work that may use memory, before its address is reused.
pub(crate) fn wait_for_owner(context: usize) -> CUresult {
    match crate::object::context::context(context) {
        Ok(context) => stream::drain(&context),
        Err(_) => Ok(()),
    }
}

/// Turns an allocation into an object for other processes, with the same contents.
pub(crate) fn share(of: &Allocation, tag: u64) -> Result<Arc<Shared>, CUerror> {
    // No effect takes place meanwhile, so no write is lost.
    effects::hold_still(|| sharing::share(of.device, of.base, of.bytes, tag))
}
