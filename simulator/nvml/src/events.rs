//! Event sets. The machine's only events are the XIDs of `faults.toml`.

use crate::answer::put;
use crate::state::{Device, Opened, constant, device, opened};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use vcuda_driver_api::prelude::*;
use vcuda_machine::Faults;

exports! {
    nvmlEventSetCreate => create;
    nvmlEventSetFree => free;
    nvmlEventSetWait | nvmlEventSetWait_v2 => wait;
    nvmlDeviceRegisterEvents => register;
    nvmlDeviceGetSupportedEventTypes => |handle, target| constant(handle, target, SUPPORTED);
}

/// Events that a device can report.
const SUPPORTED: u64 = nvmlEventTypeSingleBitEccError
    | nvmlEventTypeDoubleBitEccError
    | nvmlEventTypePState
    | nvmlEventTypeXidCriticalError
    | nvmlEventTypeClock;

/// All bits that mean an event (NVML API reference, "Event Types").
const KNOWN: u64 = 0xff9f;

/// Interval at which a wait reads the faults again if the system has no inotify instance left.
const UNWATCHED: Duration = Duration::from_millis(100);

/// Event sets by handle; handles are numbers that are never reused.
static SETS: Lazy<Mutex<Sets>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Sets {
    last: usize,
    living: BTreeMap<usize, Set>,
}

/// By UUID of the device: number of its XIDs at registration or since then reported.
type Set = BTreeMap<String, usize>;

pub(crate) fn create(target: *mut nvmlEventSet_t) -> nvmlReturn_t {
    opened()?;
    let mut sets = SETS.lock();
    let next = sets.last + 1;
    put(target, nvmlEventSet_t(next))?;
    sets.last = next;
    sets.living.insert(next, Set::new());
    Ok(())
}

/// Calls `action` with a set. Error: `NVML_ERROR_INVALID_ARGUMENT` for an invalid handle.
fn with<T>(set: nvmlEventSet_t, action: impl FnOnce(&mut Set) -> T) -> Result<T, NvmlError> {
    let mut sets = SETS.lock();
    let found = sets.living.get_mut(&set.0).ok_or(NvmlError::INVALID_ARGUMENT)?;
    Ok(action(found))
}

pub(crate) fn free(set: nvmlEventSet_t) -> nvmlReturn_t {
    opened()?;
    let freed = SETS.lock().living.remove(&set.0);
    freed.map(drop).ok_or(NvmlError::INVALID_ARGUMENT)
}

/// "All events that occurred before this call was made will not be recorded."
pub(crate) fn register(handle: nvmlDevice_t, types: u64, set: nvmlEventSet_t) -> nvmlReturn_t {
    let device = device(handle)?;
    with(set, |_| ())?;
    if types & !KNOWN != 0 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    if types & !SUPPORTED != 0 {
        return Err(NvmlError::NOT_SUPPORTED);
    }
    if types & nvmlEventTypeXidCriticalError == 0 {
        return Ok(());
    }
    let before = device.opened.faults()?.xids.len();
    with(set, |set| {
        set.entry(device.config.uuid.clone()).or_insert(before);
    })
}

/// The next unreported XID of a registered device. "If there are multiple XID errors generated before this method is
/// called, the last seen XID error type will be returned for all XID error events": the devices are right, the numbers need
/// not be.
fn next(opened: &'static Opened, faults: &Faults, set: &mut Set) -> Option<(Device, u64)> {
    let (position, raised) = faults
        .xids
        .iter()
        .enumerate()
        .find(|(position, raised)| set.get(&raised.gpu).is_some_and(|told| position >= told))?;
    set.insert(raised.gpu.clone(), position + 1);
    let device = opened.devices().find(|device| device.config.uuid == raised.gpu)?;
    Some((device, faults.xids.last()?.xid))
}

/// The next event, waited for at most `timeout_ms`. Errors: `NVML_ERROR_TIMEOUT`; `NVML_ERROR_GPU_IS_LOST` "if a GPU
/// has fallen off the bus", at once.
pub(crate) fn wait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout_ms: c_uint) -> nvmlReturn_t {
    let opened = opened()?;
    with(set, |_| ())?;
    if data.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    let mut left = Duration::from_millis(u64::from(timeout_ms));
    // Set before the first read, so that no change is missed. A real driver sleeps until there is an event, too.
    let watch = opened.watch_faults();
    loop {
        let faults = opened.faults()?;
        if let Some((device, xid)) = with(set, |set| next(opened, &faults, set))? {
            let event = nvmlEventData_t {
                device: device.handle(),
                eventType: nvmlEventTypeXidCriticalError,
                eventData: xid,
                gpuInstanceId: NVML_NO_INSTANCE,
                computeInstanceId: NVML_NO_INSTANCE,
            };
            return put(data, event);
        }
        let is_lost = |uuid: &String| faults.driver_gone || faults.lost.contains(uuid);
        if with(set, |set| set.keys().any(is_lost))? {
            return Err(NvmlError::GPU_IS_LOST);
        }
        if left.is_zero() {
            return Err(NvmlError::TIMEOUT);
        }
        left = match &watch {
            Some(watch) => watch.wait(left),
            None => {
                std::thread::sleep(left.min(UNWATCHED));
                left.saturating_sub(UNWATCHED)
            }
        };
    }
}
