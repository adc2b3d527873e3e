//! Memsets (CUDA Driver API, "Memory Management"); all become a [`Fill`].

use core::ffi::c_uint;

use vcuda_driver_api::prelude::*;

use crate::object::fill::Fill;
use crate::semantics::stream::{Null, resolve};
use crate::semantics::work;

export! {
    cuMemsetD8_v2 => d8::<false>;
    cuMemsetD8_v2_ptds => d8::<true>;
    cuMemsetD16_v2 => d16::<false>;
    cuMemsetD16_v2_ptds => d16::<true>;
    cuMemsetD32_v2 => d32::<false>;
    cuMemsetD32_v2_ptds => d32::<true>;
    cuMemsetD2D8_v2 => d2d8::<false>;
    cuMemsetD2D8_v2_ptds => d2d8::<true>;
    cuMemsetD2D16_v2 => d2d16::<false>;
    cuMemsetD2D16_v2_ptds => d2d16::<true>;
    cuMemsetD2D32_v2 => d2d32::<false>;
    cuMemsetD2D32_v2_ptds => d2d32::<true>;
    cuMemsetD8Async => d8_async::<false>;
    cuMemsetD8Async_ptsz => d8_async::<true>;
    cuMemsetD16Async => d16_async::<false>;
    cuMemsetD16Async_ptsz => d16_async::<true>;
    cuMemsetD32Async => d32_async::<false>;
    cuMemsetD32Async_ptsz => d32_async::<true>;
    cuMemsetD2D8Async => d2d8_async::<false>;
    cuMemsetD2D8Async_ptsz => d2d8_async::<true>;
    cuMemsetD2D16Async => d2d16_async::<false>;
    cuMemsetD2D16Async_ptsz => d2d16_async::<true>;
    cuMemsetD2D32Async => d2d32_async::<false>;
    cuMemsetD2D32Async_ptsz => d2d32_async::<true>;
}

/// Rows of `width` elements, `pitch` bytes apart.
#[derive(Clone, Copy)]
struct Rows {
    start: CUdeviceptr,
    pitch: usize,
    width: usize,
    height: usize,
}

fn one(start: CUdeviceptr, width: usize) -> Rows {
    Rows { start, pitch: 0, width, height: 1 }
}

fn fill(rows: Rows, element: c_uint, value: c_uint) -> Result<Fill, CUerror> {
    Fill::new(&CUDA_MEMSET_NODE_PARAMS {
        dst: rows.start,
        pitch: rows.pitch,
        value,
        elementSize: element,
        width: rows.width,
        height: rows.height,
    })
}

fn now<const PER_THREAD: bool>(rows: Rows, element: c_uint, value: c_uint) -> CUresult {
    let stream = resolve(CUstream::NULL, Null::of(PER_THREAD))?;
    crate::semantics::capture::reject_unsafe_call()?;
    crate::semantics::capture::reject_if_capturing(&stream)?;
    work::set(fill(rows, element, value)?, &stream, true)
}

fn later<const PER_THREAD: bool>(rows: Rows, element: c_uint, value: c_uint, stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    work::set(fill(rows, element, value)?, &stream, false)
}

fn d8<const T: bool>(start: CUdeviceptr, value: u8, count: usize) -> CUresult {
    now::<T>(one(start, count), 1, value.into())
}

fn d16<const T: bool>(start: CUdeviceptr, value: u16, count: usize) -> CUresult {
    now::<T>(one(start, count), 2, value.into())
}

fn d32<const T: bool>(start: CUdeviceptr, value: c_uint, count: usize) -> CUresult {
    now::<T>(one(start, count), 4, value)
}

fn d2d8<const T: bool>(start: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) -> CUresult {
    now::<T>(Rows { start, pitch, width, height }, 1, value.into())
}

fn d2d16<const T: bool>(
    start: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> CUresult {
    now::<T>(Rows { start, pitch, width, height }, 2, value.into())
}

fn d2d32<const T: bool>(
    start: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
) -> CUresult {
    now::<T>(Rows { start, pitch, width, height }, 4, value)
}

fn d8_async<const T: bool>(start: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult {
    later::<T>(one(start, count), 1, value.into(), stream)
}

fn d16_async<const T: bool>(start: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult {
    later::<T>(one(start, count), 2, value.into(), stream)
}

fn d32_async<const T: bool>(start: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> CUresult {
    later::<T>(one(start, count), 4, value, stream)
}

fn d2d8_async<const T: bool>(
    start: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(Rows { start, pitch, width, height }, 1, value.into(), stream)
}

fn d2d16_async<const T: bool>(
    start: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(Rows { start, pitch, width, height }, 2, value.into(), stream)
}

fn d2d32_async<const T: bool>(
    start: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    later::<T>(Rows { start, pitch, width, height }, 4, value, stream)
}
