//! `cuGetProcAddress`: the driver chooses the variant for the version and flags asked for; its answer, an address, is
//! then exchanged for the hook of the function at that address (CUDA Driver API, Driver Entry Point Access).

use core::ffi::{c_char, c_int, c_void};

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::bypass::note;
use crate::driver::{Bypass, Call, Handled, objects};
use crate::runtime::bypass;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::TELLING;

/// Never idle: a hook must be handed out before it is known whether a limit applies.
pub(super) const fn idle() -> bool {
    false
}

/// `cuGetProcAddress`, before CUDA 12.
pub(super) fn proc_address(
    call: &Call<'_, CUresult>,
    symbol: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
) -> Handled {
    let status = call.real();
    if status.is_ok() {
        exchange(symbol, function);
    }
    Ok(status?)
}

/// `cuGetProcAddress` from CUDA 12 on.
pub(super) fn proc_address_v2(
    call: &Call<'_, CUresult>,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    _found: *mut CUdriverProcAddressQueryResult,
) -> Handled {
    proc_address(call, symbol, function, version, flags)
}

/// `cuGetExportTable`: the driver answers. The log tells which of its tables, private to NVIDIA's libraries, are fetched.
pub(super) fn export_table(
    call: &Call<'_, CUresult>,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> Handled {
    let status = call.real();
    note_table("cuGetExportTable", table, id.cast(), status.is_ok());
    Ok(status?)
}

/// `nvmlInternalGetExportTable`: NVML answers, likewise.
pub(super) fn nvml_export_table(
    call: &Call<'_, nvmlReturn_t>,
    table: *mut *const c_void,
    id: *const c_void,
) -> Handled<NvmlError> {
    let status = call.real();
    note_table("nvmlInternalGetExportTable", table, id, status.is_ok());
    Ok(status?)
}

fn note_table(function: &str, table: *mut *const c_void, id: *const c_void, is_given: bool) {
    let Some(shim) = crate::memory::state::get() else {
        return;
    };
    if shim.config.log.is_none() || table.is_null() || id.is_null() {
        return;
    }
    // SAFETY: not null: the 16 bytes of a UUID, which the driver has read too.
    let id = unsafe { id.cast::<[u8; 16]>().read_unaligned() };
    if bypass::is_new_table(&id) {
        let outcome = if is_given { "given" } else { "refused" };
        shim.log(format_args!("{function} {:032x}: {outcome}", u128::from_be_bytes(id)));
    }
}

/// Puts the hook in the place of the driver's function, if it has one.
fn exchange(symbol: *const c_char, function: *mut *mut c_void) {
    if function.is_null() {
        return;
    }
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { function.read() };
    if address.is_null() {
        return;
    }
    crate::hooks::find_all();
    if let Some(hook) = crate::hooks::hook_of(address).or_else(|| crate::hooks::hook_behind(symbol, address))
    {
        // SAFETY: as above.
        unsafe { function.write(hook) };
    } else if crate::hooks::is_variant_hooked(symbol) && !is_exported(address) {
        note(Bypass::UnknownAddress);
        if let Some(shim) = crate::memory::state::get() {
            bypass::report(shim);
        }
    }
}

/// Whether the driver exports a function at `address`: one that the table leaves alone on purpose.
fn is_exported(address: *mut c_void) -> bool {
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let Some(dladdr) = objects::libc_symbol(c"dladdr") else {
        return true;
    };
    // SAFETY: dladdr(3) has this type.
    let dladdr: Dladdr = unsafe { core::mem::transmute(dladdr) };
    let mut found = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; room for the answer.
    let is_known = unsafe { dladdr(address, &raw mut found) } != 0;
    is_known && found.dli_saddr == address && !found.dli_sname.is_null()
}
