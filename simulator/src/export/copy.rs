//! Copies of consecutive bytes (CUDA Driver API, "Memory Management"). Each exists as a synchronous and an asynchronous
//! call, for the legacy and the per-thread default stream; all become a [`Transfer`].

use core::ffi::c_void;

use vcuda_driver_api::prelude::*;

use crate::object::context::context;
use crate::object::transfer::{Transfer, linear};
use crate::semantics::stream::{Null, resolve};
use crate::semantics::work;

export! {
    cuMemcpy => unified::<false>;
    cuMemcpy_ptds => unified::<true>;
    cuMemcpyAsync => unified_async::<false>;
    cuMemcpyAsync_ptsz => unified_async::<true>;
    cuMemcpyPeer => peer::<false>;
    cuMemcpyPeer_ptds => peer::<true>;
    cuMemcpyPeerAsync => peer_async::<false>;
    cuMemcpyPeerAsync_ptsz => peer_async::<true>;
    cuMemcpyHtoD_v2 => to_device::<false>;
    cuMemcpyHtoD_v2_ptds => to_device::<true>;
    cuMemcpyHtoDAsync_v2 => to_device_async::<false>;
    cuMemcpyHtoDAsync_v2_ptsz => to_device_async::<true>;
    cuMemcpyDtoH_v2 => to_host::<false>;
    cuMemcpyDtoH_v2_ptds => to_host::<true>;
    cuMemcpyDtoHAsync_v2 => to_host_async::<false>;
    cuMemcpyDtoHAsync_v2_ptsz => to_host_async::<true>;
    cuMemcpyDtoD_v2 => within::<false>;
    cuMemcpyDtoD_v2_ptds => within::<true>;
    cuMemcpyDtoDAsync_v2 => within_async::<false>;
    cuMemcpyDtoDAsync_v2_ptsz => within_async::<true>;
}

/// Side of a copy: memory type and address.
type Side = (CUmemorytype, u64);

fn device(address: CUdeviceptr) -> Side {
    (CUmemorytype::DEVICE, address)
}

fn host(address: *const c_void) -> Side {
    (CUmemorytype::HOST, address as u64)
}

/// Side of a copy in "the unified form", where the address determines the memory type.
fn any(address: CUdeviceptr) -> Side {
    (CUmemorytype::UNIFIED, address)
}

/// Copies synchronously in the default stream.
fn copy_now<const PER_THREAD: bool>(to: Side, from: Side, bytes: usize) -> CUresult {
    let stream = resolve(CUstream::NULL, Null::of(PER_THREAD))?;
    crate::semantics::capture::reject_unsafe_call()?;
    crate::semantics::capture::reject_if_capturing(&stream)?;
    work::copy(Transfer::new(&linear(to, from, bytes))?, &stream, true)
}

/// Copies asynchronously.
fn later<const PER_THREAD: bool>(to: Side, from: Side, bytes: usize, stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    work::copy(Transfer::new(&linear(to, from, bytes))?, &stream, false)
}

fn unified<const T: bool>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_now::<T>(any(to), any(from), bytes)
}

fn unified_async<const T: bool>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(any(to), any(from), bytes, stream)
}

fn peer<const T: bool>(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> CUresult {
    context(to_context.0)?;
    context(from_context.0)?;
    copy_now::<T>(device(to), device(from), bytes)
}

fn peer_async<const T: bool>(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    context(to_context.0)?;
    context(from_context.0)?;
    later::<T>(device(to), device(from), bytes, stream)
}

fn to_device<const T: bool>(to: CUdeviceptr, from: *const c_void, bytes: usize) -> CUresult {
    copy_now::<T>(device(to), host(from), bytes)
}

fn to_device_async<const T: bool>(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(device(to), host(from), bytes, stream)
}

fn to_host<const T: bool>(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_now::<T>(host(to), device(from), bytes)
}

fn to_host_async<const T: bool>(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(host(to), device(from), bytes, stream)
}

fn within<const T: bool>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_now::<T>(device(to), device(from), bytes)
}

fn within_async<const T: bool>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(device(to), device(from), bytes, stream)
}
