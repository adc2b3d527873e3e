//! Sizes of arrays by their descriptions.

use vcuda_driver_api::prelude::*;

/// Size of all levels of a valid description (bytes). Errors: `CUDA_ERROR_INVALID_VALUE` for an invalid one;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn check(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<u64, CUerror> {
    let d = descriptor;
    let has_layers = d.Flags & CUDA_ARRAY3D_LAYERED != 0;
    // Sparse arrays are 2D, layered 2D or 3D; none is mapped both by tiles and as a whole.
    let is_sparse = d.Flags & CUDA_ARRAY3D_SPARSE != 0;
    if is_sparse && (d.Height == 0 || d.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING != 0) {
        return Err(CUerror::INVALID_VALUE);
    }
    // "Only 1D, 2D and 3D arrays": depth needs height, unless it counts layers; layers need a count.
    if d.Width == 0 || (d.Depth > 0 && d.Height == 0 && !has_layers) || (has_layers && d.Depth == 0) {
        return Err(CUerror::INVALID_VALUE);
    }
    // "If CUDA_ARRAY3D_CUBEMAP is set ... Width must equal Height and Depth must be six", or a multiple.
    let is_cube = d.Flags & CUDA_ARRAY3D_CUBEMAP != 0;
    let has_faces = if has_layers { d.Depth.is_multiple_of(6) } else { d.Depth == 6 };
    if is_cube && (d.Width != d.Height || !has_faces) {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut bytes = 0_u64;
    for level in 0..levels {
        let more = level_bytes(d, level).ok_or(CUerror::INVALID_VALUE)?;
        bytes = bytes.checked_add(more).ok_or(CUerror::OUT_OF_MEMORY)?;
    }
    Ok(bytes)
}

/// Description of a level of a mipmapped array.
pub(crate) fn level_descriptor(whole: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let half = |extent: usize| if extent == 0 { 0 } else { (extent >> level).max(1) };
    let counts_layers = whole.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: half(whole.Width),
        Height: half(whole.Height),
        Depth: if counts_layers { whole.Depth } else { half(whole.Depth) },
        ..*whole
    }
}

/// Size of a level (bytes); `None` for an unknown format.
pub(crate) fn level_bytes(whole: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> Option<u64> {
    let d = level_descriptor(whole, level);
    let row = (d.Width as u64).checked_mul(texel_bytes(&d)?)?;
    row.checked_mul(d.Height.max(1) as u64)?.checked_mul(d.Depth.max(1) as u64)
}

/// Size of a box of texels (bytes).
pub(crate) fn level_extent_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, extent: [u64; 3]) -> u64 {
    extent.iter().product::<u64>() * texel_bytes(descriptor).unwrap_or(0)
}

/// "Packed components per CUDA array element; it may be 1, 2, or 4."
pub(crate) fn texel_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    use CUarray_format as F;
    let component = match descriptor.Format {
        F::UNSIGNED_INT8 | F::SIGNED_INT8 => 1,
        F::UNSIGNED_INT16 | F::SIGNED_INT16 | F::HALF => 2,
        // The normalised formats determine the number of channels.
        CUarray_format(192..=194 | 198..=200) => 1,
        CUarray_format(195..=197 | 201..=203) => 2,
        F::UNSIGNED_INT32 | F::SIGNED_INT32 | F::FLOAT => 4,
        _ => return None,
    };
    [1, 2, 4].contains(&descriptor.NumChannels).then(|| component * u64::from(descriptor.NumChannels))
}
