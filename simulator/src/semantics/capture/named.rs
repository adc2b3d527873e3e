//! Potentially unsafe calls named by the machine's profile (`driver.capture_invalidating`), in addition to those of
//! [`super::reject_unsafe_call`]. They are not documented, and drivers differ.

use vcuda_driver_api::CUresult;

use crate::object::process::process;

/// Check before every call, by its exported symbol. Variants for per-thread default streams use the plain name. Error:
/// As [`super::reject_unsafe_call`], for a call that is named.
#[inline]
pub(crate) fn check(symbol: &str) -> CUresult {
    // A forked child inherits its parent's captures, whose lock may stay locked.
    if !super::is_any_open() || process().is_err() {
        return Ok(());
    }
    check_open(symbol)
}

#[cold]
fn check_open(symbol: &str) -> CUresult {
    // A child may have been forked while another thread held the captures' lock. It skips the check, and the call itself
    // fails.
    let Ok(process) = process() else { return Ok(()) };
    let plain = ["_ptsz", "_ptds"].iter().find_map(|variant| symbol.strip_suffix(variant)).unwrap_or(symbol);
    let named = &process.machine.config().driver.capture_invalidating;
    if named.iter().any(|name| name == plain) { super::reject_unsafe_call() } else { Ok(()) }
}
