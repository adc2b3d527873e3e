//! Driver entry point access (CUDA Driver API, `cuGetProcAddress`, `cuGetExportTable`).
//!
//! The symbol for a name, a version and a flag comes from driver-api's table, derived from driver 550. Works before
//! `cuInit`.

use std::collections::HashMap;
use std::sync::Once;

use once_cell::sync::OnceCell;
use vcuda_driver_api::lookup::{Answer, symbol_for};

use crate::export::Export;
use crate::export::prelude::*;

export! {
    cuGetProcAddress => get_proc_address_v1;
    cuGetProcAddress_v2 => get_proc_address;
    cuGetExportTable => get_export_table;
}

macro_rules! tables {
    ($($module:ident)*; graph::{$($part:ident)*}) => {
        [$(crate::export::$module::EXPORTS,)* $(crate::export::graph::$part::EXPORTS),*]
    };
}

/// All exports of this library, by module.
pub(crate) fn exports() -> impl Iterator<Item = &'static Export> {
    tables! {
        array batch capture checkpoint context copy copy_shapes device errors event external
        function green host host_function ipc launch launch_old library linker lookup memory
        module multicast occupancy pointer pool pool_share primary resource set sparse stream
        stream_memory unsupported vmm;
        graph::{add edges executable memory node whole}
    }
    .into_iter()
    .flatten()
}

fn address_of(symbol: &str) -> Option<*mut c_void> {
    static ADDRESSES: OnceCell<HashMap<&'static str, usize>> = OnceCell::new();
    let addresses =
        ADDRESSES.get_or_init(|| exports().map(|export| (export.name, export.address as usize)).collect());
    addresses.get(symbol).map(|address| *address as *mut c_void)
}

/// Looks up a symbol. Flags other than `CU_GET_PROC_ADDRESS_DEFAULT`, `_LEGACY_STREAM` and `_PER_THREAD_DEFAULT_STREAM` are
/// `CUDA_ERROR_INVALID_VALUE`.
fn find(symbol: *const c_char, version: c_int, flags: u64) -> Result<Answer, CUerror> {
    let name = text(symbol)?.to_str().unwrap_or_default();
    if flags > 2 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(symbol_for(name, version, flags))
}

/// The first form, without a status: any failure is `CUDA_ERROR_NOT_FOUND`.
fn get_proc_address_v1(
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let address = match find(symbol, version, flags)? {
        Answer::Symbol(symbol) => address_of(symbol),
        Answer::NotFound | Answer::VersionTooOld => None,
    };
    put(place, address.unwrap_or(core::ptr::null_mut()))?;
    address.map(drop).ok_or(CUerror::NOT_FOUND)
}

/// For an unknown name it returns a null pointer, a status, and success (as observed with driver 550).
fn get_proc_address(
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    use CUdriverProcAddressQueryResult as Status;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let (address, found) = match find(symbol, version, flags)? {
        Answer::Symbol(symbol) => (address_of(symbol), Status::SUCCESS),
        Answer::NotFound => (None, Status::SYMBOL_NOT_FOUND),
        Answer::VersionTooOld => (None, Status::VERSION_NOT_SUFFICIENT),
    };
    put_if_wanted(
        status,
        if address.is_none() && found == Status::SUCCESS { Status::SYMBOL_NOT_FOUND } else { found },
    );
    put(place, address.unwrap_or(core::ptr::null_mut()))
}

/// The `cuInit` that WSL2's library would call: found by the process's `dlsym` on a handle of the driver's library
/// (HAMi-core issue 326). `None` if the profile's driver does not do that, or finds itself. Error:
/// `CUDA_ERROR_SYSTEM_NOT_READY` if the machine's directory cannot be used (docs/hardware.md, "start of the driver").
pub(crate) fn own_init() -> Result<Option<Init>, CUerror> {
    // A forked child is refused before it touches anything that its parent may have been changing.
    if crate::object::process::is_forked() || !crate::object::process::driver()?.looks_itself_up {
        return Ok(None);
    }
    let own = address_of("cuInit").unwrap_or(core::ptr::null_mut());
    // SAFETY: all bytes of a `Dl_info` may be zero.
    let mut library: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `library` is valid for writing; any address may be asked for.
    let is_known = unsafe { libc::dladdr(own, &raw mut library) } != 0;
    if !is_known {
        return Ok(None);
    }
    // SAFETY: dladdr gave the terminated name of a loaded library, which stays loaded.
    let handle = unsafe { libc::dlopen(library.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    // SAFETY: a handle of dlopen, or null, which stands for the program; the name is terminated.
    let found = unsafe { libc::dlsym(handle, c"cuInit".as_ptr()) };
    if found.is_null() || found == own {
        return Ok(None);
    }
    // SAFETY: by its name the function is a `cuInit`.
    Ok(Some(unsafe { core::mem::transmute::<*mut c_void, Init>(found) }))
}

/// `cuInit`.
type Init = extern "C" fn(c_uint) -> CUresult;

/// The driver's private tables: none is known here, so all are `CUDA_ERROR_INVALID_VALUE`. At the first call, which mostly is
/// the CUDA runtime's, the reason goes to stderr, as the program is about to fail.
#[expect(
    clippy::print_stderr,
    reason = "the program's own message names neither the cause nor the simulator"
)]
fn get_export_table(place: *mut *const c_void, id: *const CUuuid) -> CUresult {
    static TOLD: Once = Once::new();
    get(id)?;
    put(place, core::ptr::null())?;
    TOLD.call_once(|| {
        eprintln!(
            "simulated CUDA driver: it is for programs of the driver API: kernels take time and compute nothing; programs of \
             the CUDA runtime (nvcc, PyTorch, CuPy) need a real GPU"
        );
    });
    Err(CUerror::INVALID_VALUE)
}
