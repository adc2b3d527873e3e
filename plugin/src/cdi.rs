//! The plugins' CDI specifications. Each slot has a file with a single device, which the runtime finds by its name. The plugin's
//! record of the container is beside it.

use std::path::PathBuf;

use crate::ids::Slot;
use vcuda_cdi::{Device, edits};
pub use vcuda_cdi::{Inject, Shim, Spec, SpecError, SpecInputs};

mod claim;
mod record;
mod store;

pub use claim::{ClaimDevice, ClaimRecord, Prepared, claim_spec};
pub use record::{HeldDevices, Record};
pub use store::{Store, StoreError};

/// Vendor and class of the slots' devices.
pub const KIND: &str = "vcuda.io/slot";

/// Qualified CDI name of the slot's device.
pub fn qualified(slot: &Slot) -> String {
    format!("{KIND}={slot}")
}

/// The grant of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its slot.
    pub slot: Slot,
    /// The manager's name for it.
    pub id: String,
    /// The tenant's directory on the host.
    pub directory: PathBuf,
    /// UUIDs of its GPUs, in the order in which the container sees them.
    pub gpus: Vec<String>,
    /// Whether the container is limited and gets the shim. If not, it has whole GPUs.
    pub is_limited: bool,
    /// Devices and pod of the container.
    pub held: HeldDevices,
    /// The requested amounts, as a text to compare.
    pub asked: String,
}

impl Grant {
    /// The record of the grant.
    pub fn record(&self) -> Record {
        Record {
            slot: self.slot.clone(),
            id: self.id.clone(),
            gpus: self.gpus.clone(),
            held: self.held.clone(),
            asked: self.asked.clone(),
        }
    }
}

/// The specification of a container's device.
///
/// # Errors
/// An input is missing: see [`SpecError`].
pub fn spec(inputs: &SpecInputs, grant: &Grant) -> Result<Spec, SpecError> {
    let limits = grant.is_limited.then_some(grant.directory.as_path());
    let device =
        Device { name: grant.slot.to_string(), container_edits: edits(inputs, &grant.gpus, limits)? };
    Ok(Spec::new(KIND, vec![device]))
}

#[cfg(test)]
mod tests;
