//! The card as a whole, before and after something is made: how else to know what it took where NVML does not list us.

use vcuda_driver_api::prelude::*;

use super::figure;
use crate::devices::{Device, current_context};
use crate::ffi::real;
use crate::hooks::own as hooked;
use crate::shim::Shim;

/// What was in use on the card.
#[derive(Debug)]
pub(super) struct Card {
    used_bytes: Option<u64>,
    /// What the container had of that beside this process's overhead.
    known_bytes: u64,
    nvml: Option<nvmlDevice_t>,
    /// Without NVML, a context on the device, by which the driver tells.
    witness: CUcontext,
    /// The witness was made for this alone.
    is_made: bool,
}

impl Card {
    /// A card that nobody looks at.
    pub(super) const UNSEEN: Self = Self {
        used_bytes: None,
        known_bytes: 0,
        nvml: None,
        witness: CUcontext::NULL,
        is_made: false,
    };

    /// Looks at the card now, when `reserved_bytes` are counted for what is about to be made. Without NVML and any context,
    /// one is made for the moment if that `is_worth_a_context`.
    pub(super) fn seen(
        device: &'static Device,
        nvml: Option<nvmlDevice_t>,
        reserved_bytes: u64,
        is_worth_a_context: bool,
    ) -> Self {
        let mut card = Self { nvml, ..Self::UNSEEN };
        if nvml.is_none() {
            card.witness = witness_on(device);
            if card.witness.is_null() && is_worth_a_context {
                card.witness = make_witness(device);
                card.is_made = !card.witness.is_null();
            }
        }
        card.known_bytes = device.besides_overhead_bytes().saturating_sub(reserved_bytes);
        card.used_bytes = card.now_bytes();
        card
    }

    /// What is in use now, by whomever (bytes).
    fn now_bytes(&self) -> Option<u64> {
        match self.nvml {
            Some(handle) => figure::card_used_by_nvml(handle),
            None if self.witness.is_null() => None,
            None => figure::card_used_by_driver(self.witness),
        }
    }

    /// What is in use now beyond what was, less what the container's ledger knows to be another's doing (bytes).
    pub(super) fn more_bytes(&self, device: &Device) -> Option<u64> {
        let now_bytes = self.now_bytes()?.saturating_add(self.known_bytes);
        let known_bytes = device.besides_overhead_bytes();
        Some(now_bytes.saturating_sub(self.used_bytes?.saturating_add(known_bytes)))
    }

    /// What is in use no more (bytes).
    pub(super) fn less_bytes(&self) -> Option<u64> {
        Some(self.used_bytes?.saturating_sub(self.now_bytes()?))
    }

    /// No question follows.
    pub(super) fn forget(&self) {
        if self.is_made {
            // SAFETY: a context of our own that nobody else knows.
            let _ = unsafe { hooked::cuCtxDestroy_v2(self.witness) };
        }
    }
}

/// A context of this process on the device; null if none is known.
pub(super) fn witness_on(device: &'static Device) -> CUcontext {
    let shim: &'static Shim = device.shim();
    let current = current_context();
    if !current.is_null()
        && shim
            .current_device()
            .is_some_and(|own| own.ordinal == device.ordinal)
    {
        return current;
    }
    let known = {
        let contexts = shim.contexts.lock();
        contexts
            .iter()
            .find_map(|(context, on)| (on.ordinal == device.ordinal).then_some(*context))
    };
    known
        .or_else(|| crate::hooks::primary_context(device.ordinal))
        .unwrap_or(CUcontext::NULL)
}

/// A context for a moment, current to nobody; null if the driver makes none.
fn make_witness(device: &Device) -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes a handle or nothing.
    if unsafe { hooked::cuCtxCreate_v2(&raw mut context, 0, device.ordinal) }.is_err() {
        return CUcontext::NULL;
    }
    let mut popped = CUcontext::NULL;
    // SAFETY: the new context was made current to this thread; it is not to stay so.
    let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    context
}
