//! Copies of rows and slices, and from and to arrays (CUDA Driver API, "Memory Management").

use core::ffi::c_void;

use vcuda_driver_api::prelude::*;

use crate::base::ffi::get;
use crate::object::context::context;
use crate::object::transfer::{Transfer, empty};
use crate::semantics::stream::{Null, resolve};
use crate::semantics::work;

export! {
    cuMemcpy2D_v2 => plane::<false>;
    cuMemcpy2D_v2_ptds => plane::<true>;
    cuMemcpy2DUnaligned_v2 => plane::<false>;
    cuMemcpy2DUnaligned_v2_ptds => plane::<true>;
    cuMemcpy2DAsync_v2 => plane_async::<false>;
    cuMemcpy2DAsync_v2_ptsz => plane_async::<true>;
    cuMemcpy3D_v2 => volume::<false>;
    cuMemcpy3D_v2_ptds => volume::<true>;
    cuMemcpy3DAsync_v2 => volume_async::<false>;
    cuMemcpy3DAsync_v2_ptsz => volume_async::<true>;
    cuMemcpy3DPeer => volume_peer::<false>;
    cuMemcpy3DPeer_ptds => volume_peer::<true>;
    cuMemcpy3DPeerAsync => volume_peer_async::<false>;
    cuMemcpy3DPeerAsync_ptsz => volume_peer_async::<true>;
    cuMemcpyDtoA_v2 => device_to_array::<false>;
    cuMemcpyDtoA_v2_ptds => device_to_array::<true>;
    cuMemcpyAtoD_v2 => array_to_device::<false>;
    cuMemcpyAtoD_v2_ptds => array_to_device::<true>;
    cuMemcpyHtoA_v2 => host_to_array::<false>;
    cuMemcpyHtoA_v2_ptds => host_to_array::<true>;
    cuMemcpyHtoAAsync_v2 => host_to_array_async::<false>;
    cuMemcpyHtoAAsync_v2_ptsz => host_to_array_async::<true>;
    cuMemcpyAtoH_v2 => array_to_host::<false>;
    cuMemcpyAtoH_v2_ptds => array_to_host::<true>;
    cuMemcpyAtoHAsync_v2 => array_to_host_async::<false>;
    cuMemcpyAtoHAsync_v2_ptsz => array_to_host_async::<true>;
    cuMemcpyAtoA_v2 => array_to_array::<false>;
    cuMemcpyAtoA_v2_ptds => array_to_array::<true>;
}

fn now<const PER_THREAD: bool>(copy: &CUDA_MEMCPY3D) -> CUresult {
    let stream = resolve(CUstream::NULL, Null::of(PER_THREAD))?;
    crate::semantics::capture::reject_unsafe_call()?;
    crate::semantics::capture::reject_if_capturing(&stream)?;
    work::copy(Transfer::new(copy)?, &stream, true)
}

fn later<const PER_THREAD: bool>(copy: &CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    work::copy(Transfer::new(copy)?, &stream, false)
}

/// A 2D copy as a volume of one slice.
fn from_plane(copy: *const CUDA_MEMCPY2D) -> Result<CUDA_MEMCPY3D, CUerror> {
    let copy = get(copy)?;
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..empty()
    })
}

/// A peer copy as a plain one, as addresses determine the device. Both contexts must be alive.
fn from_peer(copy: *const CUDA_MEMCPY3D_PEER) -> Result<CUDA_MEMCPY3D, CUerror> {
    let copy = get(copy)?;
    context(copy.srcContext.0)?;
    context(copy.dstContext.0)?;
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..empty()
    })
}

fn plane<const T: bool>(copy: *const CUDA_MEMCPY2D) -> CUresult {
    now::<T>(&from_plane(copy)?)
}

fn plane_async<const T: bool>(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> CUresult {
    later::<T>(&from_plane(copy)?, stream)
}

fn volume<const T: bool>(copy: *const CUDA_MEMCPY3D) -> CUresult {
    now::<T>(&get(copy)?)
}

fn volume_async<const T: bool>(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
    later::<T>(&get(copy)?, stream)
}

fn volume_peer<const T: bool>(copy: *const CUDA_MEMCPY3D_PEER) -> CUresult {
    now::<T>(&from_peer(copy)?)
}

fn volume_peer_async<const T: bool>(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> CUresult {
    later::<T>(&from_peer(copy)?, stream)
}

/// Side of a copy of consecutive bytes from or to a 1D array.
enum Side {
    Device(CUdeviceptr),
    Host(usize),
    Array(CUarray, usize),
}

/// A copy from or to a 1D array. Rows beyond the first are unreachable by the offset in bytes.
fn row(to: Side, from: Side, bytes: usize) -> CUDA_MEMCPY3D {
    let mut copy = CUDA_MEMCPY3D {
        srcPitch: bytes,
        dstPitch: bytes,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..empty()
    };
    match to {
        Side::Device(address) => (copy.dstMemoryType, copy.dstDevice) = (CUmemorytype::DEVICE, address),
        Side::Host(address) => (copy.dstMemoryType, copy.dstHost) = (CUmemorytype::HOST, address as *mut _),
        Side::Array(array, offset) => {
            (copy.dstMemoryType, copy.dstArray, copy.dstXInBytes) = (CUmemorytype::ARRAY, array, offset);
        }
    }
    match from {
        Side::Device(address) => (copy.srcMemoryType, copy.srcDevice) = (CUmemorytype::DEVICE, address),
        Side::Host(address) => (copy.srcMemoryType, copy.srcHost) = (CUmemorytype::HOST, address as *const _),
        Side::Array(array, offset) => {
            (copy.srcMemoryType, copy.srcArray, copy.srcXInBytes) = (CUmemorytype::ARRAY, array, offset);
        }
    }
    copy
}

fn device_to_array<const T: bool>(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) -> CUresult {
    now::<T>(&row(Side::Array(to, offset), Side::Device(from), bytes))
}

fn array_to_device<const T: bool>(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) -> CUresult {
    now::<T>(&row(Side::Device(to), Side::Array(from, offset), bytes))
}

fn host_to_array<const T: bool>(to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> CUresult {
    now::<T>(&row(Side::Array(to, offset), Side::Host(from as usize), bytes))
}

fn host_to_array_async<const T: bool>(
    to: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(&row(Side::Array(to, offset), Side::Host(from as usize), bytes), stream)
}

fn array_to_host<const T: bool>(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> CUresult {
    now::<T>(&row(Side::Host(to as usize), Side::Array(from, offset), bytes))
}

fn array_to_host_async<const T: bool>(
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(&row(Side::Host(to as usize), Side::Array(from, offset), bytes), stream)
}

fn array_to_array<const T: bool>(
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> CUresult {
    now::<T>(&row(Side::Array(to, to_offset), Side::Array(from, from_offset), bytes))
}
