//! Copies of consecutive bytes (CUDA Driver API, "Memory Management"). Each exists as a synchronous and an asynchronous
//! call, for the legacy and the per-thread default stream; all become a `Transfer`.

use crate::export::copy_shapes;
use crate::export::prelude::*;
use crate::object::context::context;
use crate::object::transfer::linear;

export! {
    cuMemcpy / cuMemcpy_ptds => |null, to, from, bytes| now(null, any(to), any(from), bytes);
    cuMemcpyAsync / cuMemcpyAsync_ptsz => |null, to, from, bytes, stream|
        later(null, any(to), any(from), bytes, stream);
    cuMemcpyPeer / cuMemcpyPeer_ptds => |null, to, to_context, from, from_context, bytes|
        now(null, peer(to_context, to)?, peer(from_context, from)?, bytes);
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz => |null, to, to_context, from, from_context, bytes, stream|
        later(null, peer(to_context, to)?, peer(from_context, from)?, bytes, stream);
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds => |null, to, from, bytes|
        now(null, device(to), host(from), bytes);
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz => |null, to, from, bytes, stream|
        later(null, device(to), host(from), bytes, stream);
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds => |null, to, from, bytes|
        now(null, host(to), device(from), bytes);
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz => |null, to, from, bytes, stream|
        later(null, host(to), device(from), bytes, stream);
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds => |null, to, from, bytes|
        now(null, device(to), device(from), bytes);
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz => |null, to, from, bytes, stream|
        later(null, device(to), device(from), bytes, stream);
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

/// Side of a peer copy, whose context must be alive; the address determines the device.
fn peer(handle: CUcontext, address: CUdeviceptr) -> Result<Side, CUerror> {
    context(handle.0)?;
    Ok(device(address))
}

fn now(null: Null, to: Side, from: Side, bytes: usize) -> CUresult {
    copy_shapes::now(null, &linear(to, from, bytes))
}

fn later(null: Null, to: Side, from: Side, bytes: usize, stream: CUstream) -> CUresult {
    copy_shapes::later(null, &linear(to, from, bytes), stream)
}
