//! Potentially unsafe calls that the machine's profile names (`driver.capture_invalidating`), beyond those that
//! [`super::reject_unsafe_call`] has of itself: of which calls a driver thinks so is documented nowhere, and drivers differ.

use vcuda_driver_api::CUresult;

use crate::object::process::process;

/// To be asked before every call, by its exported symbol. The variants for per-thread default streams go by the plain
/// name.
///
/// # Errors
/// As [`super::reject_unsafe_call`], for a call that is named.
#[inline]
pub(crate) fn check(symbol: &str) -> CUresult {
    // A forked child finds its parent's captures, whose lock may never open again.
    if !super::is_any_open() || process().is_err() {
        return Ok(());
    }
    check_open(symbol)
}

#[cold]
fn check_open(symbol: &str) -> CUresult {
    // In a child of fork, which may have been made while another thread was looking at the captures, the call itself says
    // that there is no driver.
    let Ok(process) = process() else { return Ok(()) };
    let plain = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|variant| symbol.strip_suffix(variant))
        .unwrap_or(symbol);
    let named = &process.machine.config().driver.capture_invalidating;
    if named.iter().any(|name| name == plain) {
        super::reject_unsafe_call()
    } else {
        Ok(())
    }
}
