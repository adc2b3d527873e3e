//! Event sets. The machine raises no events, so a wait ends at its timeout.

use crate::answer::put;
use crate::state::{device, opened};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::time::Duration;
use vcuda_driver_api::nvml::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeClock, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypePState, nvmlEventTypeSingleBitEccError, nvmlEventTypeXidCriticalError,
};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};

/// What a device can report.
const SUPPORTED: u64 = nvmlEventTypeSingleBitEccError
    | nvmlEventTypeDoubleBitEccError
    | nvmlEventTypePState
    | nvmlEventTypeXidCriticalError
    | nvmlEventTypeClock;

/// All bits that mean an event (NVML API reference, "Event Types").
const KNOWN: u64 = 0xff9f;

/// Sets by their handles, which are numbers that never come again.
static SETS: Lazy<Mutex<Sets>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Sets {
    last: usize,
    living: BTreeSet<usize>,
}

pub(crate) fn create(target: *mut nvmlEventSet_t) -> nvmlReturn_t {
    opened()?;
    let mut sets = SETS.lock();
    let next = sets.last + 1;
    put(target, nvmlEventSet_t(next))?;
    sets.last = next;
    sets.living.insert(next);
    Ok(())
}

fn known(set: nvmlEventSet_t) -> nvmlReturn_t {
    if SETS.lock().living.contains(&set.0) {
        Ok(())
    } else {
        Err(NvmlError::INVALID_ARGUMENT)
    }
}

pub(crate) fn free(set: nvmlEventSet_t) -> nvmlReturn_t {
    opened()?;
    if SETS.lock().living.remove(&set.0) {
        Ok(())
    } else {
        Err(NvmlError::INVALID_ARGUMENT)
    }
}

pub(crate) fn supported(handle: nvmlDevice_t, target: *mut u64) -> nvmlReturn_t {
    device(handle)?;
    put(target, SUPPORTED)
}

pub(crate) fn register(handle: nvmlDevice_t, types: u64, set: nvmlEventSet_t) -> nvmlReturn_t {
    device(handle)?;
    known(set)?;
    match types {
        _ if types & !KNOWN != 0 => Err(NvmlError::INVALID_ARGUMENT),
        _ if types & !SUPPORTED != 0 => Err(NvmlError::NOT_SUPPORTED),
        _ => Ok(()),
    }
}

/// `timeout_ms` of milliseconds, then `NVML_ERROR_TIMEOUT`.
pub(crate) fn wait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout_ms: c_uint) -> nvmlReturn_t {
    opened()?;
    known(set)?;
    if data.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    std::thread::sleep(Duration::from_millis(u64::from(timeout_ms)));
    Err(NvmlError::TIMEOUT)
}
