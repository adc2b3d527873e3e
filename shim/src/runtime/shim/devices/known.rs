//! The GPUs that this process has used, found once each.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use once_cell::sync::OnceCell;
use vcuda_driver_api::prelude::*;
use vcuda_region::GpuUuid;

use super::context_devices::ContextDevices;
use super::{Device, current_ordinal};
use crate::driver::real;
use crate::runtime::shim::Shim;

/// Most GPUs that a machine shows to one process, with room to spare.
const MOST: usize = 256;

/// The GPUs that this process has used, by ordinal.
#[derive(Debug)]
pub(crate) struct Devices {
    known: [AtomicPtr<Device>; MOST],
    context_devices: ContextDevices,
}

impl Devices {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            known: [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST],
            context_devices: ContextDevices::new(),
        }
    }

    /// The device of this ordinal; `None` if the driver knows none.
    #[inline]
    pub(crate) fn get(&self, shim: &'static Shim, ordinal: CUdevice) -> Option<&'static Device> {
        let place = self.known.get(usize::try_from(ordinal).ok()?)?;
        let device = place.load(Ordering::Acquire);
        if device.is_null() {
            return Self::find(shim, ordinal, place);
        }
        // SAFETY: stored below, from a leaked box that never changes.
        Some(unsafe { &*device })
    }

    /// The device of the calling thread's context `current`; `None` without one.
    #[inline]
    pub(crate) fn of_current(&self, shim: &'static Shim, current: CUcontext) -> Option<&'static Device> {
        if current.is_null() {
            return None;
        }
        self.get(shim, self.context_devices.ordinal(current, current_ordinal)?)
    }

    /// Forgets the devices of contexts, as a context has ended or begun.
    pub(crate) fn forget_contexts(&self) {
        self.context_devices.forget_all();
    }

    #[cold]
    fn find(shim: &'static Shim, ordinal: CUdevice, place: &AtomicPtr<Device>) -> Option<&'static Device> {
        let uuid = uuid_of(ordinal)?;
        let grant = shim.region().and_then(|region| Some((region, region.limits.find(&uuid)?)));
        let device = Box::into_raw(Box::new(Device {
            ordinal,
            uuid,
            grant,
            pitch_unit: OnceCell::new(),
            managed_bytes: AtomicU64::new(0),
            certain_overhead_bytes: AtomicU64::new(0),
            is_noticed: AtomicBool::new(false),
            shim,
        }));
        match place.compare_exchange(core::ptr::null_mut(), device, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: ours, leaked for the life of the process.
            Ok(_) => Some(unsafe { &*device }),
            Err(first) => {
                // SAFETY: never shared: another thread was first.
                drop(unsafe { Box::from_raw(device) });
                // SAFETY: the other thread's, leaked likewise.
                Some(unsafe { &*first })
            }
        }
    }

    /// The devices used so far.
    pub(crate) fn used(&self) -> impl Iterator<Item = &'static Device> {
        self.known.iter().filter_map(|place| {
            // SAFETY: null, or stored by `find` from a leaked box that never changes.
            unsafe { place.load(Ordering::Acquire).as_ref() }
        })
    }
}

/// A GPU's UUID from the driver (CUDA Driver API, `cuDeviceGetUuid`). In MIG mode the second form tells the instance.
fn uuid_of(ordinal: CUdevice) -> Option<GpuUuid> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the driver writes a UUID or nothing.
    let newer = unsafe { real::cuDeviceGetUuid_v2(&raw mut uuid, ordinal) };
    if newer.is_err() {
        // SAFETY: as above.
        unsafe { real::cuDeviceGetUuid(&raw mut uuid, ordinal) }.ok()?;
    }
    // C's `char` is signed on some machines.
    let bytes = uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
    Some(GpuUuid::from_bytes(bytes))
}
