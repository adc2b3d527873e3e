//! Devices of grants for container engines: written, removed, and checked. A failure is reported and tried again at the next
//! check; no grant depends on it.

use std::sync::Arc;

use vcuda_region::clock;

use super::GrantWriter;
use crate::events::Severity;
use crate::grant::{Grant, GrantId};
use crate::grant_devices::DeviceError;

/// Time after which devices are checked again (ns).
const RESTORED_NS: u64 = 30_000_000_000;

impl GrantWriter {
    /// Writes the device of a new grant, unless the grant was released in the same batch.
    pub(super) fn write_device(&mut self, grant: &Grant) {
        if self.grant_table.by_id(grant.id.as_str()).is_some() {
            let inventory = Arc::clone(&self.inventory.borrow());
            let written = self.devices.write(grant, &inventory);
            self.note_device(written.map_err(|error| (Some(grant.id.clone()), error)));
        }
    }

    pub(super) fn remove_device(&mut self, grant: &Grant) {
        let removed = self.devices.remove(grant);
        self.note_device(removed.map_err(|error| (Some(grant.id.clone()), error)));
    }

    /// Periodic check: each grant has its device, and no other device is there.
    pub(super) fn restore_devices(&mut self) {
        let now_ns = clock::now_ns();
        let is_due = |at_ns: u64| now_ns >= at_ns.saturating_add(RESTORED_NS);
        if self.devices_restored_ns.is_none_or(is_due) {
            let inventory = Arc::clone(&self.inventory.borrow());
            let restored = self.devices.restore(&self.grant_table, &inventory);
            self.devices_restored_ns = restored.is_ok().then_some(now_ns);
            // Without grants nothing was tried, and a failure that was reported may still be there.
            if restored.is_ok() && self.grant_table.grants().next().is_some() {
                self.device_failure = None;
            }
            self.note_device(restored);
        }
    }

    /// Reports a failure, but not the last one again. What all grants have in common names none of them, so it is reported once.
    fn note_device(&mut self, done: Result<(), (Option<GrantId>, DeviceError)>) {
        let Err((id, error)) = done else {
            return;
        };
        self.devices_restored_ns = None;
        let id = id.as_ref().filter(|_| !error.is_of_node()).map(GrantId::as_str);
        let text = format!(
            "{}no device for container engines: {error}",
            id.map_or_else(String::new, |id| format!("{id}: "))
        );
        if self.device_failure.as_ref() != Some(&text) {
            self.events.say(Severity::Warning, "VcudaDeviceFailed", text.clone(), id);
            self.device_failure = Some(text);
        }
    }
}
