//! Bytes counted on a device before the driver is asked for them, and what makes room for them.

use vcuda_region::reservation::Reservation;
use vcuda_region::shared::{ObjectKey, Shared};
use vcuda_region::slots::Slot;
use vcuda_region::{DeviceIndex, ledger};

use crate::runtime::heap;
use crate::runtime::region::Region;
use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::{Denied, Device};

/// Bytes counted on a device for an allocation that is about to be made.
#[derive(Debug)]
pub(crate) struct Reserved {
    device: &'static Device,
    reservation: Reservation<'static, 'static>,
}

impl Reserved {
    /// The bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// The device.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Corrects the count to the bytes that the driver really took.
    ///
    /// # Errors
    /// Fails if the driver took more and that does not fit.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), Denied> {
        let device = self.device;
        device.attempt_twice(|| self.reservation.resize(bytes, device.memory_limit_bytes()))
    }

    /// Turns the bytes into overhead, as the driver keeps them for itself. At no moment do they count as nothing or
    /// twice.
    pub(crate) fn become_overhead(self) {
        let (device, bytes) = (self.device, self.bytes());
        self.reservation.commit();
        if let Some((index, slot)) = device.place() {
            slot.count_as_overhead(index, bytes);
        }
    }

    /// Keeps the bytes counted until [`Device::release`], as the allocation exists now.
    #[inline]
    pub(crate) fn commit(self) {
        self.reservation.commit();
    }
}

impl Device {
    /// Bytes that all processes of the tenant use on this device, including the driver's current pools of this one.
    #[inline(always)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shim().accounts().pool_accounts.recount();
        let Some((region, index)) = self.grant else {
            return 0;
        };
        self.shim().settle_released(region);
        region.usage.used_bytes(index)
    }

    /// Counts `bytes` before the driver is asked for them.
    ///
    /// # Errors
    /// Fails if they do not fit, if the tenant has no usable limits, or if it was not given this GPU.
    #[inline(always)]
    pub(crate) fn reserve(&'static self, bytes: u64) -> Result<Reserved, Denied> {
        // For this request the driver may take memory from its pools.
        self.shim().accounts().pool_accounts.changed();
        let (slot, region, index) = self.ledger_for(bytes)?;
        // The first attempt stands here, and not in a closure, because the compiler then merges it with its caller.
        let reservation = match slot.reserve(index, bytes, region.memory_limit_bytes(index)) {
            Ok(reservation) => reservation,
            Err(_) => self.reserve_after_room(bytes)?,
        };
        Ok(Reserved { device: self, reservation })
    }

    /// Counts `bytes` exported by a process of another tenant, once for all processes of this tenant that hold them.
    pub(crate) fn join_foreign(&'static self, key: ObjectKey, bytes: u64) -> Result<Shared, Denied> {
        self.count(bytes, move |slot, index, limit_bytes| slot.join_foreign(key, index, bytes, limit_bytes))
    }

    /// Makes `attempt` on the ledger, with the slot, the device's position in it, and the limit in bytes. If it
    /// fails, makes room and tries again. A request that fits needs no look at the neighbours. If hundreds of
    /// processes start at once, each would else look at all others.
    #[inline]
    pub(crate) fn count<T>(
        &'static self,
        bytes: u64,
        attempt: impl Fn(&'static Slot<'static>, DeviceIndex, u64) -> Result<T, ledger::Denied>,
    ) -> Result<T, Denied> {
        let (slot, region, index) = self.ledger_for(bytes)?;
        self.attempt_twice(move || attempt(slot, index, region.memory_limit_bytes(index)))
    }

    /// What a request for `bytes` is counted in: this process's slot, the tenant's files with limits that are followed,
    /// and the device's position in them.
    ///
    /// # Errors
    /// Fails if nothing can be counted.
    #[inline(always)]
    fn ledger_for(
        &'static self,
        bytes: u64,
    ) -> Result<(&'static Slot<'static>, &'static Region, DeviceIndex), Denied> {
        let Some((region, index)) = self.region().filter(|_| !heap::is_exhausted()) else {
            return Err(self.refuse(bytes));
        };
        self.notice_contexts();
        let Some(slot) = self.shim().slot() else {
            return Err(self.refuse(bytes));
        };
        region.follow();
        Ok((slot, region, index))
    }

    /// Counts `bytes` if they fit without making room. A refusal is not counted as a denial: the caller asks for
    /// less.
    #[inline]
    pub(crate) fn reserve_if_it_fits(&'static self, bytes: u64) -> Option<Reserved> {
        let ((region, index), slot) = self.region().zip(self.shim().slot())?;
        let reservation = slot.reserve(index, bytes, region.memory_limit_bytes(index)).ok()?;
        Some(Reserved { device: self, reservation })
    }

    /// The second attempt of [`Device::reserve`].
    #[cold]
    #[inline(never)]
    fn reserve_after_room(&'static self, bytes: u64) -> Result<Reservation<'static, 'static>, Denied> {
        self.make_room();
        let (slot, region, index) = self.ledger_for(bytes)?;
        slot.reserve(index, bytes, region.memory_limit_bytes(index)).map_err(|denied| self.deny(&denied))
    }

    /// Makes `attempt` on the ledger, and once more after making room. Only the second refusal is a denial.
    #[inline]
    fn attempt_twice<T>(
        &'static self,
        mut attempt: impl FnMut() -> Result<T, ledger::Denied>,
    ) -> Result<T, Denied> {
        let mut has_made_room = false;
        loop {
            match attempt() {
                Ok(got) => return Ok(got),
                Err(denied) if has_made_room => return Err(self.deny(&denied)),
                Err(_) => self.make_room(),
            }
            has_made_room = true;
        }
    }

    /// Gives back unused memory that is counted on this device, before a denial.
    #[cold]
    fn make_room(&'static self) {
        // Slots of dead processes, and the driver's own use as it is now.
        self.shim().refresh_before_refusal();
        self.shim().accounts().pool_accounts.make_room(self);
        if let Some((region, _)) = self.region() {
            self.shim().settle_released(region);
        }
    }

    /// Counts a final denial, and notes it in the log.
    #[cold]
    fn deny(&'static self, denied: &ledger::Denied) -> Denied {
        if let (Some((_, index)), Some(slot)) = (self.region(), self.shim().slot()) {
            slot.count_denied(index, denied);
        }
        self.shim().log(format_args!("denied on {}: {denied}", self.uuid));
        Denied
    }

    /// Lets go of an object.
    pub(crate) fn part(&'static self, shared: Shared) {
        if let Some(slot) = self.shim().slot() {
            let was_ambiguous = self.ambiguous_bytes() > 0;
            slot.part(shared);
            if was_ambiguous {
                // The driver's figure for this process is easier to interpret now.
                self.shim().accounts().overhead.remeasure(self, Haste::Later);
            }
        }
    }

    /// Memory beyond [`Device::own_bytes`] that the driver may attribute to this process (bytes): memory held together
    /// with others that no process pays for, and memory that may be given back already. Memory that only descriptors
    /// hold is left out, whichever process the driver attributes it to: it would explain away a context made meanwhile.
    pub(crate) fn ambiguous_bytes(&self) -> u64 {
        let slot = self.region().zip(self.shim().slot());
        slot.map_or(0, |((_, index), slot)| {
            let uncertain_bytes = self.shim().accounts().pool_accounts.uncertain_of_late_bytes(self);
            slot.unpaid_held_bytes(index).saturating_add(uncertain_bytes)
        })
    }

    /// Memory that this process certainly has on the device, by the driver's count too, without overhead (bytes).
    pub(crate) fn own_bytes(&self) -> u64 {
        self.shim().accounts().pool_accounts.recount_on(self);
        let (used_bytes, overhead_bytes) = self.amounts();
        used_bytes
            .saturating_sub(overhead_bytes)
            .saturating_sub(self.shim().accounts().pool_accounts.uncertain_bytes(self))
    }

    /// The part of [`Device::own_bytes`] that is managed memory (bytes); no more, if other threads make some now.
    pub(crate) fn managed_bytes(&self) -> u64 {
        let pools_bytes = self.shim().accounts().pool_accounts.managed_bytes(self);
        self.allocated_managed_bytes().saturating_add(pools_bytes)
    }

    #[cold]
    fn refuse(&self, bytes: u64) -> Denied {
        let why = match self.shim().closed() {
            Some(why) => why,
            None if heap::is_exhausted() => {
                "the process has no memory for the shim's records; see docs/limits.md"
            }
            None if self.grant.is_none() => "the tenant was not given this GPU; see `vcuda smi`",
            None => "too many processes of this tenant use a GPU; end some",
        };
        self.shim().log(format_args!("denied {bytes} bytes on {}: {why}", self.uuid));
        Denied
    }
}
