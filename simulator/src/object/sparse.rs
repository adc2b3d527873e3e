//! Tiles of arrays with memory mapped later, and their mappings.

use std::collections::BTreeMap;
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::object::texels::{level_descriptor, level_extent_bytes, texel_bytes};
use crate::object::vmm::Hold;

/// Size of a tile (bytes); offsets into the tile pool and the mip tail are multiples of it.
pub(crate) const TILE_BYTES: u64 = 64 << 10;

/// `CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL`.
const SINGLE_TAIL: u32 = 1;

/// A part of an array that has one mapping: a tile, or for deferred arrays everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// All of a deferred array.
    Whole,
    /// Level, layer, position (in tiles).
    Tile(u32, u32, [u64; 3]),
    /// Layer, index (in tiles).
    Tail(u32, u64),
}

/// Mappings of an array.
pub(crate) type Mapped = BTreeMap<Part, Arc<Hold>>;

/// Facts about an array that the rules use.
pub(crate) struct Layout {
    /// As the program described it.
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
    tile: [u64; 3],
}

impl Layout {
    /// Layout of a mipmapped array with `levels` levels; a plain array has one.
    pub(crate) fn new(descriptor: CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Layout {
        let is_volume = descriptor.Depth > 0 && descriptor.Flags & CUDA_ARRAY3D_LAYERED == 0;
        let tile = match (texel_bytes(&descriptor).unwrap_or(1), is_volume) {
            (1, false) => [256, 256, 1],
            (2, false) => [256, 128, 1],
            (4, false) => [128, 128, 1],
            (8, false) => [128, 64, 1],
            (_, false) => [64, 64, 1],
            (1, true) => [64, 32, 32],
            (2, true) => [32, 32, 32],
            (4, true) => [32, 32, 16],
            (8, true) => [32, 16, 16],
            (_, true) => [16, 16, 16],
        };
        Layout { descriptor, levels, tile }
    }

    fn layers(&self) -> u32 {
        let is_layered = self.descriptor.Flags & CUDA_ARRAY3D_LAYERED != 0;
        if is_layered { self.descriptor.Depth.max(1) as u32 } else { 1 }
    }

    /// Width, height, depth of a level.
    fn extent(&self, level: u32) -> [u64; 3] {
        let d = level_descriptor(&self.descriptor, level);
        let depth = if self.layers() > 1 || self.tile[2] == 1 { 1 } else { d.Depth.max(1) };
        [d.Width as u64, d.Height.max(1) as u64, depth as u64]
    }

    /// First level of the mip tail: "the remaining miplevels which are too small to span at least one tile in any dimension
    /// constitute the mip tail". The number of levels if there is none.
    fn first_tail_level(&self) -> u32 {
        let is_small =
            |level: &u32| self.extent(*level).iter().zip(&self.tile).any(|(size, tile)| size < tile);
        (0..self.levels).find(is_small).unwrap_or(self.levels)
    }

    /// Size of a layer's mip tail in whole tiles (bytes).
    fn tail_bytes(&self) -> u64 {
        let bytes: u64 = (self.first_tail_level()..self.levels)
            .map(|level| level_extent_bytes(&self.descriptor, self.extent(level)))
            .sum();
        bytes.next_multiple_of(TILE_BYTES)
    }

    /// Answer of `cuArrayGetSparseProperties` and `cuMipmappedArrayGetSparseProperties`.
    pub(crate) fn properties(&self, is_array: bool) -> CUDA_ARRAY_SPARSE_PROPERTIES {
        let tail = self.tail_bytes();
        // A plain array is all tail, or has none: "miptailSize represents the total size".
        let (flags, size) =
            if is_array && tail > 0 { (SINGLE_TAIL, tail * u64::from(self.layers())) } else { (0, tail) };
        CUDA_ARRAY_SPARSE_PROPERTIES {
            tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent {
                width: self.tile[0] as u32,
                height: self.tile[1] as u32,
                depth: self.tile[2] as u32,
            },
            miptailFirstLevel: if is_array || tail == 0 { 0 } else { self.first_tail_level() },
            miptailSize: size,
            flags,
            reserved: [0; 4],
        }
    }

    /// The tiles of a box. "These offsets and extents must be aligned to the corresponding tile dimension"; an
    /// extent may also end at the level's edge.
    pub(crate) fn tiles(&self, of: &CUarrayMapInfo_subresource_sparseLevel) -> Result<Vec<Part>, CUerror> {
        if of.level >= self.first_tail_level() || of.layer >= self.layers() {
            return Err(CUerror::INVALID_VALUE);
        }
        let extent = self.extent(of.level);
        let offsets = [of.offsetX, of.offsetY, of.offsetZ].map(u64::from);
        let sizes = [of.extentWidth, of.extentHeight, of.extentDepth].map(u64::from);
        let mut ranges = [(0, 0); 3];
        for axis in 0..3 {
            let (tile, end) = (self.tile[axis], offsets[axis] + sizes[axis]);
            let is_aligned = sizes[axis].is_multiple_of(tile) || end == extent[axis];
            // A level that ends inside its last tile may also be named by whole tiles.
            let is_within = end <= extent[axis].next_multiple_of(tile);
            if sizes[axis] == 0 || !offsets[axis].is_multiple_of(tile) || !is_aligned || !is_within {
                return Err(CUerror::INVALID_VALUE);
            }
            ranges[axis] = (offsets[axis] / tile, end.div_ceil(tile));
        }
        let mut parts = Vec::new();
        for z in ranges[2].0..ranges[2].1 {
            for y in ranges[1].0..ranges[1].1 {
                parts.extend((ranges[0].0..ranges[0].1).map(|x| Part::Tile(of.level, of.layer, [x, y, z])));
            }
        }
        Ok(parts)
    }

    /// The parts of a mip tail.
    pub(crate) fn tail(
        &self,
        of: &CUarrayMapInfo_subresource_miptail,
        is_array: bool,
    ) -> Result<Vec<Part>, CUerror> {
        let properties = self.properties(is_array);
        let layers = if properties.flags & SINGLE_TAIL != 0 { 1 } else { self.layers() };
        let end = of.offset.checked_add(of.size).ok_or(CUerror::INVALID_VALUE)?;
        let is_aligned = of.offset.is_multiple_of(TILE_BYTES) && of.size.is_multiple_of(TILE_BYTES);
        if of.layer >= layers || of.size == 0 || !is_aligned || end > properties.miptailSize {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok((of.offset / TILE_BYTES..end / TILE_BYTES).map(|index| Part::Tail(of.layer, index)).collect())
    }
}

#[cfg(test)]
mod tests;
