//! Sets of device memory: the GPU's work as kernels are, charged and held as those. Whatever the width, the shape and the
//! age of the function: what counts is how many bytes are written, and in which stream.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Transfer;

use super::memory::Word;
use super::table::Handlers;
use crate::compute::{self, Launches};
use crate::driver::{Bypass, Call, Handled};
use crate::runtime::stream::Stream;

/// What the table must know of these handlers.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// No launch is metered: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    compute::idle()
}

/// So many elements of a value's width, in so many rows.
fn set<V, N: Word>(call: &Call<'_, CUresult>, _value: V, width: N, rows: u64, stream: Stream) -> Handled {
    let launches = Launches::get().ok_or(Bypass::NoLimit)?;
    let elements = width.wide().saturating_mul(rows);
    let bytes = elements.saturating_mul(size_of::<V>() as u64);
    Ok(launches.transfer(call, stream, Transfer::Set, bytes)?)
}

/// `cuMemsetD8`, `D16` and `D32` in one row or, of a pitch, in several; in the default stream or in one that is given. `D`:
/// an address, of either width that addresses had.
macro_rules! sets {
    ($($line:ident $rows:ident $line_in:ident $rows_in:ident $stream:ident;)*) => {$(
        /// `cuMemsetD8` and its like.
        pub(super) fn $line<D, V, N: Word>(call: &Call<'_, CUresult>, _to: D, value: V, width: N) -> Handled {
            set(call, value, width, 1, Stream::$stream(CUstream::NULL))
        }

        /// `cuMemsetD2D8` and its like.
        pub(super) fn $rows<D, V, N: Word>(
            call: &Call<'_, CUresult>,
            _to: D,
            _pitch: N,
            value: V,
            width: N,
            height: N,
        ) -> Handled {
            set(call, value, width, height.wide(), Stream::$stream(CUstream::NULL))
        }

        /// `cuMemsetD8Async` and its like.
        pub(super) fn $line_in<D, V, N: Word>(
            call: &Call<'_, CUresult>,
            _to: D,
            value: V,
            width: N,
            stream: CUstream,
        ) -> Handled {
            set(call, value, width, 1, Stream::$stream(stream))
        }

        /// `cuMemsetD2D8Async` and its like.
        pub(super) fn $rows_in<D, V, N: Word>(
            call: &Call<'_, CUresult>,
            _to: D,
            _pitch: N,
            value: V,
            width: N,
            height: N,
            stream: CUstream,
        ) -> Handled {
            set(call, value, width, height.wide(), Stream::$stream(stream))
        }
    )*};
}

sets! {
    line rows line_async rows_async legacy;
    line_ptds rows_ptds line_ptsz rows_ptsz per_thread;
}
