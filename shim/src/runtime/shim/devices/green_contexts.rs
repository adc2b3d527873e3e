//! The green contexts of this process, and the contexts that stand for them ([`crate::hooks`] has the calls).

use std::collections::HashMap;

use vcuda_driver_api::prelude::*;

use crate::runtime::by_number::ByNumber;

/// The green contexts of this process.
#[derive(Debug, Default)]
pub(crate) struct GreenContexts {
    known: HashMap<CUgreenCtx, GreenContext, ByNumber>,
    /// Contexts that stand for green ones, and their devices. Memory allocated in them is the primary context's, and
    /// stays when the green one ends.
    contexts: HashMap<CUcontext, CUdevice, ByNumber>,
}

/// A green context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GreenContext {
    /// The ordinal of its device.
    pub(crate) ordinal: CUdevice,
    /// Context that stands for it, if the driver told.
    pub(crate) context: Option<CUcontext>,
}

impl GreenContexts {
    /// Notes a green context that was just made.
    pub(crate) fn insert(&mut self, green: CUgreenCtx, known: GreenContext) {
        self.known.insert(green, known);
    }

    /// Takes out a green context that is about to be destroyed.
    pub(crate) fn remove(&mut self, green: CUgreenCtx) -> Option<GreenContext> {
        self.known.remove(&green)
    }

    /// The device of a context that stands for a green one, or did.
    pub(crate) fn ordinal_of(&self, context: CUcontext) -> Option<CUdevice> {
        self.contexts.get(&context).copied()
    }

    /// The contexts that stand for green ones of the device, or did.
    pub(crate) fn on(&self, ordinal: CUdevice) -> Vec<CUcontext> {
        let its = self.contexts.iter().filter(|(_, on)| **on == ordinal);
        its.map(|(context, _)| *context).collect()
    }

    /// Notes that the device's primary context has ended, and all that stood for green ones with it.
    pub(crate) fn end(&mut self, ordinal: CUdevice) {
        self.contexts.retain(|_, on| *on != ordinal);
    }

    /// Notes that a handle stands for a context of its own now.
    pub(crate) fn forget(&mut self, context: CUcontext) {
        self.contexts.remove(&context);
    }

    /// Notes that `context` stands for `green`. Does nothing if `green` is not known.
    pub(crate) fn stands_for(&mut self, context: CUcontext, green: CUgreenCtx) {
        if let Some(known) = self.known.get_mut(&green) {
            known.context = Some(context);
            self.contexts.insert(context, known.ordinal);
        }
    }
}
