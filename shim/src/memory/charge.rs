//! Bytes that this process counts in the ledger, alone or together with other processes of the container.

use vcuda_region::shared::{ObjectKey, Outlives, Shared};

use crate::memory::reserve::Reserved;
use crate::runtime::devices::{self, Denied, Device};
use crate::runtime::ofd_key;
use crate::runtime::shim::Shim;

/// Bytes that stay counted as long as this value lives. Dropping it gives them back once. For an object that other
/// processes hold too, dropping gives back this process's hold; the last holder gives back the bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    device: &'static Device,
    bytes: u64,
    /// Boxed: few are shared, and allocations are many.
    together: Option<Box<Together>>,
}

/// An object that the container knows by a key.
#[derive(Debug)]
struct Together {
    key: ObjectKey,
    shared: Shared,
    /// Set if it was exported in a way that allows no proof of release: it is held until this process ends.
    is_kept: bool,
}

impl Charge {
    /// The hold of an importer on an object that the container pays for already. `None` if the container does not
    /// know the key.
    pub(crate) fn join(shim: &'static Shim, key: ObjectKey) -> Option<Self> {
        let (device, shared) = devices::join(shim, key)?;
        Some(Self::together(device, key, shared))
    }

    /// The charge for an object from outside of the container, which its first importer pays for.
    ///
    /// # Errors
    /// Fails if the bytes do not fit.
    pub(crate) fn join_foreign(device: &'static Device, key: ObjectKey, bytes: u64) -> Result<Self, Denied> {
        Ok(Self::together(device, key, device.join_foreign(key, bytes)?))
    }

    /// A charge for bytes that are counted in this process's slot already.
    pub(crate) fn counted(device: &'static Device, bytes: u64) -> Self {
        Self {
            device,
            bytes,
            together: None,
        }
    }

    fn together(device: &'static Device, key: ObjectKey, shared: Shared) -> Self {
        Self {
            device,
            bytes: shared.bytes(),
            together: Some(Box::new(Together {
                key,
                shared,
                is_kept: false,
            })),
        }
    }

    /// Publishes the memory to the container under `key`. If that cannot be noted, importers pay too: too much is
    /// counted, never too little. An object keeps its first key.
    pub(crate) fn share(&mut self, key: ObjectKey) {
        if self.together.is_none() {
            let shared = self.device.share(key, self.bytes);
            self.together = shared.map(|shared| {
                Box::new(Together {
                    key,
                    shared,
                    is_kept: false,
                })
            });
        }
    }

    /// Notes that the memory was exported under `key`. From now on `keeper` may keep it beyond the end of this
    /// process: the container counts it until its release is proved.
    ///
    /// # Errors
    /// Fails if the container has no place for it: the memory must not be exported.
    pub(crate) fn give_away(&mut self, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        self.share(key);
        let together = self.together.as_mut().ok_or(Denied)?;
        // Exported under another key by another thread meanwhile: no process looks for this one.
        let keeper = if ofd_key::offset_of(together.key) == ofd_key::offset_of(key) {
            keeper
        } else {
            Outlives::UNPROVABLE
        };
        together.is_kept |= keeper == Outlives::UNPROVABLE;
        if self.device.outlive(&together.shared, keeper) {
            Ok(())
        } else {
            Err(Denied)
        }
    }

    /// Prepares for the driver's free. Other processes of the container may hold the memory, and the driver
    /// attributes it to one of them as soon as it is freed here. From now on the object counts itself, so that the
    /// container's sum stays true.
    pub(crate) fn end(&mut self) {
        if let Some(together) = &self.together {
            self.device.stop_paying(&together.shared);
        }
    }

    /// The key by which the container knows it.
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        self.together.as_ref().map(|together| together.key)
    }

    /// The device that pays.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that this process alone counts for it on the device; 0 for an object of the container.
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        let is_own = self.together.is_none() && self.device.ordinal == device.ordinal;
        if is_own { self.bytes } else { 0 }
    }

    /// One byte of a device for which nothing was granted.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            device: Device::for_tests(Shim::for_tests()),
            bytes: 1,
            together: None,
        }
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
        match self.together.take() {
            None => self.device.release(self.bytes),
            Some(together) => let_go(self.device, *together),
        }
    }
}

/// Gives back the hold on an object.
#[cold]
fn let_go(device: &'static Device, together: Together) {
    if !together.is_kept {
        device.part(together.shared);
    }
}
