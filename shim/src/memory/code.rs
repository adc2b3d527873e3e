//! Memory that the driver takes and gives back for code: found at once where that costs little, else at the next look.

use vcuda_driver_api::prelude::*;

use crate::memory::overhead::{DriverObject, ObjectKind, make_charged};
use crate::memory::state;
use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::current_context;

/// Measures after the driver has unloaded code, or after another change on the current device that cannot be refused.
pub(crate) fn changed() {
    if let Some(shim) = state::get()
        && let Some(device) = shim.current_device().filter(|device| device.grant.is_some())
    {
        shim.accounts().overhead.measure(device, Haste::Soon);
        shim.accounts().overhead.expect_code();
    }
}

/// Notes that the driver may load code later, at a launch.
pub(crate) fn may_change() {
    if let Some(shim) = state::get() {
        shim.accounts().overhead.expect_code();
        shim.refresh_if_due();
    }
}

/// Makes an object for which the driver may load code. If there is a figure for this process, the code is found later.
///
/// # Errors
/// The driver's.
pub(crate) fn make_with_code(make: impl FnOnce() -> CUresult) -> CUresult {
    let Some(shim) = state::get() else {
        return make();
    };
    let Some(device) = shim.current_device().filter(|device| device.grant.is_some()) else {
        return make();
    };
    if shim.accounts().overhead.has_figure() {
        make()?;
        may_change();
        return Ok(());
    }
    // It cannot be undone, and need not be: a difference is never a reason to refuse code.
    let bytes = make_charged(device, ObjectKind::Code, make, || {})?;
    let context = current_context();
    shim.accounts().overhead.note(device, context, DriverObject::Context(context), bytes);
    Ok(())
}
