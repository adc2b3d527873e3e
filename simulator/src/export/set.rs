//! Memsets (CUDA Driver API, "Memory Management"); all become a [`Fill`].

use crate::export::prelude::*;
use crate::object::fill::Fill;
use crate::semantics::stream::default_stream;
use crate::semantics::work;

export! {
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds => |null, to, value, count| now(null, row(to, count, 1, value));
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds => |null, to, value, count| now(null, row(to, count, 2, value));
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds => |null, to, value, count| now(null, row(to, count, 4, value));
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds => |null, to, pitch, value, width, height|
        now(null, rows(to, pitch, width, height, 1, value));
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds => |null, to, pitch, value, width, height|
        now(null, rows(to, pitch, width, height, 2, value));
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds => |null, to, pitch, value, width, height|
        now(null, rows(to, pitch, width, height, 4, value));
    cuMemsetD8Async / cuMemsetD8Async_ptsz => |null, to, value, count, stream|
        later(null, row(to, count, 1, value), stream);
    cuMemsetD16Async / cuMemsetD16Async_ptsz => |null, to, value, count, stream|
        later(null, row(to, count, 2, value), stream);
    cuMemsetD32Async / cuMemsetD32Async_ptsz => |null, to, value, count, stream|
        later(null, row(to, count, 4, value), stream);
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz => |null, to, pitch, value, width, height, stream|
        later(null, rows(to, pitch, width, height, 1, value), stream);
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz => |null, to, pitch, value, width, height, stream|
        later(null, rows(to, pitch, width, height, 2, value), stream);
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz => |null, to, pitch, value, width, height, stream|
        later(null, rows(to, pitch, width, height, 4, value), stream);
}

/// `height` rows of `width` elements, `pitch` bytes apart.
fn rows(
    dst: CUdeviceptr,
    pitch: usize,
    width: usize,
    height: usize,
    element_bytes: c_uint,
    value: impl Into<c_uint>,
) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst, pitch, value: value.into(), elementSize: element_bytes, width, height }
}

fn row(
    dst: CUdeviceptr,
    count: usize,
    element_bytes: c_uint,
    value: impl Into<c_uint>,
) -> CUDA_MEMSET_NODE_PARAMS {
    rows(dst, 0, count, 1, element_bytes, value)
}

fn now(null: Null, rows: CUDA_MEMSET_NODE_PARAMS) -> CUresult {
    let stream = default_stream(null)?;
    work::set(Fill::new(&rows)?, &stream, true)
}

fn later(null: Null, rows: CUDA_MEMSET_NODE_PARAMS, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    work::set(Fill::new(&rows)?, &stream, false)
}
