//! Physical memory of `cuMemCreate` and `cuMemImportFromShareableHandle`. It is paid for until its last handle and
//! its last mapping are gone (CUDA Driver API, Virtual Memory Management: "the memory is freed when all outstanding
//! mappings are unmapped and all outstanding references to the handle are released").

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::runtime::by_number::ByNumber;

mod backing;
pub(crate) use backing::{Backing, Binding};

/// A mapping that [`Mappings::unmap`] took out.
pub(crate) type Mapping = (CUdeviceptr, u64, Arc<Backing>);

/// The handles and address ranges that hold physical memory.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Handle -> memory and number of references.
    handles: Mutex<HashMap<CUmemGenericAllocationHandle, (Arc<Backing>, u64), ByNumber>>,
    /// Address -> length and memory.
    ranges: Mutex<BTreeMap<CUdeviceptr, (u64, Arc<Backing>)>>,
}

impl Mappings {
    /// Notes new memory behind a handle. If the handle is known already, the driver ended the old memory unseen.
    pub(crate) fn create(&self, handle: CUmemGenericAllocationHandle, backing: Arc<Backing>) {
        let before = self.handles.lock().insert(handle, (backing, 1));
        drop(before);
    }

    /// Counts one more reference by `handle`: to its known memory, or else to `backing`. For an object that is
    /// imported twice a driver may return one handle twice, or two handles.
    pub(crate) fn retain(&self, handle: CUmemGenericAllocationHandle, backing: Arc<Backing>) {
        let mut handles = self.handles.lock();
        let known = handles.get_mut(&handle);
        if let Some((_, references)) = known {
            *references += 1;
        } else {
            handles.insert(handle, (backing, 1));
            return;
        }
        drop(handles);
        // This may be the last owner, which gives the bytes back: done without the lock.
        drop(backing);
    }

    /// Takes one reference away. The memory lives as long as the returned value.
    pub(crate) fn release(&self, handle: CUmemGenericAllocationHandle) -> Option<Arc<Backing>> {
        let mut handles = self.handles.lock();
        let (backing, references) = handles.get_mut(&handle)?;
        let backing = Arc::clone(backing);
        *references -= 1;
        if *references == 0 {
            handles.remove(&handle);
        }
        Some(backing)
    }

    /// The memory behind a handle.
    pub(crate) fn by_handle(&self, handle: CUmemGenericAllocationHandle) -> Option<Arc<Backing>> {
        self.handles.lock().get(&handle).map(|(backing, _)| Arc::clone(backing))
    }

    /// Notes a mapping.
    pub(crate) fn map(&self, (address, bytes, backing): Mapping) {
        let before = self.ranges.lock().insert(address, (bytes, backing));
        drop(before);
    }

    /// Takes out the mappings that begin in the range.
    pub(crate) fn unmap(&self, address: CUdeviceptr, bytes: u64) -> Vec<Mapping> {
        let end = address.saturating_add(bytes);
        let mut ranges = self.ranges.lock();
        let gone: Vec<CUdeviceptr> = ranges.range(address..end).map(|(at, _)| *at).collect();
        gone.into_iter()
            .filter_map(|at| ranges.remove(&at).map(|(length, backing)| (at, length, backing)))
            .collect()
    }

    /// The memory mapped at an address.
    pub(crate) fn mapped_at(&self, address: CUdeviceptr) -> Option<Arc<Backing>> {
        self.mapped_in(address, 1).pop()
    }

    /// The memory mapped anywhere in a range.
    pub(crate) fn mapped_in(&self, address: CUdeviceptr, bytes: u64) -> Vec<Arc<Backing>> {
        let end = address.saturating_add(bytes);
        let ranges = self.ranges.lock();
        ranges
            .range(..end)
            .rev()
            .take_while(|(start, (length, _))| start.saturating_add(*length) > address)
            .map(|(_, (_, backing))| Arc::clone(backing))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::charge::Charge;

    fn backing() -> Arc<Backing> {
        Arc::new(Backing::charged(Charge::for_tests()))
    }

    #[test]
    fn memory_lives_until_its_last_owner_lets_go() {
        let mappings = Mappings::default();
        let memory = backing();
        let alive = Arc::downgrade(&memory);
        mappings.create(5, memory);
        mappings.map((4096, 8192, mappings.by_handle(5).unwrap()));
        mappings.retain(5, mappings.mapped_at(4096 + 8191).unwrap());
        assert!(mappings.mapped_at(4096 + 8192).is_none() && mappings.mapped_at(0).is_none());
        drop(mappings.release(5));
        drop(mappings.release(5));
        assert!(mappings.release(5).is_none() && mappings.by_handle(5).is_none());
        assert!(alive.upgrade().is_some(), "still mapped");
        assert!(mappings.unmap(0, 4096).is_empty());
        drop(mappings.unmap(4096, 8192));
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn mapped_twice_it_lives_until_both_are_gone() {
        let mappings = Mappings::default();
        mappings.create(5, backing());
        let memory = mappings.release(5).unwrap();
        let alive = Arc::downgrade(&memory);
        mappings.map((0, 10, Arc::clone(&memory)));
        mappings.map((50, 10, memory));
        assert_eq!(mappings.mapped_in(5, 50).len(), 2);
        assert_eq!(mappings.mapped_in(10, 40).len(), 0);
        drop(mappings.unmap(50, 10));
        assert!(alive.upgrade().is_some());
        // The handle can be had again from the mapping, and keeps the memory.
        mappings.retain(5, mappings.mapped_at(0).unwrap());
        drop(mappings.unmap(0, 10));
        assert!(alive.upgrade().is_some());
        drop(mappings.release(5));
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn a_handle_that_the_driver_uses_again_stands_for_the_new_memory() {
        let mappings = Mappings::default();
        let first = backing();
        let alive = Arc::downgrade(&first);
        mappings.create(5, first);
        drop(mappings.release(5));
        mappings.create(5, backing());
        assert!(alive.upgrade().is_none());
        assert!(mappings.release(5).is_some() && mappings.release(5).is_none());
    }

    #[test]
    fn one_object_imported_twice_under_one_handle_is_one() {
        let mappings = Mappings::default();
        mappings.create(5, backing());
        let again = backing();
        let surplus = Arc::downgrade(&again);
        mappings.retain(5, again);
        assert!(surplus.upgrade().is_none(), "the handle stands for what it stood for");
        assert!(mappings.release(5).is_some() && mappings.by_handle(5).is_some());
        assert!(mappings.release(5).is_some() && mappings.by_handle(5).is_none());
    }

    #[test]
    fn a_refused_unmap_is_undone() {
        let mappings = Mappings::default();
        mappings.map((0, 10, backing()));
        mappings.map((10, 10, backing()));
        for mapping in mappings.unmap(0, 20) {
            mappings.map(mapping);
        }
        assert!(mappings.mapped_at(5).is_some() && mappings.mapped_at(19).is_some());
    }
}
