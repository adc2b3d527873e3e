//! CDI specifications of what the daemons give to containers: a file for each slot of the device plugin and for each claim of the
//! DRA driver. Beside it is the record, which is all that a daemon remembers.

use std::path::PathBuf;

use vcuda_cdi::{Device, edits};
pub(crate) use vcuda_cdi::{Inject, Shim, Spec, SpecError, SpecInputs};

mod record;
mod store;

pub(crate) use record::{ClaimRecord, HeldDevices, Prepared, Record, SlotRecord};
pub(crate) use store::{Store, StoreError};

/// A device for containers that use the same GPUs with the same limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CdiDevice {
    /// Its name: the slot, or the claim's UID and the group's first request.
    pub(crate) name: String,
    /// UUIDs of its GPUs, in the order in which the container sees them.
    pub(crate) gpus: Vec<String>,
    /// The tenant's directory on the host; `None` without limits.
    pub(crate) limits: Option<PathBuf>,
}

pub(crate) fn qualified<R: Record>(name: &str) -> String {
    format!("{}={name}", R::KIND)
}

pub(crate) fn spec<R: Record>(inputs: &SpecInputs, devices: &[CdiDevice]) -> Result<Spec, SpecError> {
    let mut written = Vec::new();
    for device in devices {
        let container_edits = edits(inputs, &device.gpus, device.limits.as_deref())?;
        written.push(Device { name: device.name.clone(), container_edits });
    }
    Ok(Spec::new(R::KIND, written))
}

#[cfg(test)]
mod tests;
