//! Physical memory of `cuMemCreate`: paid for until its last handle and its last mapping are gone (CUDA Driver API,
//! Virtual Memory Management: "the memory is freed when all outstanding mappings are unmapped and all outstanding
//! references to the handle are released").

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::charge::Charge;

/// One piece of physical memory. Its bytes are given back with its last owner.
#[derive(Debug)]
pub(crate) struct Backing {
    /// What is counted for it.
    pub(crate) charge: Charge,
}

/// A mapping that [`Mappings::unmap`] took out.
pub(crate) type Mapping = (CUdeviceptr, u64, Arc<Backing>);

/// Who holds which physical memory.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Handle -> memory and number of references.
    handles: Mutex<HashMap<CUmemGenericAllocationHandle, (Arc<Backing>, u64)>>,
    /// Address -> length and memory.
    ranges: Mutex<BTreeMap<CUdeviceptr, (u64, Arc<Backing>)>>,
}

impl Mappings {
    /// Notes new memory behind a handle. What the handle stood for before is gone: the driver ended it unseen.
    pub(crate) fn create(&self, handle: CUmemGenericAllocationHandle, backing: Arc<Backing>) {
        let before = self.handles.lock().insert(handle, (backing, 1));
        drop(before);
    }

    /// Counts one more reference to `backing` by `handle`.
    pub(crate) fn retain(&self, handle: CUmemGenericAllocationHandle, backing: Arc<Backing>) {
        self.handles.lock().entry(handle).or_insert((backing, 0)).1 += 1;
    }

    /// Takes one reference away. Who holds the answer holds the memory.
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
    pub(crate) fn behind(&self, handle: CUmemGenericAllocationHandle) -> Option<Arc<Backing>> {
        self.handles
            .lock()
            .get(&handle)
            .map(|(backing, _)| Arc::clone(backing))
    }

    /// Notes a mapping.
    pub(crate) fn map(&self, (address, bytes, backing): Mapping) {
        self.ranges.lock().insert(address, (bytes, backing));
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
    pub(crate) fn at(&self, address: CUdeviceptr) -> Option<Arc<Backing>> {
        let ranges = self.ranges.lock();
        let (start, (length, backing)) = ranges.range(..=address).next_back()?;
        (address - start < *length).then(|| Arc::clone(backing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing() -> Arc<Backing> {
        Arc::new(Backing {
            charge: Charge::for_tests(),
        })
    }

    #[test]
    fn memory_lives_until_its_last_owner_lets_go() {
        let mappings = Mappings::default();
        let memory = backing();
        let alive = Arc::downgrade(&memory);
        mappings.create(5, memory);
        mappings.map((4096, 8192, mappings.behind(5).unwrap()));
        mappings.retain(5, mappings.at(4096 + 8191).unwrap());
        assert!(mappings.at(4096 + 8192).is_none() && mappings.at(0).is_none());
        drop(mappings.release(5));
        drop(mappings.release(5));
        assert!(mappings.release(5).is_none() && mappings.behind(5).is_none());
        assert!(alive.upgrade().is_some(), "still mapped");
        assert!(mappings.unmap(0, 4096).is_empty());
        drop(mappings.unmap(4096, 8192));
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn a_refused_unmap_is_undone() {
        let mappings = Mappings::default();
        mappings.map((0, 10, backing()));
        mappings.map((10, 10, backing()));
        for mapping in mappings.unmap(0, 20) {
            mappings.map(mapping);
        }
        assert!(mappings.at(5).is_some() && mappings.at(19).is_some());
    }
}
