//! Library and system: versions, process names, device counts and handles, the table of NVIDIA's own tools.

use crate::answer::{get, put, put_all, put_text, text, version};
use crate::identity;
use crate::processes::Caller;
use crate::state::{self, opened, opened_early};
use std::ffi::CStr;
use vcuda_driver_api::prelude::*;

exports! {
    nvmlErrorString => error_string;
    nvmlInternalGetExportTable => export_table;
    nvmlSystemGetDriverVersion => driver_version;
    nvmlSystemGetNVMLVersion => nvml_version;
    nvmlSystemGetCudaDriverVersion | nvmlSystemGetCudaDriverVersion_v2 => cuda_driver_version;
    nvmlSystemGetProcessName => process_name;
    // There are no host interface cards, units of class S, or excluded devices.
    nvmlSystemGetHicVersion => |count, entries| opened().and_then(|_| put_all(entries, count, &[]));
    nvmlUnitGetCount | nvmlGetExcludedDeviceCount => |count| opened().and_then(|_| put(count, 0));
    nvmlDeviceGetCount | nvmlDeviceGetCount_v2 => device_count;
    nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2 => handle_by_index;
    nvmlDeviceGetHandleByUUID => handle_by_uuid;
    nvmlDeviceGetHandleByUUIDV => handle_by_uuid_structure;
    nvmlDeviceGetHandleBySerial => handle_by_serial;
    nvmlDeviceGetHandleByPciBusId | nvmlDeviceGetHandleByPciBusId_v2 => handle_by_pci_bus_id;
}

/// `nvmlErrorString`: a sentence for any code, also an unknown one.
fn error_string(result: nvmlReturn_t) -> *const c_char {
    let text: &'static CStr = match result {
        Ok(()) => c"Success",
        Err(error) => error.message().unwrap_or(c"Unknown Error"),
    };
    text.as_ptr()
}

fn driver_version(target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let opened = opened()?;
    let reloaded = opened.faults()?.driver_version;
    let version = reloaded.as_ref().unwrap_or(&opened.machine.config().driver_version);
    put_text(target, length, version)
}

/// NVML's version: the CUDA generation, then the driver's release.
fn nvml_version(target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let config = opened()?.machine.config();
    put_text(target, length, &format!("{}.{}", config.cuda_version / 1000, config.driver_version))
}

/// Needs no initialisation, as `NVML_ERROR_UNINITIALIZED` is not among its documented codes.
fn cuda_driver_version(target: *mut c_int) -> nvmlReturn_t {
    let version = opened_early()?.machine.config().cuda_version;
    put(target, c_int::try_from(version).unwrap_or(c_int::MAX))
}

/// Name of a process of the machine, or by `/proc`. A longer name is cut.
fn process_name(pid: c_uint, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let opened = opened()?;
    let room = usize::try_from(length).unwrap_or(0).checked_sub(1).ok_or(NvmlError::INVALID_ARGUMENT)?;
    if target.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    let name = command(pid)
        .or_else(|| {
            let caller = Caller::of(opened);
            let mut processes = opened.devices().flat_map(|device| opened.machine.processes(device.index));
            processes.find(|process| caller.number(process.seen) == Some(pid)).map(|process| process.name)
        })
        .ok_or(NvmlError::NOT_FOUND)?;
    let mut end = room.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    put_text(target, length, name.get(..end).unwrap_or_default())
}

/// The first word of a process's command line.
fn command(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let word = line.split(|byte| *byte == 0).next().filter(|word| !word.is_empty())?;
    Some(String::from_utf8_lossy(word).into_owned())
}

pub(crate) fn device_count(count: *mut c_uint) -> nvmlReturn_t {
    put(count, c_uint::try_from(opened()?.devices().count()).unwrap_or(c_uint::MAX))
}

/// An index out of range is an invalid argument (not "not found").
pub(crate) fn handle_by_index(index: c_uint, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    opened()?;
    let found = state::find(|device| device.number() == index);
    hand_out(found.map_err(|_| NvmlError::INVALID_ARGUMENT), target)
}

fn handle_by_uuid(uuid: *const c_char, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    opened()?;
    let uuid = text(uuid)?;
    hand_out(state::find(|device| device.config.uuid.eq_ignore_ascii_case(uuid)), target)
}

/// Handle by a UUID, as text or as 16 bytes.
fn handle_by_uuid_structure(uuid: *const nvmlUUID_t, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    opened()?;
    version(uuid, nvmlUUID_v1)?;
    let uuid = get(uuid)?;
    match uuid.r#type {
        NVML_UUID_TYPE_ASCII => {
            // SAFETY: `type` says that the text is the member in use; any bytes are valid `c_char`.
            let text = unsafe { uuid.value.str };
            let text: Vec<u8> =
                text.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
            hand_out(state::find(|device| device.config.uuid.as_bytes().eq_ignore_ascii_case(&text)), target)
        }
        NVML_UUID_TYPE_BINARY => {
            // SAFETY: `type` says that the bytes are the member in use; any bytes are valid.
            let bytes = unsafe { uuid.value.bytes };
            hand_out(state::find(|device| identity::uuid_bytes(&device.config.uuid) == Some(bytes)), target)
        }
        _ => Err(NvmlError::INVALID_ARGUMENT),
    }
}

fn handle_by_serial(serial: *const c_char, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    opened()?;
    let serial = text(serial)?;
    hand_out(state::find(|device| identity::serial_number(*device) == serial), target)
}

/// Handle by `domain:bus:device.function`; domain and function are optional.
fn handle_by_pci_bus_id(address: *const c_char, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    opened()?;
    let wanted = identity::pci_address(text(address)?).ok_or(NvmlError::INVALID_ARGUMENT)?;
    hand_out(state::find(|device| identity::pci_address(&device.config.pci_bus_id) == Some(wanted)), target)
}

fn hand_out(found: Result<state::Device, NvmlError>, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    put(target, found?.unless_lost()?.handle())
}

/// Number of entries of the table requested by NVIDIA's own tools.
const SLOTS: usize = 512;

/// Table of private functions. It begins with its size in bytes (docs/hardware.md, "private tables"); every entry answers
/// "not supported".
#[repr(C)]
struct ExportTable {
    bytes: usize,
    slots: [extern "C" fn() -> nvmlReturn_t; SLOTS],
}

extern "C" fn private_function() -> nvmlReturn_t {
    crate::export::guarded(state::not_supported)
}

static EXPORT_TABLE: ExportTable =
    ExportTable { bytes: size_of::<ExportTable>(), slots: [private_function; SLOTS] };

/// `nvmlInternalGetExportTable`: every table exists, as a tool of NVIDIA's ends without it, but its functions do nothing.
fn export_table(table: *mut *const c_void, id: *const c_void) -> nvmlReturn_t {
    if id.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(table, (&raw const EXPORT_TABLE).cast())
}
