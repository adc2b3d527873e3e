//! Arrays with memory mapped later: sparse ones by tiles, deferred ones as a whole (CUDA Driver API, `cuMemMapArrayAsync`,
//! `cuArrayGetSparseProperties`, `cuMipmappedArrayGetSparseProperties`).
//!
//! Such an array takes no memory: the allocations mapped into it are held until they are unmapped or the array ends, as by
//! `cuMemMap`. Contents are stored in uncharged memory of the array, so that copies work; two arrays with the same tiles do
//! not share contents.
//!
//! docs/hardware.md, "sparse arrays": tiles of 64 KiB in the shapes that Vulkan calls standard; one mip tail per
//! layer; mapping and unmapping take effect at the call, not when the stream gets there; mapping over mapped tiles
//! replaces them.

use std::sync::Arc;

use crate::export::prelude::*;
use crate::object::array::{ARRAYS, MIPMAPS, Storage};
use crate::object::sparse::{Layout, Part, TILE_BYTES};
use crate::object::vmm::{Hold, physical};

export! {
    cuArrayGetSparseProperties => array_properties;
    cuMipmappedArrayGetSparseProperties => mipmap_properties;
    cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz => map_all;
}

/// "If the CUDA array is not allocated with flag CUDA_ARRAY3D_SPARSE, CUDA_ERROR_INVALID_VALUE"; the same for a level
/// of a mipmapped array.
fn array_properties(place: *mut CUDA_ARRAY_SPARSE_PROPERTIES, handle: CUarray) -> CUresult {
    let array = crate::object::array::array(handle.0)?;
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
    put(place, Layout::new(mipmap.descriptor, mipmap.level_count()).properties(false))
}

/// Target of an entry: storage, layout, bytes, and whether it is a plain array.
fn resource(entry: &CUarrayMapInfo) -> Result<(Arc<Storage>, Layout, u64, bool), CUerror> {
    let found = match entry.resourceType {
        CUresourcetype::ARRAY => {
            let array = ARRAYS.get(entry.resource.0).ok_or(CUerror::INVALID_HANDLE)?;
            if array.is_level {
                return Err(CUerror::INVALID_VALUE);
            }
            (array.storage(), Layout::new(array.descriptor, 1), array.bytes(), true)
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

/// A checked entry: the array, its parts, and the memory to map.
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

/// Memory of the tile pool: made with `CU_MEM_CREATE_USAGE_TILE_POOL`, on the same device, and large enough.
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

/// Applies all entries or none. Not in a capturing stream (docs/hardware.md, "sparse arrays":
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`).
fn map_all(null: Null, list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    crate::semantics::capture::reject_if_capturing(&stream)?;
    let entries = get_array(list.cast_const(), count as usize)?;
    let changes = entries.iter().map(|entry| check(entry, stream.ordinal)).collect::<Result<Vec<_>, _>>()?;
    if changes.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    for change in changes {
        change.storage.change_mappings(|mapped| {
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
