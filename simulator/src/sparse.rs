//! Arrays whose memory is mapped later: sparse ones by tiles, deferred ones as a whole (CUDA Driver API,
//! `cuMemMapArrayAsync`, `cuArrayGetSparseProperties`, `cuMipmappedArrayGetSparseProperties`).
//!
//! Such an array takes no memory itself: the allocations that are mapped into it are held, as `cuMemMap` holds
//! them, until they are unmapped or the array ends. Contents lie in memory of the array's own that costs nothing,
//! so that copies work; two arrays over the same tiles do not see each other's contents.
//!
//! docs/hardware.md, "sparse arrays": tiles of 64 KiB in the shapes that Vulkan calls standard; one mip tail per
//! layer; mapping and unmapping take effect at the call, not when the stream gets there; mapping over mapped tiles
//! replaces them.

use std::collections::BTreeMap;
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::array::{ARRAYS, MIPMAPS, Storage, level_descriptor, level_extent_bytes, texel_bytes};
use crate::ffi::{export, get_array, put};
use crate::process::process;
use crate::stream::{Null, resolve};
use crate::vmm::{Hold, physical};

export! {
    cuArrayGetSparseProperties => array_properties;
    cuMipmappedArrayGetSparseProperties => mipmap_properties;
    cuMemMapArrayAsync => map_all::<false>;
    cuMemMapArrayAsync_ptsz => map_all::<true>;
}

/// Bytes of a tile; offsets into the tile pool and the mip tail are multiples of it.
pub(crate) const TILE_BYTES: u64 = 64 << 10;
/// `CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL`.
const SINGLE_TAIL: u32 = 1;

/// A part of an array that one tile, or for deferred arrays the whole mapping, stands behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// All of a deferred array.
    Whole,
    /// Level, layer, position in tiles.
    Tile(u32, u32, [u64; 3]),
    /// Layer, index in tiles.
    Tail(u32, u64),
}

/// What is mapped into an array.
pub(crate) type Mapped = BTreeMap<Part, Arc<Hold>>;

/// What the rules look at.
struct Layout {
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
    tile: [u64; 3],
}

impl Layout {
    fn new(descriptor: CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Layout {
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
        Layout {
            descriptor,
            levels,
            tile,
        }
    }

    fn layers(&self) -> u32 {
        let is_layered = self.descriptor.Flags & CUDA_ARRAY3D_LAYERED != 0;
        if is_layered {
            self.descriptor.Depth.max(1) as u32
        } else {
            1
        }
    }

    /// Width, height, depth of a level.
    fn extent(&self, level: u32) -> [u64; 3] {
        let d = level_descriptor(&self.descriptor, level);
        let depth = if self.layers() > 1 || self.tile[2] == 1 {
            1
        } else {
            d.Depth.max(1)
        };
        [d.Width as u64, d.Height.max(1) as u64, depth as u64]
    }

    /// "The remaining miplevels which are too small to span at least one tile in any dimension constitute the mip
    /// tail"; the number of levels where there is none.
    fn first_tail_level(&self) -> u32 {
        let is_small = |level: &u32| {
            self.extent(*level)
                .iter()
                .zip(&self.tile)
                .any(|(size, tile)| size < tile)
        };
        (0..self.levels).find(is_small).unwrap_or(self.levels)
    }

    /// Bytes of a layer's mip tail, whole tiles.
    fn tail_bytes(&self) -> u64 {
        let bytes: u64 = (self.first_tail_level()..self.levels)
            .map(|level| level_extent_bytes(&self.descriptor, self.extent(level)))
            .sum();
        bytes.next_multiple_of(TILE_BYTES)
    }

    fn properties(&self, is_array: bool) -> CUDA_ARRAY_SPARSE_PROPERTIES {
        let tail = self.tail_bytes();
        // An array has no levels: it is all tail or has none, and "miptailSize represents the total size".
        let (flags, size) = if is_array && tail > 0 {
            (SINGLE_TAIL, tail * u64::from(self.layers()))
        } else {
            (0, tail)
        };
        CUDA_ARRAY_SPARSE_PROPERTIES {
            tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent {
                width: self.tile[0] as u32,
                height: self.tile[1] as u32,
                depth: self.tile[2] as u32,
            },
            miptailFirstLevel: if is_array || tail == 0 {
                0
            } else {
                self.first_tail_level()
            },
            miptailSize: size,
            flags,
            reserved: [0; 4],
        }
    }

    /// The tiles of a box. "These offsets and extents must be aligned to the corresponding tile dimension"; an
    /// extent may also end at the level's edge.
    fn tiles(&self, of: &CUarrayMapInfo_subresource_sparseLevel) -> Result<Vec<Part>, CUerror> {
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
            // A level whose edge is inside its last tile may be named by whole tiles too.
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

    fn tail(&self, of: &CUarrayMapInfo_subresource_miptail, is_array: bool) -> Result<Vec<Part>, CUerror> {
        let properties = self.properties(is_array);
        let layers = if properties.flags & SINGLE_TAIL != 0 {
            1
        } else {
            self.layers()
        };
        let end = of.offset.checked_add(of.size).ok_or(CUerror::INVALID_VALUE)?;
        let is_aligned = of.offset.is_multiple_of(TILE_BYTES) && of.size.is_multiple_of(TILE_BYTES);
        if of.layer >= layers || of.size == 0 || !is_aligned || end > properties.miptailSize {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok((of.offset / TILE_BYTES..end / TILE_BYTES)
            .map(|index| Part::Tail(of.layer, index))
            .collect())
    }
}

/// "If the CUDA array is not allocated with flag CUDA_ARRAY3D_SPARSE, CUDA_ERROR_INVALID_VALUE"; the same for a level
/// of a mipmapped array.
fn array_properties(place: *mut CUDA_ARRAY_SPARSE_PROPERTIES, handle: CUarray) -> CUresult {
    let array = crate::array::array(handle.0)?;
    if array.descriptor.Flags & CUDA_ARRAY3D_SPARSE == 0 || array.is_level {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, Layout::new(array.descriptor, 1).properties(true))
}

fn mipmap_properties(place: *mut CUDA_ARRAY_SPARSE_PROPERTIES, handle: CUmipmappedArray) -> CUresult {
    process()?;
    let mipmap = MIPMAPS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)?;
    if mipmap.descriptor.Flags & CUDA_ARRAY3D_SPARSE == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(
        place,
        Layout::new(mipmap.descriptor, mipmap.level_count()).properties(false),
    )
}

/// What an entry names: its storage, layout, bytes, and whether it is a plain array.
fn resource(entry: &CUarrayMapInfo) -> Result<(Arc<Storage>, Layout, u64, bool), CUerror> {
    let found = match entry.resourceType {
        CUresourcetype::ARRAY => {
            let array = ARRAYS.get(entry.resource.0).ok_or(CUerror::INVALID_HANDLE)?;
            if array.is_level {
                return Err(CUerror::INVALID_VALUE);
            }
            (
                array.storage(),
                Layout::new(array.descriptor, 1),
                array.bytes(),
                true,
            )
        }
        CUresourcetype::MIPMAPPED_ARRAY => {
            let mipmap = MIPMAPS.get(entry.resource.0).ok_or(CUerror::INVALID_HANDLE)?;
            let layout = Layout::new(mipmap.descriptor, mipmap.level_count());
            (mipmap.storage(), layout, mipmap.bytes(), false)
        }
        _ => return Err(CUerror::INVALID_VALUE),
    };
    // "The CUDA array must be either a 2D, 2D layered or 3D CUDA array".
    if found.1.descriptor.Height == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(found)
}

/// One entry, checked: where, which parts, and what comes behind them.
struct Change {
    storage: Arc<Storage>,
    parts: Vec<Part>,
    hold: Option<Arc<Hold>>,
}

/// "deviceBitMask must have exactly one bit set, and the corresponding device must match the device associated with
/// the stream"; flags and reserved words are zero.
fn check(entry: &CUarrayMapInfo, ordinal: i32) -> Result<Change, CUerror> {
    if entry.deviceBitMask.checked_ilog2() != u32::try_from(ordinal).ok()
        || !entry.deviceBitMask.is_power_of_two()
        || entry.flags != 0
        || entry.reserved != [0; 2]
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let (storage, layout, bytes, is_array) = resource(entry)?;
    let flags = layout.descriptor.Flags;
    let (parts, needed) = if flags & CUDA_ARRAY3D_DEFERRED_MAPPING != 0 {
        (vec![Part::Whole], bytes)
    } else if flags & CUDA_ARRAY3D_SPARSE != 0 {
        let parts = match entry.subresourceType {
            CUarraySparseSubresourceType::SPARSE_LEVEL => {
                // SAFETY: the type says that this member counts; all bit patterns are valid numbers.
                layout.tiles(&unsafe { entry.subresource.sparseLevel })?
            }
            CUarraySparseSubresourceType::MIPTAIL => {
                // SAFETY: as above.
                layout.tail(&unsafe { entry.subresource.miptail }, is_array)?
            }
            _ => return Err(CUerror::INVALID_VALUE),
        };
        let needed = parts.len() as u64 * TILE_BYTES;
        (parts, needed)
    } else {
        return Err(CUerror::INVALID_VALUE);
    };
    let hold = match entry.memOperationType {
        CUmemOperationType::MAP => Some(hold(entry, needed, ordinal)?),
        CUmemOperationType::UNMAP if entry.memHandle == 0 => None,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    Ok(Change { storage, parts, hold })
}

/// The tile pool's memory: made with `CU_MEM_CREATE_USAGE_TILE_POOL`, on the same device, and large enough.
fn hold(entry: &CUarrayMapInfo, needed: u64, ordinal: i32) -> Result<Arc<Hold>, CUerror> {
    let physical = physical(entry.memHandle).map_err(|_| CUerror::INVALID_HANDLE)?;
    let end = entry.offset.checked_add(needed).ok_or(CUerror::INVALID_VALUE)?;
    if entry.memHandleType != CUmemHandleType::GENERIC
        || physical.properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL == 0
        || physical.device.ordinal != ordinal
        || !entry.offset.is_multiple_of(TILE_BYTES)
        || end > physical.bytes
    {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Arc::new(Hold::new(physical)))
}

/// All entries or none. Not in a stream that is capturing (docs/hardware.md, "sparse arrays":
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`).
fn map_all<const PER_THREAD: bool>(list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    crate::capture::refuse(&stream)?;
    let entries = get_array(list.cast_const(), count as usize)?;
    let changes = entries
        .iter()
        .map(|entry| check(entry, stream.ordinal))
        .collect::<Result<Vec<_>, _>>()?;
    if changes.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    for change in changes {
        change.storage.change(|mapped| {
            for part in &change.parts {
                match &change.hold {
                    Some(hold) => drop(mapped.insert(*part, Arc::clone(hold))),
                    None => drop(mapped.remove(part)),
                }
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
