//! Copies. A copy within device memory is GPU work: it is charged and throttled as kernels are. A copy between host and
//! device is a copy engine's work, and only counted. For every function three facts matter: the bytes, the kinds of
//! memory, and the stream. Other parameters are of any type, so that one handler serves both widths of addresses and
//! each kind of end.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Transfer;

use super::copy_shapes::{End, Shape, both_on_device};
use super::memory::Word;
use super::table::Handlers;
use crate::compute::Launches;
use crate::driver::saved_answer::is_there;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::state;
use crate::runtime::limits;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// Whether no launch is metered, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    limits::is_idle()
}

fn within(call: &Call<'_, CUresult>, stream: CUstream, bytes: u64) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    Ok(launches.transfer(call, stream, Transfer::Copy, bytes)?)
}

fn with_host(call: &Call<'_, CUresult>, stream: CUstream, bytes: u64) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    Ok(launches.host_copy(call, stream, bytes)?)
}

/// Handles copies whose ends tell their kinds of memory: `parts` has the ends and bytes of each.
fn between(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    parts: impl Iterator<Item = (End, End, u64)>,
) -> Handled {
    let (mut inside, mut outside) = (0_u64, 0_u64);
    for (from, to, bytes) in parts {
        let sum = if both_on_device(from, to) { &mut inside } else { &mut outside };
        *sum = sum.saturating_add(bytes);
    }
    if inside > 0 { within(call, stream, inside) } else { with_host(call, stream, outside) }
}

/// The elements of an application's array; none if its address cannot be valid.
fn each<T: Copy>(array: *const T, count: usize) -> impl Iterator<Item = T> {
    let count = if is_there(array) { count } else { 0 };
    (0..count).map(move |at| {
        // SAFETY: the array has as many elements as its caller says (CUDA Driver API), and `at` is below that.
        let place = unsafe { array.add(at) };
        // SAFETY: as above; the driver is about to read it.
        unsafe { place.read_unaligned() }
    })
}

fn shapes<T: Shape>(call: &Call<'_, CUresult>, stream: CUstream, array: *const T, count: usize) -> Handled {
    between(
        call,
        stream,
        each(array, count).map(|shape| {
            let (from, to) = shape.ends();
            (from, to, shape.bytes())
        }),
    )
}

/// `cuMemcpyDtoD`.
pub(super) fn device<A, N: Word>(call: &Call<'_, CUresult>, _to: A, _from: A, bytes: N) -> Handled {
    within(call, CUstream::NULL, bytes.wide())
}

/// `cuMemcpyDtoDAsync`.
pub(super) fn device_async<A, N: Word>(
    call: &Call<'_, CUresult>,
    _to: A,
    _from: A,
    bytes: N,
    stream: CUstream,
) -> Handled {
    within(call, stream, bytes.wide())
}

/// `cuMemcpyDtoA`, `cuMemcpyAtoD`: an array has an offset.
pub(super) fn array<A, B, C, N: Word>(call: &Call<'_, CUresult>, _: A, _: B, _: C, bytes: N) -> Handled {
    within(call, CUstream::NULL, bytes.wide())
}

/// `cuMemcpyAtoA`.
pub(super) fn arrays<N: Word>(
    call: &Call<'_, CUresult>,
    _to: CUarray,
    _to_offset: N,
    _from: CUarray,
    _from_offset: N,
    bytes: N,
) -> Handled {
    within(call, CUstream::NULL, bytes.wide())
}

/// `cuMemcpyHtoD`, `cuMemcpyDtoH`.
pub(super) fn host<A, B, N: Word>(call: &Call<'_, CUresult>, _to: A, _from: B, bytes: N) -> Handled {
    with_host(call, CUstream::NULL, bytes.wide())
}

/// `cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync`.
pub(super) fn host_async<A, B, N: Word>(
    call: &Call<'_, CUresult>,
    _to: A,
    _from: B,
    bytes: N,
    stream: CUstream,
) -> Handled {
    with_host(call, stream, bytes.wide())
}

/// `cuMemcpyHtoA`, `cuMemcpyAtoH`.
pub(super) fn host_array<A, B, C, N: Word>(call: &Call<'_, CUresult>, _: A, _: B, _: C, bytes: N) -> Handled {
    with_host(call, CUstream::NULL, bytes.wide())
}

/// `cuMemcpyHtoAAsync`, `cuMemcpyAtoHAsync`.
pub(super) fn host_array_async<A, B, C, N: Word>(
    call: &Call<'_, CUresult>,
    _: A,
    _: B,
    _: C,
    bytes: N,
    stream: CUstream,
) -> Handled {
    with_host(call, stream, bytes.wide())
}

/// `cuMemcpy`.
pub(super) fn any(call: &Call<'_, CUresult>, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Handled {
    any_async(call, to, from, bytes, CUstream::NULL)
}

/// `cuMemcpyAsync`.
pub(super) fn any_async(
    call: &Call<'_, CUresult>,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Handled {
    let part = (End::Unified(from), End::Unified(to), bytes as u64);
    between(call, stream, core::iter::once(part))
}

/// `cuMemcpyWithAttributesAsync`.
pub(super) fn any_as_told(
    call: &Call<'_, CUresult>,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    _attributes: *mut CUmemcpyAttributes,
    stream: CUstream,
) -> Handled {
    any_async(call, to, from, bytes, stream)
}

/// `cuMemcpyPeer`.
pub(super) fn peer(
    call: &Call<'_, CUresult>,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Handled {
    peer_async(call, to, to_context, from, from_context, bytes, CUstream::NULL)
}

/// `cuMemcpyPeerAsync`.
pub(super) fn peer_async(
    call: &Call<'_, CUresult>,
    _to: CUdeviceptr,
    _to_context: CUcontext,
    _from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Handled {
    within(call, stream, bytes as u64)
}

/// `cuMemcpy2D`, `cuMemcpy2DUnaligned`, `cuMemcpy3D`, `cuMemcpy3DPeer`.
pub(super) fn shaped<T: Shape>(call: &Call<'_, CUresult>, shape: *const T) -> Handled {
    shapes(call, CUstream::NULL, shape, 1)
}

/// `cuMemcpy2DAsync`, `cuMemcpy3DAsync`, `cuMemcpy3DPeerAsync`.
pub(super) fn shaped_async<T: Shape>(
    call: &Call<'_, CUresult>,
    shape: *const T,
    stream: CUstream,
) -> Handled {
    shapes(call, stream, shape, 1)
}

/// `cuMemcpy3DWithAttributesAsync`.
pub(super) fn shaped_as_told(
    call: &Call<'_, CUresult>,
    operation: *mut CUDA_MEMCPY3D_BATCH_OP,
    _flags: u64,
    stream: CUstream,
) -> Handled {
    shapes(call, stream, operation.cast_const(), 1)
}

/// `cuMemcpyBatchAsync` before CUDA 13.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn batch_v1(
    call: &Call<'_, CUresult>,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attribute_count: usize,
    _failed: *mut usize,
    stream: CUstream,
) -> Handled {
    batch(call, to, from, sizes, count, attributes, starts, attribute_count, stream)
}

/// `cuMemcpyBatchAsync`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn batch(
    call: &Call<'_, CUresult>,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    _attributes: *mut CUmemcpyAttributes,
    _starts: *mut usize,
    _attribute_count: usize,
    stream: CUstream,
) -> Handled {
    let ends = each(from, count).zip(each(to, count)).zip(each(sizes, count));
    let parts = ends.map(|((from, to), bytes)| (End::Unified(from), End::Unified(to), bytes as u64));
    between(call, stream, parts)
}

/// `cuMemcpy3DBatchAsync` before CUDA 13.
pub(super) fn shaped_batch_v1(
    call: &Call<'_, CUresult>,
    count: usize,
    operations: *mut CUDA_MEMCPY3D_BATCH_OP,
    _failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> Handled {
    shaped_batch(call, count, operations, flags, stream)
}

/// `cuMemcpy3DBatchAsync`.
pub(super) fn shaped_batch(
    call: &Call<'_, CUresult>,
    count: usize,
    operations: *mut CUDA_MEMCPY3D_BATCH_OP,
    _flags: u64,
    stream: CUstream,
) -> Handled {
    shapes(call, stream, operations.cast_const(), count)
}
