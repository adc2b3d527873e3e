//! Listener for the driver's errors (XIDs). It has a thread of its own, as waiting blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::event::EventData;
use nvml_wrapper::{EventSet, Nvml};
use vcuda_driver_open::is_same_device;

use super::nvml::DeviceHandle;
use super::tracker::Observation;

/// Longest wait for an event, which delays the end of a session as long.
const WAIT: Duration = Duration::from_secs(1);
/// Number that stands for an XID without a known number.
const UNKNOWN: u64 = 999;

/// Reports each XID of these GPUs from the creation of `first` until `is_over`.
pub(super) fn watch<'nvml>(
    nvml: &'nvml Nvml,
    handles: &[DeviceHandle<'nvml>],
    first: Result<EventSet<'nvml>, NvmlError>,
    is_over: &AtomicBool,
    tell: &SyncSender<Observation>,
) {
    let mut is_watched = false;
    let mut first = Some(first);
    while !is_over.load(Ordering::Acquire) {
        let outcome = first.take().unwrap_or_else(|| registered(nvml, handles)).and_then(|set| {
            if !is_watched {
                is_watched = tell.send(Observation::Xids(Ok(()))).is_ok();
            }
            listen(&set, handles, is_over, tell)
        });
        let Err(error) = outcome else { return };
        // An event set with a lost GPU fails at once for ever, so the next set is made without it. Looks report the lost
        // GPU.
        if !matches!(error, NvmlError::GpuLost) {
            is_watched = false;
            let why = format!("XIDs are not told by NVML: {error}; a GPU's health is known by looks alone");
            if tell.send(Observation::Xids(Err(why))).is_err() {
                return;
            }
        }
        std::thread::sleep(WAIT);
    }
}

/// An event set with all GPUs that can be registered.
pub(super) fn registered<'nvml>(
    nvml: &'nvml Nvml,
    handles: &[DeviceHandle<'nvml>],
) -> Result<EventSet<'nvml>, NvmlError> {
    let (mut willing, mut is_lost) = (Vec::new(), false);
    for device in handles.iter().map(|handle| &handle.device) {
        match device.supported_event_types() {
            Ok(types) if types.contains(EventTypes::CRITICAL_XID_ERROR) => willing.push(device),
            Err(NvmlError::GpuLost) => is_lost = true,
            _ => {}
        }
    }
    match willing.is_empty() {
        // It may well tell XIDs: what is wrong is that it does not answer.
        true if is_lost => return Err(NvmlError::GpuLost),
        true => return Err(NvmlError::NotSupported),
        false => {}
    }
    'set: loop {
        let mut set = nvml.create_event_set()?;
        for (place, device) in willing.iter().enumerate() {
            match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(registered) => set = registered,
                Err(failure) if willing.len() == 1 => return Err(failure.error),
                // The failure has consumed the set.
                Err(_) => {
                    willing.remove(place);
                    continue 'set;
                }
            }
        }
        return Ok(set);
    }
}

fn listen(
    set: &EventSet<'_>,
    handles: &[DeviceHandle<'_>],
    is_over: &AtomicBool,
    tell: &SyncSender<Observation>,
) -> Result<(), NvmlError> {
    let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
    while !is_over.load(Ordering::Acquire) {
        match set.wait(wait_ms) {
            Err(NvmlError::Timeout) => {}
            Err(error) => return Err(error),
            Ok(event) => {
                if let Some(seen) = xid(&event, handles)
                    && tell.send(seen).is_err()
                {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The XID and GPU of an event. Of several XIDs at once NVML tells the last number for each (documented), so the GPU is
/// right but the number may be another's.
fn xid(event: &EventData<'_>, handles: &[DeviceHandle<'_>]) -> Option<Observation> {
    let number = match event.event_data.as_ref()? {
        XidError::Value(number) => *number,
        XidError::Unknown => UNKNOWN,
    };
    let handle = handles.iter().find(|handle| is_same_device(&handle.device, &event.device))?;
    Some(Observation::Xid(handle.uuid, number))
}
