//! The GPUs as this process numbers them, and what the container was granted of each. The UUID decides (I10): the
//! ordinal is whatever `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` make of it.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64};

use once_cell::sync::OnceCell;
use vcuda_driver_api::prelude::*;
use vcuda_quota::NO_MEMORY_LIMIT;
use vcuda_region::shared::{ObjectKey, Outlives, Shared};
use vcuda_region::slots::Slot;
use vcuda_region::{DeviceIndex, GpuUuid, ledger};

use crate::driver::{Stop, real};
use crate::runtime::registration::Haste;
use crate::runtime::shim::{Region, Shim};

mod known;
mod of_contexts;
mod overhead;
mod reserved;

pub(crate) use known::Devices;
pub(crate) use reserved::Reserved;

/// The container may not have this memory.
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

/// One GPU of this process.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its ordinal in this process.
    pub(crate) ordinal: CUdevice,
    /// Its identity.
    pub(crate) uuid: GpuUuid,
    /// Where its grant stands in `limits`; nothing if the container was not given this GPU or has no usable limits.
    pub(crate) grant: Option<DeviceIndex>,
    /// What its driver pads the rows of pitched memory to (bytes).
    pub(crate) pitch_unit: OnceCell<u64>,
    /// Managed memory, as far as it is counted for this process (bytes).
    managed_bytes: AtomicU64,
    /// The overhead that was last measured for certain (bytes): 0 before there is any. Of another figure it is not known.
    certain_overhead_bytes: AtomicU64,
    /// The contexts of this process on it are charged, as far as they are known.
    is_noticed: AtomicBool,
    shim: &'static Shim,
}

impl Device {
    /// The region's index and the region, if the container was given this GPU.
    #[inline]
    pub(crate) fn region(&self) -> Option<(&'static Region, DeviceIndex)> {
        Some((self.shim.region()?, self.grant?))
    }

    /// The memory limit in bytes ([`vcuda_quota::NO_MEMORY_LIMIT`]: none). 0 where nothing was granted.
    #[inline]
    pub(crate) fn memory_limit_bytes(&self) -> u64 {
        self.region()
            .map_or(0, |(region, index)| region.memory_limit_bytes(index))
    }

    /// What all processes of the container have on this device (bytes), with what the driver holds for this one now.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shim.pool_accounts.recount();
        self.region().map_or(0, |(region, index)| {
            self.shim.settle_released(region);
            region.usage.used_bytes(index)
        })
    }

    /// Counts `bytes` before the driver is asked for them.
    ///
    /// # Errors
    /// They would not fit, or the container has no usable limits, or was not given this GPU.
    #[inline]
    pub(crate) fn reserve(&'static self, bytes: u64) -> Result<Reserved, Denied> {
        // The driver may take from its pools what it lacks.
        self.shim.pool_accounts.changed();
        self.count(bytes, |slot, index, limit_bytes| {
            slot.reserve(index, bytes, limit_bytes)
        })
        .map(|reservation| Reserved {
            device: self,
            reservation,
        })
    }

    /// Counts `bytes` that another container's process has exported, once for all processes of this one that hold them.
    ///
    /// # Errors
    /// As [`Device::reserve`].
    pub(crate) fn join_foreign(&'static self, key: ObjectKey, bytes: u64) -> Result<Shared, Denied> {
        self.count(bytes, |slot, index, limit_bytes| {
            slot.join_foreign(key, index, bytes, limit_bytes)
        })
    }

    /// What `attempt` gets from the ledger, given the slot, where the device stands in it, and the limit in bytes. Tried
    /// again after room was made; what fits needs no look at the neighbours (where hundreds start at once, each would look
    /// at all the others).
    ///
    /// # Errors
    /// As [`Device::reserve`].
    #[inline]
    pub(crate) fn count<T>(
        &'static self,
        bytes: u64,
        attempt: impl Fn(&'static Slot<'static>, DeviceIndex, u64) -> Result<T, ledger::Denied>,
    ) -> Result<T, Denied> {
        let Some((region, index)) = self.region() else {
            return Err(self.refuse(bytes));
        };
        self.notice_contexts();
        let Some(slot) = self.shim.slot() else {
            return Err(self.refuse(bytes));
        };
        region.follow();
        let attempt = || attempt(slot, index, region.memory_limit_bytes(index));
        self.insist(attempt)
    }

    /// Counts `bytes` if they fit as things are. Nobody is denied by this: the caller has less to ask for.
    #[inline]
    pub(crate) fn reserve_if_it_fits(&'static self, bytes: u64) -> Option<Reserved> {
        let ((region, index), slot) = self.region().zip(self.shim.slot())?;
        let reservation = slot
            .reserve(index, bytes, region.memory_limit_bytes(index))
            .ok()?;
        Some(Reserved {
            device: self,
            reservation,
        })
    }

    /// Counts `bytes` that the driver has taken already, wherever the limit is.
    ///
    /// # Errors
    /// They are counted, and beyond the limit.
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

    /// What `attempt` gets from the ledger, tried once more after room was made. Only the second refusal is a denial.
    #[inline]
    fn insist<T>(&'static self, mut attempt: impl FnMut() -> Result<T, ledger::Denied>) -> Result<T, Denied> {
        attempt()
            .or_else(|_| {
                self.make_room();
                attempt()
            })
            .map_err(|denied| self.deny(&denied))
    }

    /// Before anybody is refused: gives back whatever is counted on this device and used by nobody.
    #[cold]
    fn make_room(&'static self) {
        // What the dead held, and the driver's own use as it is now.
        self.shim.look();
        self.shim.pool_accounts.make_room(self);
        if let Some((region, _)) = self.region() {
            self.shim.settle_released(region);
        }
    }

    /// A denial that is final: counted, and said in the log.
    #[cold]
    fn deny(&'static self, denied: &ledger::Denied) -> Denied {
        if let (Some((_, index)), Some(slot)) = (self.region(), self.shim.slot()) {
            slot.count_denied(index);
        }
        self.shim.log(format_args!("denied on {}: {denied}", self.uuid));
        Denied
    }

    /// Makes bytes that are counted here already known to the container, as an object that others may hold too. Nothing
    /// if the container has no room for more of them: then whoever imports it pays for it again.
    pub(crate) fn share(&self, key: ObjectKey, bytes: u64) -> Option<Shared> {
        let ((_, index), slot) = self.region().zip(self.shim.slot())?;
        slot.share(key, index, bytes)
    }

    /// What this process pays for an object is counted by the object itself from here on; see [`Slot::stop_paying`].
    pub(crate) fn stop_paying(&self, shared: &Shared) {
        if let Some(slot) = self.shim.slot() {
            slot.stop_paying(shared);
        }
    }

    /// `keeper` may keep the object beside its holders; see [`Slot::outlive`].
    pub(crate) fn outlive(&self, shared: &Shared, keeper: Outlives) -> bool {
        self.shim.slot().is_some_and(|slot| slot.outlive(shared, keeper))
    }

    /// Lets go of an object.
    pub(crate) fn part(&'static self, shared: Shared) {
        if let Some(slot) = self.shim.slot() {
            let was_ambiguous = self.ambiguous_bytes() > 0;
            slot.part(shared);
            if was_ambiguous {
                // What the driver says of this process can be told apart better now.
                self.shim.overhead.follow(self, Haste::Later);
            }
        }
    }

    /// Gives back bytes that were counted on this device.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        if let (Some((_, index)), Some(slot)) = (self.region(), self.shim.slot()) {
            slot.release(index, bytes);
        }
    }

    /// The state it belongs to.
    #[inline]
    pub(crate) fn shim(&self) -> &'static Shim {
        self.shim
    }

    /// The process's own records of this device.
    fn place(&self) -> Option<(DeviceIndex, &'static Slot<'static>)> {
        self.region().map(|(_, index)| index).zip(self.shim.slot())
    }

    /// A device of which nothing was granted.
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

    #[cold]
    fn refuse(&self, bytes: u64) -> Denied {
        let why = match self.shim.closed() {
            Some(why) => why,
            None if self.grant.is_none() => "the container was not given this GPU; see `vcuda smi`",
            None => "too many processes of this container use a GPU; end some",
        };
        self.shim
            .log(format_args!("denied {bytes} bytes on {}: {why}", self.uuid));
        Denied
    }
}

/// Whether memory of this location is on the GPU whose ordinal is the location's id.
pub(crate) fn is_device(location: CUmemLocationType) -> bool {
    location == CUmemLocationType::DEVICE || location == CUmemLocationType::DEVICE_LOCALITY_DOMAIN
}

/// Holds an object that the container knows and pays for already; nothing if it does not know it, or this process does
/// not see its GPU.
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

/// This process's device of a grant, used before or not.
fn with_grant(shim: &'static Shim, grant: DeviceIndex) -> Option<&'static Device> {
    let is_it = |device: &&'static Device| device.grant == Some(grant);
    if let Some(device) = shim.devices().used().find(is_it) {
        return Some(device);
    }
    let mut count = 0;
    // SAFETY: the driver writes a count or nothing.
    unsafe { real::cuDeviceGetCount(&raw mut count) }.ok()?;
    (0..count).filter_map(|ordinal| shim.device(ordinal)).find(is_it)
}

/// The ordinal of the current context's device; nothing without a context.
#[inline]
pub(crate) fn current_ordinal() -> Option<CUdevice> {
    let mut ordinal = 0;
    // SAFETY: the driver writes an ordinal or nothing.
    unsafe { real::cuCtxGetDevice(&raw mut ordinal) }.ok()?;
    Some(ordinal)
}

/// The device of a context, whether it is current or not; nothing if it is no context.
pub(crate) fn device_of_context(shim: &'static Shim, context: CUcontext) -> Option<&'static Device> {
    if context.is_null() {
        return None;
    }
    if context == current_context() {
        return shim.current_device();
    }
    let made_here = shim.contexts.lock().get(&context).copied();
    if made_here.is_some() {
        return made_here;
    }
    let green = shim.greens.lock().ordinal_of(context);
    if let Some(ordinal) = green {
        return shim.device(ordinal);
    }
    let _pushed = Pushed::make_current(context)?;
    shim.current_device()
}

/// A context that is current for as long as this lives; then the one before is again.
#[derive(Debug)]
pub(crate) struct Pushed(PhantomData<*const ()>);

impl Pushed {
    /// Nothing if the driver knows no such context.
    pub(crate) fn make_current(context: CUcontext) -> Option<Self> {
        // SAFETY: the driver judges the handle itself; what is pushed is popped again in `drop`.
        unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
        Some(Self(PhantomData))
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push of `make_current`, on the same thread: this type is not sent to others.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

/// The context that any thread may make current to ask about things of `context`, which is on `device`: itself, or the
/// device's primary context for a green one. That one "can be current to only one thread at a time" (CUDA Driver API,
/// `cuGreenCtxCreate`), which is one of the application's.
pub(crate) fn shared_context(shim: &Shim, context: CUcontext, device: &Device) -> CUcontext {
    if shim.contexts.lock().contains_key(&context) {
        return context;
    }
    // One that we did not see made is a green one for all that is known, and its device then has a primary context.
    crate::hooks::primary_context(device.ordinal).unwrap_or(context)
}

/// The context of a stream; null for a default stream, which is the current context's, and if the driver does not say.
pub(crate) fn context_of_stream(stream: CUstream) -> CUcontext {
    let mut context = CUcontext::NULL;
    if stream.0 <= crate::runtime::stream::PER_THREAD {
        return context;
    }
    // SAFETY: the driver judges the handle itself and writes a context or nothing.
    let asked = unsafe { real::cuStreamGetCtx(stream, &raw mut context) };
    if asked.is_ok() { context } else { CUcontext::NULL }
}

/// Whether the driver was initialised in this process (`cuInit`), as far as it tells.
pub(crate) fn is_driver_initialised() -> bool {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing.
    let asked = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    asked != Err(CUerror::NOT_INITIALIZED)
}

/// The current context; null without one.
#[inline]
pub(crate) fn current_context() -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing.
    let asked = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    if asked.is_ok() { context } else { CUcontext::NULL }
}
