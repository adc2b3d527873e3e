//! Physical memory that is mapped into a sparse array, tile by tile.
//!
//! The memory of a box of the array is held until all of the box is unmapped or mapped anew, in whatever pieces.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::memory::mappings::Backing;

/// A box of an array: a range of elements of a level, or of bytes of the tail of its levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// Whether the box is in the tail, its level, and its layer.
    part: (bool, u32, u32),
    from: [u64; 3],
    to: [u64; 3],
}

impl Region {
    /// The box of a mapping; `None` if its kind is not known.
    pub(crate) fn from_info(info: &CUarrayMapInfo) -> Option<Self> {
        match info.subresourceType {
            CUarraySparseSubresourceType::SPARSE_LEVEL => {
                // SAFETY: the kind says that this member was filled; all of its values are valid.
                let level = unsafe { info.subresource.sparseLevel };
                let from = [level.offsetX, level.offsetY, level.offsetZ].map(u64::from);
                let extent = [level.extentWidth, level.extentHeight, level.extentDepth].map(u64::from);
                Some(Self::new((false, level.level, level.layer), from, extent))
            }
            CUarraySparseSubresourceType::MIPTAIL => {
                // SAFETY: as above.
                let tail = unsafe { info.subresource.miptail };
                let part = (true, 0, tail.layer);
                Some(Self::new(part, [tail.offset, 0, 0], [tail.size, 1, 1]))
            }
            _ => None,
        }
    }

    fn new(part: (bool, u32, u32), from: [u64; 3], extent: [u64; 3]) -> Self {
        let mut to = from;
        for (to, extent) in to.iter_mut().zip(extent) {
            *to = to.saturating_add(extent);
        }
        Self { part, from, to }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let mut axes = self.from.iter().zip(&self.to).zip(other.from.iter().zip(&other.to));
        self.part == other.part
            && axes.all(|((from, to), (other_from, other_to))| from < other_to && other_from < to)
    }

    /// The rest of it without `other`, as boxes.
    #[expect(clippy::indexing_slicing, reason = "three axes of three")]
    fn without(self, other: &Self) -> Vec<Self> {
        if !self.overlaps(other) {
            return vec![self];
        }
        let mut rest = Vec::new();
        let mut core = self;
        for axis in 0..3 {
            if core.from[axis] < other.from[axis] {
                let mut before = core;
                before.to[axis] = other.from[axis];
                rest.push(before);
                core.from[axis] = other.from[axis];
            }
            if core.to[axis] > other.to[axis] {
                let mut after = core;
                after.from[axis] = other.to[axis];
                rest.push(after);
                core.to[axis] = other.to[axis];
            }
        }
        rest
    }
}

/// The memory mapped into one sparse array.
#[derive(Debug, Default)]
pub(crate) struct SparseMappings {
    held: Mutex<Vec<(Region, Arc<Backing>)>>,
}

impl SparseMappings {
    /// Notes a mapping. Returns the memory that was mapped there before: it is held until its stream is done with it.
    pub(crate) fn map(&self, region: Region, backing: Arc<Backing>) -> Vec<Arc<Backing>> {
        let mut held = self.held.lock();
        let gone = cut(&mut held, &region);
        held.push((region, backing));
        gone
    }

    /// Notes that nothing is mapped in a region any more. Returns the memory that was.
    pub(crate) fn unmap(&self, region: &Region) -> Vec<Arc<Backing>> {
        cut(&mut self.held.lock(), region)
    }
}

fn cut(held: &mut Vec<(Region, Arc<Backing>)>, region: &Region) -> Vec<Arc<Backing>> {
    let hit: Vec<_> = held.extract_if(.., |(old, _)| old.overlaps(region)).collect();
    let mut gone = Vec::new();
    for (old, backing) in hit {
        for rest in old.without(region) {
            held.push((rest, Arc::clone(&backing)));
        }
        gone.push(backing);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::charge::Charge;

    fn region(from: [u64; 3], extent: [u64; 3]) -> Region {
        Region::new((false, 0, 0), from, extent)
    }

    fn backing() -> Arc<Backing> {
        Arc::new(Backing::charged(Charge::for_tests()))
    }

    #[test]
    fn a_box_is_cut_without_loss() {
        let whole = region([0, 0, 0], [6, 6, 6]);
        let hole = region([2, 3, 4], [2, 2, 2]);
        let rest = whole.without(&hole);
        let inside = |point: [u64; 3]| {
            let one = region(point, [1, 1, 1]);
            rest.iter().filter(|part| part.overlaps(&one)).count()
        };
        for x in 0..6 {
            for y in 0..6 {
                for z in 0..6 {
                    let is_in_hole = hole.overlaps(&region([x, y, z], [1, 1, 1]));
                    assert_eq!(inside([x, y, z]), usize::from(!is_in_hole), "{x} {y} {z}");
                }
            }
        }
        assert!(whole.without(&whole).is_empty());
        assert_eq!(whole.without(&region([6, 0, 0], [1, 9, 9])), [whole]);
    }

    #[test]
    fn memory_is_held_until_its_last_tile_is_unmapped() {
        let sparse_mappings = SparseMappings::default();
        let memory = backing();
        let alive = Arc::downgrade(&memory);
        assert!(sparse_mappings.map(region([0, 0, 0], [4, 1, 1]), memory).is_empty());
        drop(sparse_mappings.unmap(&region([1, 0, 0], [3, 1, 1])));
        drop(sparse_mappings.unmap(&Region::new((false, 1, 0), [0; 3], [9; 3])));
        drop(sparse_mappings.unmap(&Region::new((true, 0, 0), [0; 3], [9; 3])));
        assert!(alive.upgrade().is_some(), "one tile is left");
        drop(sparse_mappings.unmap(&region([0, 0, 0], [1, 1, 1])));
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn a_new_mapping_takes_the_place_of_the_old() {
        let sparse_mappings = SparseMappings::default();
        let (first, second) = (backing(), backing());
        let alive = Arc::downgrade(&first);
        drop(sparse_mappings.map(region([0, 0, 0], [2, 1, 1]), first));
        let gone = sparse_mappings.map(region([0, 0, 0], [9, 9, 9]), second);
        assert_eq!(gone.len(), 1);
        assert!(alive.upgrade().is_some(), "until its stream is done with it");
        drop(gone);
        assert!(alive.upgrade().is_none());
    }
}
