//! Sets of device memory: GPU work, charged and throttled as kernels are. For every function two facts matter: the
//! bytes written, and the stream. Addresses have two widths, so their type is a parameter.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Transfer;

use super::memory::Word;
use super::table::Handlers;
use crate::compute::Launches;
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

/// Charges `rows` rows of `width` elements of a value's size.
fn set<V, N: Word>(call: &Call<'_, CUresult>, _value: V, width: N, rows: u64, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    let elements = width.wide().saturating_mul(rows);
    let bytes = elements.saturating_mul(size_of::<V>() as u64);
    Ok(launches.transfer(call, stream, Transfer::Set, bytes)?)
}

/// `cuMemsetD8` and its like, in the default stream.
pub(super) fn line<D, V, N: Word>(call: &Call<'_, CUresult>, to: D, value: V, width: N) -> Handled {
    line_async(call, to, value, width, CUstream::NULL)
}

/// `cuMemsetD8Async` and its like.
pub(super) fn line_async<D, V, N: Word>(
    call: &Call<'_, CUresult>,
    _to: D,
    value: V,
    width: N,
    stream: CUstream,
) -> Handled {
    set(call, value, width, 1, stream)
}

/// `cuMemsetD2D8` and its like, in the default stream.
pub(super) fn rows<D, V, N: Word>(
    call: &Call<'_, CUresult>,
    to: D,
    pitch: N,
    value: V,
    width: N,
    height: N,
) -> Handled {
    rows_async(call, to, pitch, value, width, height, CUstream::NULL)
}

/// `cuMemsetD2D8Async` and its like.
pub(super) fn rows_async<D, V, N: Word>(
    call: &Call<'_, CUresult>,
    _to: D,
    _pitch: N,
    value: V,
    width: N,
    height: N,
    stream: CUstream,
) -> Handled {
    set(call, value, width, height.wide(), stream)
}
