//! Arrays (CUDA Driver API, "Memory Management").

use crate::export::prelude::*;
use crate::object::array::{ALIGNMENT, ARRAYS, Array, MIPMAPS, Mipmap, array};

export! {
    cuArrayCreate_v2 => create;
    cuArrayCreate => create_v1;
    cuArray3DCreate_v2 => |place, descriptor| make(place, &get(descriptor)?);
    cuArray3DCreate => create_3d_v1;
    cuArrayGetDescriptor_v2 => get_descriptor;
    cuArrayDestroy => destroy;
    cuArrayGetMemoryRequirements => get_requirements;
    cuMipmappedArrayCreate => create_mipmap;
    cuMipmappedArrayDestroy => destroy_mipmap;
    cuMipmappedArrayGetLevel => |place, handle, level| put(place, CUarray(mipmap(handle)?.level(level)?));
    cuMipmappedArrayGetMemoryRequirements => get_mipmap_requirements;
}

fn make(place: *mut CUarray, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CUresult {
    let context = current()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, CUarray(ARRAYS.insert(Array::create(descriptor, &context)?)))
}

/// "Height: if zero, the array is one-dimensional".
fn create(place: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult {
    let d = get(descriptor)?;
    let (format, channels) = (d.Format, d.NumChannels);
    make(place, &described((d.Width, d.Height, 0), format, channels, 0))
}

fn create_v1(place: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult {
    let d = get(descriptor)?;
    make(place, &described((d.Width as usize, d.Height as usize, 0), d.Format, d.NumChannels, 0))
}

fn create_3d_v1(place: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult {
    let d = get(descriptor)?;
    let extent = (d.Width as usize, d.Height as usize, d.Depth as usize);
    make(place, &described(extent, d.Format, d.NumChannels, d.Flags))
}

fn described(
    (width, height, depth): (usize, usize, usize),
    format: CUarray_format,
    channels: c_uint,
    flags: c_uint,
) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn get_descriptor(place: *mut CUDA_ARRAY_DESCRIPTOR, handle: CUarray) -> CUresult {
    let d = array(handle.0)?.descriptor;
    put(
        place,
        CUDA_ARRAY_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Format: d.Format,
            NumChannels: d.NumChannels,
        },
    )
}

/// Destroys an array, but not a level of a mipmapped array (`CUDA_ERROR_INVALID_HANDLE`; docs/hardware.md, "objects that
/// are not the caller's").
fn destroy(handle: CUarray) -> CUresult {
    let array = array(handle.0)?;
    if array.is_level {
        return Err(CUerror::INVALID_HANDLE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    if let Ok(context) = current() {
        crate::semantics::stream::drain(&context)?;
    }
    ARRAYS.remove(handle.0).map(drop).ok_or(CUerror::INVALID_HANDLE)
}

fn requirements(bytes: u64) -> CUDA_ARRAY_MEMORY_REQUIREMENTS {
    CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: bytes.next_multiple_of(ALIGNMENT) as usize,
        alignment: ALIGNMENT as usize,
        reserved: [0; 4],
    }
}

/// "If the CUDA array is not allocated with flag CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ERROR_INVALID_VALUE will
/// be returned."
fn get_requirements(
    place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    handle: CUarray,
    ordinal: CUdevice,
) -> CUresult {
    let array = array(handle.0)?;
    device(ordinal)?;
    if array.descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, requirements(array.bytes()))
}

fn create_mipmap(
    place: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> CUresult {
    let context = current()?;
    let descriptor = get(descriptor)?;
    if !is_possible(place) || levels == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, CUmipmappedArray(MIPMAPS.insert(Mipmap::create(&descriptor, levels, &context)?)))
}

fn mipmap(handle: CUmipmappedArray) -> Result<std::sync::Arc<Mipmap>, CUerror> {
    process()?;
    MIPMAPS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

fn destroy_mipmap(handle: CUmipmappedArray) -> CUresult {
    let mipmap = mipmap(handle)?;
    crate::semantics::capture::reject_unsafe_call()?;
    if let Ok(context) = current() {
        crate::semantics::stream::drain(&context)?;
    }
    mipmap.end_levels();
    MIPMAPS.remove(handle.0).map(drop).ok_or(CUerror::INVALID_HANDLE)
}

fn get_mipmap_requirements(
    place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    handle: CUmipmappedArray,
    ordinal: CUdevice,
) -> CUresult {
    let mipmap = mipmap(handle)?;
    device(ordinal)?;
    if mipmap.descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, requirements(mipmap.bytes()))
}
