//! Tables of validated handles, which programs get instead of pointers to the simulator's objects.
//!
//! A handle is a number (kind, generation, index), not an address. An invalid, stale or foreign one is detected and
//! answered with an error code, as NVIDIA documents (`CUDA_ERROR_INVALID_HANDLE`).

use std::sync::Arc;

use parking_lot::RwLock;

/// Kind of a handle's object. It is part of the handle, so that handles of different kinds never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 0x11,
    Module,
    Function,
    Library,
    Kernel,
    Stream,
    Event,
    Graph,
    GraphNode,
    GraphExec,
    Pool,
    Allocation,
    Array,
    MipmappedArray,
    Link,
    ExternalMemory,
    GreenContext,
    ResourceDescription,
}

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 14;
/// Handles are multiples of 16 like pointers, as some bindings keep flags in the low bits.
const ALIGN_BITS: u32 = 4;

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
}

/// Live objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: Kind,
    entries: RwLock<Entries<T>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table { kind, entries: RwLock::new(Entries { entries: Vec::new(), free: Vec::new() }) }
    }

    fn handle(&self, generation: u32, index: usize) -> usize {
        let generation = generation as usize & ((1 << GENERATION_BITS) - 1);
        ((((self.kind as usize) << GENERATION_BITS | generation) << INDEX_BITS) | index) << ALIGN_BITS
    }

    /// Generation and index of a handle, after a check of kind and alignment.
    fn parts(&self, handle: usize) -> Option<(u32, usize)> {
        let value = handle >> ALIGN_BITS;
        let index = value & ((1 << INDEX_BITS) - 1);
        let generation = (value >> INDEX_BITS) & ((1 << GENERATION_BITS) - 1);
        let right = handle.trailing_zeros() >= ALIGN_BITS
            && value >> (INDEX_BITS + GENERATION_BITS) == self.kind as usize;
        right.then_some((generation as u32, index))
    }

    /// Adds an object made with the knowledge of its own handle. Returns handle and object.
    pub(crate) fn insert_with(&self, make: impl FnOnce(usize) -> T) -> (usize, Arc<T>) {
        let mut entries = self.entries.write();
        let index = entries.free.pop().unwrap_or_else(|| {
            entries.entries.push(Entry { generation: 0, value: None });
            entries.entries.len() - 1
        });
        let generation = entries.entries[index].generation;
        let handle = self.handle(generation, index);
        let value = Arc::new(make(handle));
        entries.entries[index].value = Some(Arc::clone(&value));
        (handle, value)
    }

    /// Adds an object. Returns its handle.
    pub(crate) fn insert(&self, value: T) -> usize {
        self.insert_with(|_| value).0
    }

    /// The object of a handle; `None` if the handle is not alive.
    #[inline]
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        let (generation, index) = self.parts(handle)?;
        let entries = self.entries.read();
        let entry = entries.entries.get(index)?;
        (entry.generation & ((1 << GENERATION_BITS) - 1) == generation).then(|| entry.value.clone())?
    }

    /// Removes a handle. The caller that gets the object ends it.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let (generation, index) = self.parts(handle)?;
        let mut entries = self.entries.write();
        let entry = entries.entries.get_mut(index)?;
        if entry.generation & ((1 << GENERATION_BITS) - 1) != generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entries.free.push(index);
        Some(value)
    }

    /// Replaces the object of a live handle (a primary context after its reset).
    pub(crate) fn replace(&self, handle: usize, value: Arc<T>) {
        if let Some((_, index)) = self.parts(handle)
            && let Some(entry) = self.entries.write().entries.get_mut(index)
        {
            entry.value = Some(value);
        }
    }

    /// Handles of the live objects that satisfy `condition`.
    pub(crate) fn handles(&self, condition: impl Fn(&T) -> bool) -> Vec<usize> {
        let entries = self.entries.read();
        let numbered = entries.entries.iter().enumerate();
        let live = numbered.filter(|(_, entry)| entry.value.as_deref().is_some_and(&condition));
        live.map(|(index, entry)| self.handle(entry.generation, index)).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.entries.read().entries.iter().filter_map(|entry| entry.value.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_wild_or_foreign_handle_finds_nothing() {
        let streams: Table<u32> = Table::new(Kind::Stream);
        let events: Table<u32> = Table::new(Kind::Event);
        let handle = streams.insert(7);
        assert_eq!(streams.get(handle).as_deref(), Some(&7));
        assert!(events.get(handle).is_none());
        for wild in [0, 1, 2, 0x10, handle + 1, handle + 16, usize::MAX, 0xdead_beef, !handle] {
            assert!(streams.get(wild).is_none(), "{wild:#x}");
        }
        assert_eq!(streams.remove(handle).as_deref(), Some(&7));
        assert!(streams.remove(handle).is_none());
        let second = streams.insert(8);
        assert_ne!(second, handle, "the slot is used again, the handle is not");
        assert!(streams.get(handle).is_none());
    }
}
