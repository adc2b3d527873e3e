//! Contexts whose creation the shim did not see: private interfaces of the runtime make a primary context too (ZLUDA
//! issue 382). Such a context is noticed once it is current, and charged as any other.

use core::time::Duration;

use super::{DriverObject, Figure, Overhead, probe};
use crate::runtime::capture;
use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::{Device, current_context, primary_context};

/// Longest wait while other threads measure. The next call that asks for memory tries again.
const OTHERS_MEASURE: Duration = Duration::from_millis(100);

impl Overhead {
    /// Charges the current context, if it is the first one of this process seen on the device. Its memory is in use
    /// already, so it is counted even beyond the limit.
    #[cold]
    pub(crate) fn notice(&'static self, device: &'static Device) {
        let shim = device.shim();
        let context = current_context();
        let is_here = || {
            let current = shim.current_device();
            current.is_some_and(|current| current.ordinal == device.ordinal)
        };
        // A capture forbids what follows (I5).
        if context.is_null() || capture::any_open() || !is_here() {
            return;
        }
        self.start_nvml();
        self.await_nvml_after(device, device.context_bytes(device.overhead_bytes() == 0));
        let is_early = self.nvml.is_starting();
        let Some(measuring) = self.measuring.try_lock_for(OTHERS_MEASURE) else {
            return;
        };
        if device.set_noticed(true) {
            return;
        }
        let was_bytes = device.overhead_bytes();
        let bytes = match self.figure(device, 16, Haste::Now, 0) {
            Figure::Exact(bytes, _) | Figure::AtLeast(bytes) => bytes.saturating_sub(was_bytes),
            Figure::Unknown => {
                let is_first = was_bytes == 0;
                probe::context_size(device, is_first, None).unwrap_or(device.most_context_bytes(is_first))
            }
        };
        device.set_overhead(was_bytes.saturating_add(bytes));
        drop(measuring);
        if is_early {
            self.correct_when_ready();
        }
        shim.contexts.lock().insert(context, device);
        self.note(device, context, DriverObject::Context(context), bytes);
    }

    /// Notes that a context of the device has ended. If it was the last one, the next one is to be noticed.
    pub(super) fn forget_context(&'static self, device: &'static Device) {
        let is_other_known = {
            let contexts = device.shim().contexts.lock();
            contexts.values().any(|on| on.ordinal == device.ordinal)
        };
        if !is_other_known && primary_context(device.ordinal).is_none() {
            device.set_noticed(false);
        }
    }
}
