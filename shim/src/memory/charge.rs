//! Bytes that this process counts in the ledger, alone or together with other processes of the tenant.

use vcuda_region::shared::{ObjectKey, Outlives, Shared};

use crate::memory::reserve::Reserved;
use crate::runtime::shim::Shim;
use crate::runtime::shim::devices::{self, Denied, Device};

/// Bytes that stay counted as long as this value lives. Dropping it gives them back once. For an object that other
/// processes hold too, dropping gives back this process's hold; the last holder gives back the bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    device: &'static Device,
    bytes: u64,
    /// Boxed: few are shared, and allocations are many.
    object: Option<Box<SharedObject>>,
}

/// An object that the tenant knows by a key.
#[derive(Debug)]
struct SharedObject {
    key: ObjectKey,
    shared: Shared,
    /// Set if it was exported in a way that allows no proof of release: it is held until this process ends.
    is_kept: bool,
}

impl Charge {
    /// The hold of an importer on an object that the tenant pays for already. `None` if the tenant does not know the
    /// key.
    pub(crate) fn join(shim: &'static Shim, key: ObjectKey) -> Option<Self> {
        let (device, shared) = devices::join(shim, key)?;
        Some(Self::object(device, key, shared))
    }

    /// The charge for an object from outside of the tenant, which its first importer pays for.
    ///
    /// # Errors
    /// Fails if the bytes do not fit.
    pub(crate) fn join_foreign(device: &'static Device, key: ObjectKey, bytes: u64) -> Result<Self, Denied> {
        Ok(Self::object(device, key, device.join_foreign(key, bytes)?))
    }

    /// A charge for bytes that are counted in this process's slot already.
    pub(crate) fn counted(device: &'static Device, bytes: u64) -> Self {
        Self { device, bytes, object: None }
    }

    fn object(device: &'static Device, key: ObjectKey, shared: Shared) -> Self {
        Self {
            device,
            bytes: shared.bytes(),
            object: Some(Box::new(SharedObject { key, shared, is_kept: false })),
        }
    }

    /// Publishes the memory to the tenant under `key`. If that cannot be noted, importers pay too: too much is counted,
    /// never too little. An object keeps its first key.
    pub(crate) fn share(&mut self, key: ObjectKey) {
        if self.object.is_none() {
            let shared = self.device.share(key, self.bytes);
            self.object = shared.map(|shared| Box::new(SharedObject { key, shared, is_kept: false }));
        }
    }

    /// Notes that the memory was exported under `key`. From now on `keeper` may keep it beyond the end of this process:
    /// the tenant counts it until its release is proved.
    ///
    /// # Errors
    /// Fails if the tenant has no place for it: the memory must not be exported.
    pub(crate) fn note_export(&mut self, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        self.share(key);
        let object = self.object.as_mut().ok_or(Denied)?;
        // Exported under another key by another thread meanwhile: no process looks for this one.
        let keeper =
            if object.key.lock_offset() == key.lock_offset() { keeper } else { Outlives::UNPROVABLE };
        object.is_kept |= keeper == Outlives::UNPROVABLE;
        if self.device.outlive(&object.shared, keeper) { Ok(()) } else { Err(Denied) }
    }

    /// Prepares for the driver's free. Other processes of the tenant may hold the memory, and the driver attributes it
    /// to one of them as soon as it is freed here. From now on the object counts itself, so that the tenant's sum stays
    /// true.
    pub(crate) fn end(&mut self) {
        if let Some(object) = &self.object {
            self.device.stop_paying(&object.shared);
        }
    }

    /// The key by which the tenant knows it.
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        self.object.as_ref().map(|object| object.key)
    }

    /// The device that pays.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that this process alone counts for it on the device; 0 for an object of the tenant.
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        let is_own = self.object.is_none() && self.device.ordinal == device.ordinal;
        if is_own { self.bytes } else { 0 }
    }

    /// A charge of one byte on a device without a grant.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self { device: Device::for_tests(Shim::for_tests()), bytes: 1, object: None }
    }
}

impl From<Reserved> for Charge {
    /// Keeps the reserved bytes counted, as their memory exists now. Cannot fail.
    #[inline]
    fn from(reserved: Reserved) -> Self {
        let charge = Self::counted(reserved.device(), reserved.bytes());
        reserved.commit();
        charge
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        match self.object.take() {
            None => self.device.release(self.bytes),
            Some(object) => let_go(self.device, *object),
        }
    }
}

/// Gives back the hold on an object.
#[cold]
fn let_go(device: &'static Device, object: SharedObject) {
    if !object.is_kept {
        device.part(object.shared);
    }
}
