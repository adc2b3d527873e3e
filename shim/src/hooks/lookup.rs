//! `cuGetProcAddress`: the driver chooses the variant for the version and flags asked for; its answer, an address, is
//! then exchanged for the hook of the function at that address (CUDA Driver API, Driver Entry Point Access).

use core::ffi::{c_char, c_int, c_void};

use vcuda_driver_api::prelude::*;

use crate::ffi::Call;

/// Never: a hook must be handed out before it is known whether a limit applies.
pub(super) const fn idle() -> bool {
    false
}

/// `cuGetProcAddress`, before CUDA 12.
pub(super) fn proc_address(
    call: &Call<'_, CUresult>,
    _symbol: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
) -> CUresult {
    let status = call.real();
    if status.is_ok() {
        exchange(function);
    }
    status
}

/// `cuGetProcAddress` from CUDA 12 on.
pub(super) fn proc_address_v2(
    call: &Call<'_, CUresult>,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    _found: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    proc_address(call, symbol, function, version, flags)
}

/// `cuGetExportTable`: passes. Its tables are private to NVIDIA's own libraries; which ones are fetched is worth knowing.
pub(super) fn export_table(
    call: &Call<'_, CUresult>,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> CUresult {
    note_table("cuGetExportTable", table, id.cast());
    call.real()
}

/// `nvmlInternalGetExportTable`: passes likewise.
pub(super) fn nvml_export_table(
    call: &Call<'_, nvmlReturn_t>,
    table: *mut *const c_void,
    id: *const c_void,
) -> nvmlReturn_t {
    note_table("nvmlInternalGetExportTable", table, id);
    call.real()
}

fn note_table(function: &str, table: *mut *const c_void, id: *const c_void) {
    let Some(shim) = crate::shim::get() else { return };
    if shim.config.log.is_none() || table.is_null() || id.is_null() {
        return;
    }
    // SAFETY: not null: the 16 bytes of a UUID, which the driver is about to read too.
    let id = unsafe { id.cast::<[u8; 16]>().read_unaligned() };
    shim.log(format_args!("{function} {:032x}", u128::from_be_bytes(id)));
}

/// Puts the hook in the place of the driver's function, if it has one.
fn exchange(function: *mut *mut c_void) {
    if function.is_null() {
        return;
    }
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { function.read() };
    if address.is_null() {
        return;
    }
    crate::hooks::find_all();
    if let Some(hook) = crate::hooks::hook_of(address) {
        // SAFETY: as above.
        unsafe { function.write(hook) };
    }
}
