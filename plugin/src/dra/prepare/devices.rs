//! Checks of a claim's shares against the node's GPUs.

use std::collections::BTreeMap;

use super::{PrepareError, Preparer};
use crate::dra::claim::Share;
use crate::dra::device::is_suspendable_device;

impl Preparer {
    /// Whether the shares are whole GPUs.
    ///
    /// # Errors
    /// The scheduler has counted less than all memory of a whole GPU, or counts other shares of it, too.
    pub(super) fn are_whole(&self, shares: &[&Share]) -> Result<bool, PrepareError> {
        let known = self.shared.gpus.borrow().clone();
        let memory_bytes = |device: &str| known.as_ref()?.memory_bytes(device);
        let mut are_whole = false;
        for share in shares {
            let counted = share.counted.as_ref().filter(|counted| counted.is_whole);
            if let Some(counted) = counted {
                are_whole = true;
                if known.as_ref().is_some_and(|known| known.is_overcommitted(&share.device)) {
                    return Err(PrepareError::WholeOvercommitted(share.request.clone()));
                }
                if memory_bytes(&share.device).is_some_and(|all| counted.memory_bytes < all) {
                    return Err(PrepareError::PartOfWhole(share.request.clone()));
                }
            }
        }
        Ok(are_whole)
    }

    /// Checks that a tenant that is not suspendable has no share of a device for suspendable ones: it would take memory that the
    /// scheduler has given twice.
    ///
    /// # Errors
    /// It has one.
    pub(super) fn check_suspendable(shares: &[&Share], is_suspendable: bool) -> Result<(), PrepareError> {
        let of_others = shares.iter().find(|share| is_suspendable_device(&share.device));
        match of_others.filter(|_| !is_suspendable) {
            Some(share) => Err(PrepareError::NotSuspendable(share.request.clone(), share.device.clone())),
            None => Ok(()),
        }
    }

    /// UUIDs of the shares' GPUs.
    ///
    /// # Errors
    /// A device is not on this node, two shares are on the same GPU, or the GPUs are not known yet.
    pub(super) fn uuids(&self, shares: &[&Share]) -> Result<Vec<String>, PrepareError> {
        let known = self.shared.gpus.borrow().clone();
        let known = known.ok_or(PrepareError::NotYet)?;
        let mut uuids: BTreeMap<String, &Share> = BTreeMap::new();
        for share in shares {
            let uuid =
                known.uuid(&share.device).ok_or_else(|| PrepareError::NoDevice(share.device.clone()))?;
            if let Some(other) = uuids.insert(uuid.to_owned(), share) {
                let [first, second] = [other, *share].map(|share| share.request.clone());
                return Err(PrepareError::SameGpu(first, second, share.device.clone()));
            }
        }
        Ok(uuids.into_keys().collect())
    }
}
