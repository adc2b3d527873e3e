//! Potentially unsafe calls that the machine's profile names (`driver.capture_invalidating`), beyond those that
//! [`super::call_unsafe`] has of itself: of which calls a driver thinks so is documented nowhere, and drivers differ.

use std::collections::BTreeSet;

use once_cell::sync::OnceCell;
use vcuda_driver_api::CUresult;
use vcuda_machine::DriverProfile;

use crate::process::process;

static NAMED: OnceCell<BTreeSet<String>> = OnceCell::new();

/// Takes the profile's names. One that this driver does not export is a newer driver's.
pub(crate) fn arm(driver: &DriverProfile) {
    NAMED.get_or_init(|| driver.capture_invalidating.iter().cloned().collect());
}

/// To be asked before every call, by its exported symbol. The variants for per-thread default streams go by the plain
/// name.
///
/// # Errors
/// As [`super::call_unsafe`], for a call that is named.
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
    if crate::process::process().is_err() {
        return Ok(());
    }
    let plain = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|variant| symbol.strip_suffix(variant))
        .unwrap_or(symbol);
    match NAMED.get() {
        Some(named) if named.contains(plain) => super::call_unsafe(),
        _ => Ok(()),
    }
}
