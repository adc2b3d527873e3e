//! The charge for each object of the driver's, given back with the object if NVML cannot tell what is left.

use std::collections::HashMap;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Figure, ObjectKind, Overhead};
use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::Device;

/// An object for which the driver takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DriverObject {
    /// A context, and what the driver made in it by itself.
    Context(CUcontext),
    /// A module.
    Module(CUmodule),
    /// A library.
    Library(CUlibrary),
    /// A green context.
    Green(CUgreenCtx),
    /// A limit of a context beyond what it had at first.
    Limit(CUcontext, CUlimit),
}

/// An object's charge: where, for which context, and how many bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub(super) device: &'static Device,
    pub(super) context: CUcontext,
    pub(super) bytes: u64,
}

/// The charges, by object.
#[derive(Debug, Default)]
pub(super) struct ObjectCharges(Mutex<HashMap<DriverObject, Note>>);

impl ObjectCharges {
    /// Adds to an object's charge.
    pub(super) fn add(&self, object: DriverObject, note: Note) {
        if note.bytes > 0 {
            let mut noted = self.0.lock();
            let sum = noted.entry(object).or_insert(Note { bytes: 0, ..note });
            sum.bytes = sum.bytes.saturating_add(note.bytes);
        }
    }

    /// Removes an object's charge.
    pub(super) fn remove(&self, object: DriverObject) -> Option<Note> {
        self.0.lock().remove(&object)
    }

    /// Removes the charges of a context and of everything in it.
    fn remove_context(&self, context: CUcontext) -> ContextCharges {
        let mut noted = self.0.lock();
        ContextCharges(noted.extract_if(|_, note| note.context == context).collect())
    }
}

/// The charges of a context that is about to end, and of everything in it.
#[derive(Debug)]
#[must_use = "else nothing is left of it"]
pub(crate) struct ContextCharges(Vec<(DriverObject, Note)>);

impl ContextCharges {
    /// Sum of the charges (bytes).
    fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, (_, note)| sum.saturating_add(note.bytes))
    }
}

impl Overhead {
    /// Notes the charge for an object in a context (bytes).
    pub(crate) fn note(&self, device: &'static Device, context: CUcontext, object: DriverObject, bytes: u64) {
        let note = Note { device, context, bytes };
        self.charges.add(object, note);
    }

    /// Has the driver end an object, and gives back what it had taken.
    pub(crate) fn end(
        &'static self,
        device: Option<&'static Device>,
        object: DriverObject,
        end: impl FnOnce() -> CUresult,
    ) -> CUresult {
        // Removed first: the handle may be reused at once.
        let note = self.charges.remove(object);
        let ended = end();
        if let Some(note) = note.filter(|_| ended.is_err()) {
            self.charges.add(object, note);
        }
        ended?;
        let Some(device) = note.map(|note| note.device).or(device) else {
            return Ok(());
        };
        let ended_bytes = note.map_or(0, |note| note.bytes);
        let is_told = self.measure_after_end(device, Haste::Soon, ended_bytes);
        if let Some(note) = note.filter(|_| !is_told) {
            device.release_overhead(note.bytes);
        }
        self.watch.wake();
        Ok(())
    }

    /// Has the driver lower the limit `object`, and gives back what that freed.
    pub(crate) fn lower(
        &'static self,
        device: &'static Device,
        object: DriverObject,
        lower: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let before = self.usage_before(device, ObjectKind::Code, 0);
        lower()?;
        if !self.measure(device, Haste::Now)
            && let Some(note) = self.charges.remove(object)
        {
            // Another process may have freed memory meanwhile: never more than was charged is given back.
            let freed_bytes = before.shrinkage_bytes().unwrap_or(0).min(note.bytes);
            device.release_overhead(freed_bytes);
            let bytes = note.bytes - freed_bytes;
            self.charges.add(object, Note { bytes, ..note });
        }
        Ok(())
    }

    /// Removes the charges of a context that is about to end: its handle may be reused at once.
    pub(crate) fn take_context(&self, context: CUcontext) -> ContextCharges {
        self.charges.remove_context(context)
    }

    /// Undoes [`Overhead::take_context`], as the context did not end.
    pub(crate) fn put_context_back(&self, charges: ContextCharges) {
        for (object, note) in charges.0 {
            self.charges.add(object, note);
        }
    }

    /// Gives back what a context that has ended had taken.
    pub(crate) fn ended(&'static self, device: &'static Device, charges: &ContextCharges) {
        let _measuring = self.measuring.lock();
        let noted = charges.bytes();
        match self.figure(device, 64, Haste::Now, noted) {
            Figure::Exact(bytes, is_certain) => device.set_measured(bytes, is_certain),
            Figure::AtLeast(bytes) => {
                let left_bytes = device.overhead_bytes().saturating_sub(noted);
                device.set_overhead(bytes.max(left_bytes));
            }
            Figure::Unknown => device.release_overhead(noted),
        }
        self.forget_context(device);
        self.watch.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::shim::Shim;

    #[test]
    fn everything_is_given_back_once() {
        let (noted, device) = (ObjectCharges::default(), Device::for_tests(Shim::for_tests()));
        let [one, two] = [CUcontext(1), CUcontext(2)];
        let add = |object, context, bytes| {
            noted.add(object, Note { device, context, bytes });
        };
        let limit = DriverObject::Limit(one, CUlimit::STACK_SIZE);
        add(DriverObject::Context(one), one, 100);
        add(limit, one, 30);
        add(limit, one, 10);
        add(DriverObject::Module(CUmodule(1)), two, 7);
        assert_eq!(noted.remove(limit).map(|note| note.bytes), Some(40));
        assert!(noted.remove(limit).is_none());
        add(limit, one, 1);
        assert_eq!(noted.remove_context(one).bytes(), 101);
        assert_eq!(noted.remove_context(one).bytes(), 0);
        assert_eq!(noted.remove(DriverObject::Module(CUmodule(1))).map(|note| note.bytes), Some(7));
    }
}
