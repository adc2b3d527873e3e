//! CUDA arrays and mipmapped arrays: charged with what the driver says they need, or else with the bytes of their
//! elements.
//!
//! The driver tells the need only of arrays whose memory is mapped later (`CUDA_ARRAY3D_DEFERRED_MAPPING`;
//! `cuArrayGetMemoryRequirements`). So a probe of that kind, which has no memory, is made, asked and destroyed. Sparse and
//! deferred arrays cost nothing themselves: the memory that is mapped into them pays.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::memory::{freed_as, keep, reserve};
use super::table::Handlers;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::allocations::{Allocation, Holds, Kind};
use crate::memory::state;
use crate::runtime::shim;
use crate::runtime::shim::devices::{current_context, current_ordinal};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuArrayCreate` before CUDA 3.2.
pub(super) fn create_v1(
    call: &Call<'_, CUresult>,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> Handled {
    let shape = peek(descriptor).map(|d| CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.Width as usize,
        Height: d.Height as usize,
        Depth: 0,
        Format: d.Format,
        NumChannels: d.NumChannels,
        Flags: 0,
    });
    one_array(call, array, shape)
}

/// `cuArrayCreate`.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> Handled {
    let shape = peek(descriptor).map(|d| CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.Width,
        Height: d.Height,
        Depth: 0,
        Format: d.Format,
        NumChannels: d.NumChannels,
        Flags: 0,
    });
    one_array(call, array, shape)
}

/// `cuArray3DCreate` before CUDA 3.2.
pub(super) fn create_3d_v1(
    call: &Call<'_, CUresult>,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> Handled {
    let shape = peek(descriptor).map(|d| CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.Width as usize,
        Height: d.Height as usize,
        Depth: d.Depth as usize,
        Format: d.Format,
        NumChannels: d.NumChannels,
        Flags: d.Flags,
    });
    one_array(call, array, shape)
}

/// `cuArray3DCreate`.
pub(super) fn create_3d(
    call: &Call<'_, CUresult>,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Handled {
    let shape = peek(descriptor);
    one_array(call, array, shape)
}

/// `cuMipmappedArrayCreate`.
pub(super) fn create_mipmap(
    call: &Call<'_, CUresult>,
    mipmap: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Handled {
    let shape = peek(descriptor);
    counted(call, mipmap, shape, levels, Kind::Mipmap, |handle| handle.0 as u64)
}

/// `cuArrayDestroy`.
pub(super) fn destroy(call: &Call<'_, CUresult>, array: CUarray) -> Handled {
    freed_as(call, array.0 as u64, Kind::Array)
}

/// `cuMipmappedArrayDestroy`.
pub(super) fn destroy_mipmap(call: &Call<'_, CUresult>, mipmap: CUmipmappedArray) -> Handled {
    freed_as(call, mipmap.0 as u64, Kind::Mipmap)
}

fn one_array(
    call: &Call<'_, CUresult>,
    array: *mut CUarray,
    shape: Option<CUDA_ARRAY3D_DESCRIPTOR>,
) -> Handled {
    counted(call, array, shape, 1, Kind::Array, |handle| handle.0 as u64)
}

fn counted<H: Copy>(
    call: &Call<'_, CUresult>,
    place: *mut H,
    shape: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: c_uint,
    kind: Kind,
    name: impl Fn(H) -> u64,
) -> Handled {
    let shim = state::managed()?;
    let shape = shape.filter(|shape| !place.is_null() && shape.Width > 0);
    let shape = shape.ok_or(Bypass::BadArgument)?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    let context = current_context();
    if shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0 {
        call.real()?;
        // SAFETY: the driver returned success, so it has just written a handle here.
        let handle = unsafe { place.read() };
        let empty = Allocation::new(context, kind, Holds::SparseMappings(Arc::default()));
        drop(shim.accounts().allocations.insert(name(handle), empty));
        return Ok(());
    }
    let need = match need_of_probe(&shape, levels, kind) {
        Ok(need) => Some(need),
        // The driver cannot make such probes, or reports what is wrong with the array itself.
        Err(CUerror::INVALID_VALUE | CUerror::NOT_SUPPORTED) => None,
        Err(error) => return Err(error.into()),
    };
    let reserved = reserve(device, need.unwrap_or_else(|| bytes_of_elements(&shape, levels)))?;
    call.real()?;
    // SAFETY: the driver returned success, so it has just written a handle here.
    let handle = unsafe { place.read() };
    keep(shim, reserved, name(handle), context, kind);
    if need.is_none() {
        // NVML shows what the driver took beyond the elements.
        crate::memory::code::changed();
    }
    Ok(())
}

/// Memory that the array needs, as the driver says (bytes).
///
/// # Errors
/// The driver's error; `CUDA_ERROR_INVALID_VALUE` also if it does not say.
fn need_of_probe(shape: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint, kind: Kind) -> Result<u64, CUerror> {
    let ordinal = current_ordinal().ok_or(CUerror::INVALID_VALUE)?;
    let probe = CUDA_ARRAY3D_DESCRIPTOR { Flags: shape.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING, ..*shape };
    let mut need = CUDA_ARRAY_MEMORY_REQUIREMENTS { size: 0, alignment: 0, reserved: [0; 4] };
    if kind == Kind::Mipmap {
        let mut handle = CUmipmappedArray::NULL;
        // SAFETY: a valid description; the driver writes a handle or nothing.
        unsafe { real::cuMipmappedArrayCreate(&raw mut handle, &raw const probe, levels) }?;
        // SAFETY: the handle was just made.
        let asked = unsafe { real::cuMipmappedArrayGetMemoryRequirements(&raw mut need, handle, ordinal) };
        // SAFETY: ours, and used by no other code.
        let _ = unsafe { real::cuMipmappedArrayDestroy(handle) };
        asked?;
    } else {
        let mut handle = CUarray::NULL;
        // SAFETY: a valid description; the driver writes a handle or nothing.
        unsafe { real::cuArray3DCreate_v2(&raw mut handle, &raw const probe) }?;
        // SAFETY: the handle was just made.
        let asked = unsafe { real::cuArrayGetMemoryRequirements(&raw mut need, handle, ordinal) };
        // SAFETY: ours, and used by no other code.
        let _ = unsafe { real::cuArrayDestroy(handle) };
        asked?;
    }
    Some(need.size as u64).filter(|bytes| *bytes > 0).ok_or(CUerror::INVALID_VALUE)
}

/// The bytes of all elements of all levels. A height or depth of 0 means that there is no such dimension.
fn bytes_of_elements(shape: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> u64 {
    let element = Element::of_format(shape.Format, u64::from(shape.NumChannels));
    // The depth of a layered array counts its layers, which are as many on each level; a cube has six faces on each.
    let is_layered = shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    let depth_dimension = if is_layered { 0 } else { shape.Depth };
    let largest = shape.Width.max(shape.Height).max(depth_dimension).max(1);
    // "The number of levels is clamped to 1 + floor(log2(max(width, height, depth)))" (`cuMipmappedArrayCreate`).
    (0..levels.clamp(1, 1 + largest.ilog2()))
        .map(|level| {
            let half = |extent: usize| (extent as u64 >> level).max(1);
            let depth = if is_layered { (shape.Depth as u64).max(1) } else { half(shape.Depth) };
            let width = half(shape.Width).checked_next_multiple_of(element.side);
            let height = match shape.Height {
                0 => Some(1),
                height => half(height).checked_next_multiple_of(element.side),
            };
            width
                .zip(height)
                .and_then(|(width, height)| {
                    width.checked_mul(height)?.checked_mul(depth)?.checked_mul(element.bits)
                })
                .map_or(u64::MAX / 8, |bits| bits.div_ceil(8))
        })
        .fold(0, u64::saturating_add)
}

/// Size of an element of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Element {
    /// Bits, all its channels together.
    bits: u64,
    /// Elements come in squares of this side: blocks that are compressed, or that share their colour.
    side: u64,
}

impl Element {
    /// Formats that pack channels, blocks or planes imply their number of channels. If the documentation leaves room
    /// (packed 4:2:2), the larger size is used. An unknown format counts as at least four channels of 32 bits.
    fn of_format(format: CUarray_format, channels: u64) -> Self {
        use CUarray_format as F;
        let (bits, side) = match format {
            F::UNSIGNED_INT8 | F::SIGNED_INT8 => (8 * channels.max(1), 1),
            F::UNSIGNED_INT16 | F::SIGNED_INT16 | F::HALF => (16 * channels.max(1), 1),
            F::UNSIGNED_INT32 | F::SIGNED_INT32 | F::FLOAT => (32 * channels.max(1), 1),
            F::UNORM_INT8X1 | F::SNORM_INT8X1 => (8, 1),
            F::UNORM_INT8X2 | F::SNORM_INT8X2 | F::UNORM_INT16X1 | F::SNORM_INT16X1 => (16, 1),
            F::UNORM_INT8X4
            | F::SNORM_INT8X4
            | F::UNORM_INT16X2
            | F::SNORM_INT16X2
            | F::UNORM_INT_101010_2 => (32, 1),
            F::UNORM_INT16X4 | F::SNORM_INT16X4 => (64, 1),
            F::BC1_UNORM | F::BC1_UNORM_SRGB | F::BC4_UNORM | F::BC4_SNORM => (4, 4),
            F::BC2_UNORM
            | F::BC2_UNORM_SRGB
            | F::BC3_UNORM
            | F::BC3_UNORM_SRGB
            | F::BC5_UNORM
            | F::BC5_SNORM
            | F::BC6H_UF16
            | F::BC6H_SF16
            | F::BC7_UNORM
            | F::BC7_UNORM_SRGB => (8, 4),
            F::NV12 | F::UINT8_SEMIPLANAR_420 | F::UINT8_PLANAR_420 => (12, 2),
            F::NV16 | F::UINT8_SEMIPLANAR_422 | F::UINT8_PLANAR_422 => (16, 2),
            F::P010 | F::P016 | F::UINT16_SEMIPLANAR_420 | F::UINT16_PLANAR_420 => (24, 2),
            F::Y444_PLANAR8 | F::YUV444_8BIT_SEMI_PLANAR | F::UINT8_SEMIPLANAR_444 | F::UINT8_PLANAR_444 => {
                (24, 1)
            }
            F::P210 | F::P216 | F::UINT16_SEMIPLANAR_422 | F::UINT16_PLANAR_422 => (32, 2),
            F::YUY2 | F::UINT8_PACKED_422 => (32, 2),
            F::AYUV | F::Y410 | F::UINT8_PACKED_444 => (32, 1),
            F::Y444_PLANAR10
            | F::YUV444_16BIT_SEMI_PLANAR
            | F::UINT16_SEMIPLANAR_444
            | F::UINT16_PLANAR_444 => (48, 1),
            F::Y210 | F::Y216 => (64, 2),
            F::Y416 => (64, 1),
            _ => (128, 4),
        };
        Self { bits, side }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: usize, height: usize, depth: usize, flags: c_uint) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: CUarray_format::FLOAT,
            NumChannels: 2,
            Flags: flags,
        }
    }

    #[test]
    fn dimensions_that_are_not_there_count_once() {
        assert_eq!(bytes_of_elements(&shape(100, 0, 0, 0), 1), 800);
        assert_eq!(bytes_of_elements(&shape(100, 10, 0, 0), 1), 8000);
        assert_eq!(bytes_of_elements(&shape(100, 10, 3, 0), 1), 24_000);
    }

    #[test]
    fn levels_halve_and_layers_do_not() {
        assert_eq!(bytes_of_elements(&shape(4, 4, 4, 0), 3), 8 * (64 + 8 + 1));
        assert_eq!(bytes_of_elements(&shape(4, 4, 4, CUDA_ARRAY3D_LAYERED), 3), 8 * 4 * (16 + 4 + 1));
        let six_faces = shape(4, 4, 6, CUDA_ARRAY3D_CUBEMAP);
        assert_eq!(bytes_of_elements(&six_faces, 3), 8 * 6 * (16 + 4 + 1));
        assert_eq!(bytes_of_elements(&shape(4, 4, 0, 0), 30), 8 * (16 + 4 + 1), "there are no more levels");
        assert!(bytes_of_elements(&shape(usize::MAX, usize::MAX, 2, 0), u32::MAX) > 1 << 60);
    }

    #[test]
    fn no_format_is_free_and_none_takes_bits_for_bytes() {
        let bytes = |format, channels| {
            let shape =
                CUDA_ARRAY3D_DESCRIPTOR { Format: format, NumChannels: channels, ..shape(8, 8, 0, 0) };
            bytes_of_elements(&shape, 1)
        };
        for number in 0..=u32::from(u8::MAX) {
            let bytes = bytes(CUarray_format(number), 1);
            assert!((32..=8 * 8 * 16).contains(&bytes), "format {number}: {bytes}");
        }
        assert_eq!(bytes(CUarray_format::UNSIGNED_INT8, 1), 64);
        assert_eq!(bytes(CUarray_format::UNSIGNED_INT8, 4), 256);
        assert_eq!(bytes(CUarray_format::HALF, 2), 256);
        assert_eq!(bytes(CUarray_format::FLOAT, 4), 1024);
        // Channels are in the format's name.
        assert_eq!(bytes(CUarray_format::UNORM_INT16X4, 4), 512);
        assert_eq!(bytes(CUarray_format::NV12, 3), 96);
        assert_eq!(bytes(CUarray_format::P016, 3), 192);
        assert_eq!(bytes(CUarray_format::Y444_PLANAR8, 3), 192);
        assert_eq!(bytes(CUarray_format::BC1_UNORM, 4), 32);
        assert_eq!(bytes(CUarray_format::BC7_UNORM, 4), 64);
    }

    #[test]
    fn blocks_are_whole() {
        let one = CUDA_ARRAY3D_DESCRIPTOR {
            Format: CUarray_format::BC1_UNORM,
            NumChannels: 4,
            ..shape(5, 1, 0, 0)
        };
        assert_eq!(bytes_of_elements(&one, 1), 8 * 2);
        // The levels of 1 x 1 are a block each: 16 + 8 + 8.
        assert_eq!(bytes_of_elements(&one, 9), 8 * 2 + 8 + 8);
    }
}
