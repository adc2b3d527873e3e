//! Copies of rows and slices, and from and to arrays (CUDA Driver API, "Memory Management").

use crate::export::prelude::*;
use crate::object::context::context;
use crate::object::transfer::{Transfer, empty};
use crate::semantics::stream::default_stream;
use crate::semantics::work;

export! {
    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds | cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds => |null, copy|
        now(null, &from_plane(copy)?);
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz => |null, copy, stream|
        later(null, &from_plane(copy)?, stream);
    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds => |null, copy| now(null, &get(copy)?);
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz => |null, copy, stream| later(null, &get(copy)?, stream);
    cuMemcpy3DPeer / cuMemcpy3DPeer_ptds => |null, copy| now(null, &from_peer(copy)?);
    cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz => |null, copy, stream|
        later(null, &from_peer(copy)?, stream);
    cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds => |null, to, offset, from, bytes|
        now(null, &row(Side::Array(to, offset), Side::Device(from), bytes));
    cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds => |null, to, from, offset, bytes|
        now(null, &row(Side::Device(to), Side::Array(from, offset), bytes));
    cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds => |null, to, offset, from, bytes|
        now(null, &row(Side::Array(to, offset), Side::Host(from as usize), bytes));
    cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz => |null, to, offset, from, bytes, stream|
        later(null, &row(Side::Array(to, offset), Side::Host(from as usize), bytes), stream);
    cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds => |null, to, from, offset, bytes|
        now(null, &row(Side::Host(to as usize), Side::Array(from, offset), bytes));
    cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz => |null, to, from, offset, bytes, stream|
        later(null, &row(Side::Host(to as usize), Side::Array(from, offset), bytes), stream);
    cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds => |null, to, to_offset, from, from_offset, bytes|
        now(null, &row(Side::Array(to, to_offset), Side::Array(from, from_offset), bytes));
}

/// Copies synchronously in the default stream.
pub(crate) fn now(null: Null, copy: &CUDA_MEMCPY3D) -> CUresult {
    let stream = default_stream(null)?;
    work::copy(Transfer::new(copy)?, &stream, true)
}

pub(crate) fn later(null: Null, copy: &CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    work::copy(Transfer::new(copy)?, &stream, false)
}

/// A description with these fields of another one.
macro_rules! volume_of {
    ($copy:ident: $($field:ident)*) => { CUDA_MEMCPY3D { $($field: $copy.$field,)* ..empty() } };
}

/// A 2D copy as a volume of one slice.
fn from_plane(copy: *const CUDA_MEMCPY2D) -> Result<CUDA_MEMCPY3D, CUerror> {
    let copy = get(copy)?;
    let volume = volume_of! {
        copy: srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch
              dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height
    };
    Ok(CUDA_MEMCPY3D { Depth: 1, ..volume })
}

/// A peer copy as a plain one, as addresses determine the device. Both contexts must be alive.
fn from_peer(copy: *const CUDA_MEMCPY3D_PEER) -> Result<CUDA_MEMCPY3D, CUerror> {
    let copy = get(copy)?;
    context(copy.srcContext.0)?;
    context(copy.dstContext.0)?;
    Ok(volume_of! {
        copy: srcXInBytes srcY srcZ srcLOD srcMemoryType srcHost srcDevice srcArray srcPitch srcHeight
              dstXInBytes dstY dstZ dstLOD dstMemoryType dstHost dstDevice dstArray dstPitch dstHeight
              WidthInBytes Height Depth
    })
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
