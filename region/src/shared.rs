//! Objects that more than one process of the container may hold, each charged once.

use crate::DeviceIndex;
use crate::ledger::Denied;
use crate::slots::Slot;

mod key;
pub use key::ObjectKey;

/// A process's hold on an object that others may hold too, until [`Slot::part`]. A forked child must leave its parent's
/// alone, as it does with the slot.
#[must_use = "the object is held until `Slot::part`"]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    device: DeviceIndex,
    bytes: u64,
}

impl Shared {
    /// The device it is on.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// What is counted for it, once in the container (bytes).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Slot<'_> {
    /// Exporter: memory already counted in this slot becomes known to the container. From here on it is given back by
    /// [`Slot::part`] and no longer by [`Slot::release`]. An object that this process holds already is held once more.
    /// `None`: there is no room (or somebody else counts that object); nothing has changed, and importers pay themselves.
    pub fn share(&self, _key: ObjectKey, _device: DeviceIndex, _bytes: u64) -> Option<Shared> {
        None
    }

    /// Importer: holds the object of this key, for which nothing more is counted. `None`: the container does not know it.
    pub fn join(&self, _key: ObjectKey) -> Option<Shared> {
        None
    }

    /// Importer of an object from outside of the container: counts its `bytes`, once for all processes that adopt it.
    ///
    /// # Errors
    /// It would not fit.
    pub fn adopt(
        &self,
        _key: ObjectKey,
        device: DeviceIndex,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<Shared, Denied> {
        self.reserve(device, bytes, limit_bytes)?.commit();
        Ok(Shared { device, bytes })
    }

    /// Lets go. What was counted for the object stays counted as long as another process of the container holds it.
    #[expect(clippy::needless_pass_by_value, reason = "the hold ends here")]
    pub fn part(&self, object: Shared) {
        self.release(object.device, object.bytes);
    }
}
