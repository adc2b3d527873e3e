//! What each thing was charged with, to give back with it where NVML cannot tell what is left.

use std::collections::HashMap;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Figure, Overhead, What};
use crate::runtime::devices::Device;
use crate::runtime::registration::Haste;

/// What the driver takes memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DriverObject {
    /// A context, and what came about in it by itself.
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

/// A thing's bytes, where they were taken, and the context with which it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub(super) device: &'static Device,
    pub(super) context: CUcontext,
    pub(super) bytes: u64,
}

/// What is noted.
#[derive(Debug, Default)]
pub(super) struct ObjectCharges(Mutex<HashMap<DriverObject, Note>>);

impl ObjectCharges {
    /// Adds to what a thing was charged with.
    pub(super) fn add(&self, thing: DriverObject, note: Note) {
        if note.bytes > 0 {
            let mut noted = self.0.lock();
            let sum = noted.entry(thing).or_insert(Note { bytes: 0, ..note });
            sum.bytes = sum.bytes.saturating_add(note.bytes);
        }
    }

    /// What a thing was charged with; that is noted no more.
    pub(super) fn take(&self, thing: DriverObject) -> Option<Note> {
        self.0.lock().remove(&thing)
    }

    /// What a context and everything in it were charged with; that is noted no more.
    fn take_context(&self, context: CUcontext) -> ContextCharges {
        let mut noted = self.0.lock();
        ContextCharges(noted.extract_if(|_, note| note.context == context).collect())
    }
}

/// What a context that is about to end and everything in it were charged with.
#[derive(Debug)]
#[must_use = "else nothing is left of it"]
pub(crate) struct ContextCharges(Vec<(DriverObject, Note)>);

impl ContextCharges {
    /// The sum (bytes).
    fn bytes(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, (_, note)| sum.saturating_add(note.bytes))
    }
}

impl Overhead {
    /// Notes what a thing in a context was charged with (bytes).
    pub(crate) fn note(&self, device: &'static Device, context: CUcontext, thing: DriverObject, bytes: u64) {
        let note = Note {
            device,
            context,
            bytes,
        };
        self.noted.add(thing, note);
    }

    /// Has the driver end a thing, and gives back what it had taken.
    pub(crate) fn end(
        &'static self,
        device: Option<&'static Device>,
        thing: DriverObject,
        end: impl FnOnce() -> CUresult,
    ) -> CUresult {
        // Taken out first: the handle may come back at once.
        let note = self.noted.take(thing);
        let ended = end();
        if let Some(note) = note.filter(|_| ended.is_err()) {
            self.noted.add(thing, note);
        }
        ended?;
        let Some(device) = note.map(|note| note.device).or(device) else {
            return Ok(());
        };
        let ended_bytes = note.map_or(0, |note| note.bytes);
        let is_told = self.measure_less(device, Haste::Soon, ended_bytes);
        if let Some(note) = note.filter(|_| !is_told) {
            device.release_overhead(note.bytes);
        }
        self.watch.wake();
        Ok(())
    }

    /// Has the driver lower what a thing may take, and gives back what that freed.
    pub(crate) fn lower(
        &'static self,
        device: &'static Device,
        thing: DriverObject,
        lower: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let before = self.before(device, What::Code, 0);
        lower()?;
        if !self.measure(device, Haste::Now)
            && let Some(note) = self.noted.take(thing)
        {
            // A neighbour may have freed something meanwhile: never more than was charged for it.
            let freed_bytes = before.less_bytes().unwrap_or(0).min(note.bytes);
            device.release_overhead(freed_bytes);
            let bytes = note.bytes - freed_bytes;
            self.noted.add(thing, Note { bytes, ..note });
        }
        Ok(())
    }

    /// Takes out what is noted of a context that is about to end: its handle may come back at once.
    pub(crate) fn take_context(&self, context: CUcontext) -> ContextCharges {
        self.noted.take_context(context)
    }

    /// The context did not end.
    pub(crate) fn put_context_back(&self, of: ContextCharges) {
        for (thing, note) in of.0 {
            self.noted.add(thing, note);
        }
    }

    /// Gives back what a context that has ended had taken.
    pub(crate) fn ended(&'static self, device: &'static Device, of: &ContextCharges) {
        let _measuring = self.measuring.lock();
        let noted = of.bytes();
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
        let add = |thing, context, bytes| {
            noted.add(
                thing,
                Note {
                    device,
                    context,
                    bytes,
                },
            );
        };
        let limit = DriverObject::Limit(one, CUlimit::STACK_SIZE);
        add(DriverObject::Context(one), one, 100);
        add(limit, one, 30);
        add(limit, one, 10);
        add(DriverObject::Module(CUmodule(1)), two, 7);
        assert_eq!(noted.take(limit).map(|note| note.bytes), Some(40));
        assert!(noted.take(limit).is_none());
        add(limit, one, 1);
        assert_eq!(noted.take_context(one).bytes(), 101);
        assert_eq!(noted.take_context(one).bytes(), 0);
        assert_eq!(
            noted
                .take(DriverObject::Module(CUmodule(1)))
                .map(|note| note.bytes),
            Some(7)
        );
    }
}
