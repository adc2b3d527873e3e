//! Bytes that this process has counted in the ledger for something that it holds, alone or together with other processes
//! of the container.

use vcuda_region::shared::{ObjectKey, Outlives, Shared};

use crate::runtime::devices::{self, Denied, Device, Reserved};
use crate::runtime::ofd_key;
use crate::runtime::shim::Shim;

/// Bytes that stay counted as long as this lives: dropped, they are given back, once. Of an object that other processes
/// hold too the hold is given back, and the last of them gives back the bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    device: &'static Device,
    bytes: u64,
    /// Boxed: few are shared, and allocations are many.
    together: Option<Box<Together>>,
}

/// An object that the container knows.
#[derive(Debug)]
struct Together {
    key: ObjectKey,
    shared: Shared,
    /// Given away in a way of which nothing can be proved: held until this process ends.
    is_kept: bool,
}

impl Charge {
    /// An importer's hold on an object that the container pays for already; nothing if the container does not know it.
    pub(crate) fn join(shim: &'static Shim, key: ObjectKey) -> Option<Self> {
        let (device, shared) = devices::join(shim, key)?;
        Some(Self::together(device, key, shared))
    }

    /// An object from outside of the container, which its first importer pays for.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn join_foreign(device: &'static Device, key: ObjectKey, bytes: u64) -> Result<Self, Denied> {
        Ok(Self::together(device, key, device.join_foreign(key, bytes)?))
    }

    /// Bytes that are counted in this process's slot already, and are given back by this from now on.
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

    /// The exporter tells the container what it pays for under this key. Where that cannot be noted, importers pay too:
    /// more is counted, never less. An object has one key: the first one stays.
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

    /// The memory was given away under `key`, and `keeper` may keep it from now on, whatever becomes of this process: the
    /// container knows it under its key, and counts it until its release is proved.
    ///
    /// # Errors
    /// The container has no place for it: the memory must not be given away.
    pub(crate) fn give_away(&mut self, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        self.share(key);
        let together = self.together.as_mut().ok_or(Denied)?;
        // Given away under another key by another thread meanwhile: nobody asks about this one.
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

    /// The driver is about to be asked to free it. Others of the container may hold it, and the driver says of one of
    /// them that it has it as soon as it is freed here: the container finds that explained from now on.
    pub(crate) fn end(&mut self) {
        if let Some(together) = &self.together {
            self.device.stop_paying(&together.shared);
        }
    }

    /// Under which key the container knows it.
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

    /// What this process alone counts for it on the device (bytes): 0 for an object of the container.
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        let is_own = self.together.is_none() && self.device.ordinal == device.ordinal;
        if is_own { self.bytes } else { 0 }
    }

    /// Bytes of a device of which nothing was granted.
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
    /// What the bytes were reserved for exists. Cannot fail.
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
            Some(together) if together.is_kept => {}
            Some(together) => self.device.part(together.shared),
        }
    }
}
