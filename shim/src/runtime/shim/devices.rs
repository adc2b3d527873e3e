//! The GPUs of this process, and the tenant's grant on each. The UUID decides (I10): the ordinal depends on
//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.

use core::sync::atomic::{AtomicBool, AtomicU64};

use once_cell::sync::OnceCell;
use vcuda_driver_api::prelude::*;
use vcuda_quota::NO_MEMORY_LIMIT;
use vcuda_region::shared::{ObjectKey, Outlives, Shared};
use vcuda_region::slots::Slot;
use vcuda_region::{DeviceIndex, GpuUuid};

use crate::driver::{Stop, real};
use crate::runtime::region::Region;
use crate::runtime::shim::Shim;

mod context_devices;
mod contexts;
mod green_contexts;
mod known;
mod overhead;

pub(crate) use contexts::{
    Pushed, context_of_stream, current_context, current_ordinal, device_of_context, is_driver_initialised,
    is_primary_active, primary_context, shared_context,
};
pub(crate) use green_contexts::{GreenContext, GreenContexts};
pub(crate) use known::Devices;

/// The error of a refusal: the tenant may not have this memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denied;

impl From<Denied> for CUerror {
    fn from(_: Denied) -> Self {
        Self::OUT_OF_MEMORY
    }
}

impl From<Denied> for Stop<CUerror> {
    fn from(denied: Denied) -> Self {
        CUerror::from(denied).into()
    }
}

/// A GPU of this process.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its ordinal in this process.
    pub(crate) ordinal: CUdevice,
    /// Its identity.
    pub(crate) uuid: GpuUuid,
    /// The region and the grant's position in it. `None` if the tenant was not given this GPU or has no usable limits.
    pub(crate) grant: Option<(&'static Region, DeviceIndex)>,
    /// Alignment to which the driver pads rows of pitched memory (bytes).
    pub(crate) pitch_unit: OnceCell<u64>,
    /// Managed memory counted for this process (bytes).
    managed_bytes: AtomicU64,
    /// The overhead at the last certain measurement (bytes); 0 before the first. Other figures are not certain.
    certain_overhead_bytes: AtomicU64,
    /// Set once all known contexts of this process on the device are charged.
    is_noticed: AtomicBool,
    shim: &'static Shim,
}

impl Device {
    /// The region's index and the region, if the tenant was given this GPU.
    #[inline]
    pub(crate) fn region(&self) -> Option<(&'static Region, DeviceIndex)> {
        self.grant
    }

    /// The memory limit in bytes ([`vcuda_quota::NO_MEMORY_LIMIT`]: none); 0 if nothing was granted.
    #[inline]
    pub(crate) fn memory_limit_bytes(&self) -> u64 {
        let Some((region, index)) = self.grant else {
            return 0;
        };
        region.memory_limit_bytes(index)
    }

    /// Counts `bytes` that the driver has taken already, even beyond the limit.
    ///
    /// # Errors
    /// Fails if they are beyond the limit. They are counted all the same.
    pub(crate) fn charge_taken(&self, bytes: u64) -> Result<(), Denied> {
        let Some(((region, index), slot)) = self.region().zip(self.shim.slot()) else {
            return Err(Denied);
        };
        let within = slot.reserve(index, bytes, region.memory_limit_bytes(index));
        let fits = within.is_ok();
        if let Ok(reservation) = within.or_else(|_| slot.reserve(index, bytes, NO_MEMORY_LIMIT)) {
            reservation.commit();
        }
        if fits { Ok(()) } else { Err(Denied) }
    }

    /// Publishes bytes that are counted here already to the tenant, as an object that other processes may hold. `None`
    /// if the tenant has no room for more objects: then each importer pays for it again.
    pub(crate) fn share(&self, key: ObjectKey, bytes: u64) -> Option<Shared> {
        let ((_, index), slot) = self.region().zip(self.shim.slot())?;
        slot.share(key, index, bytes)
    }

    /// Leaves it to the object to count what this process pays for it; see [`Slot::stop_paying`].
    pub(crate) fn stop_paying(&self, shared: &Shared) {
        if let Some(slot) = self.shim.slot() {
            slot.stop_paying(shared);
        }
    }

    /// Notes that `keeper` may keep the object beside its holders; see [`Slot::outlive`].
    pub(crate) fn outlive(&self, shared: &Shared, keeper: Outlives) -> bool {
        self.shim.slot().is_some_and(|slot| slot.outlive(shared, keeper))
    }

    /// Gives back bytes that were counted on this device.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        if let (Some((_, index)), Some(slot)) = (self.region(), self.shim.slot()) {
            slot.release(index, bytes);
        }
    }

    /// The shim's state.
    #[inline]
    pub(crate) fn shim(&self) -> &'static Shim {
        self.shim
    }

    /// The position of the device and this process's slot.
    pub(crate) fn place(&self) -> Option<(DeviceIndex, &'static Slot<'static>)> {
        self.region().map(|(_, index)| index).zip(self.shim.slot())
    }

    /// A device without a grant.
    #[cfg(test)]
    pub(crate) fn for_tests(shim: &'static Shim) -> &'static Self {
        Box::leak(Box::new(Self {
            ordinal: 0,
            uuid: GpuUuid::from_bytes([0; 16]),
            grant: None,
            pitch_unit: OnceCell::new(),
            managed_bytes: AtomicU64::new(0),
            certain_overhead_bytes: AtomicU64::new(0),
            is_noticed: AtomicBool::new(false),
            shim,
        }))
    }
}

/// Whether memory of this location is on the GPU whose ordinal is the location's id.
pub(crate) fn is_device(location: CUmemLocationType) -> bool {
    location == CUmemLocationType::DEVICE || location == CUmemLocationType::DEVICE_LOCALITY_DOMAIN
}

/// Holds an object that the tenant knows and pays for already. `None` if the tenant does not know it, or if this
/// process does not see its GPU.
pub(crate) fn join(shim: &'static Shim, key: ObjectKey) -> Option<(&'static Device, Shared)> {
    let slot = shim.slot()?;
    let shared = slot.join(key)?;
    let device = with_grant(shim, shared.device());
    if device.is_none() {
        slot.part(shared);
        return None;
    }
    device.zip(Some(shared))
}

/// This process's device for a grant, whether used before or not.
fn with_grant(shim: &'static Shim, grant: DeviceIndex) -> Option<&'static Device> {
    let is_it = |device: &&'static Device| device.grant.is_some_and(|(_, own)| own == grant);
    if let Some(device) = shim.devices().used().find(is_it) {
        return Some(device);
    }
    let mut count = 0;
    // SAFETY: the driver writes a count or nothing.
    unsafe { real::cuDeviceGetCount(&raw mut count) }.ok()?;
    (0..count).filter_map(|ordinal| shim.device(ordinal)).find(is_it)
}
