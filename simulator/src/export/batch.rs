//! Copies in batches (CUDA Driver API, "Memory Management"; CUDA 12.8 and later).
//!
//! "The copies are not guaranteed to execute in any specific order": here they run one after the other. All are checked
//! before the first is submitted.

use crate::export::prelude::*;
use crate::object::array::array;
use crate::object::stream::{Role, Stream};
use crate::object::transfer::{Transfer, empty, linear};
use crate::semantics::work;

export! {
    cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz =>
        |null, to, from, sizes, count, attributes, starts, attribute_count, failed, stream|
        copy_all(null, to, from, sizes, count, attributes, starts, attribute_count, stream)
            .map_err(told(failed));
    cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz =>
        |null, to, from, sizes, count, attributes, starts, attribute_count, stream|
        copy_all(null, to, from, sizes, count, attributes, starts, attribute_count, stream)
            .map_err(|(error, _)| error);
    cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz => |null, count, operations, failed, flags, stream|
        volume_all(null, count, operations, flags, stream).map_err(told(failed));
    cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz => |null, count, operations, flags, stream|
        volume_all(null, count, operations, flags, stream).map_err(|(error, _)| error);
    cuMemcpyWithAttributesAsync / cuMemcpyWithAttributesAsync_ptsz => copy_with_attributes;
    cuMemcpy3DWithAttributesAsync / cuMemcpy3DWithAttributesAsync_ptsz => volume_with_attributes;
}

/// An error, and the index of the operation (`SIZE_MAX` for the whole call).
type Failure = (CUerror, usize);

fn whole(error: CUerror) -> Failure {
    (error, usize::MAX)
}

/// Writes the index of the operation that failed.
fn told(place: *mut usize) -> impl FnOnce(Failure) -> CUerror {
    move |(error, index)| {
        put_if_wanted(place, index);
        error
    }
}

/// "Must not be legacy NULL stream."
fn stream_for(stream: CUstream, null: Null) -> Result<std::sync::Arc<Stream>, CUerror> {
    let stream = resolve(stream, null)?;
    if stream.role == Role::Legacy { Err(CUerror::INVALID_VALUE) } else { Ok(stream) }
}

fn check_order(order: CUmemcpySrcAccessOrder) -> CUresult {
    let known = CUmemcpySrcAccessOrder::STREAM.0..=CUmemcpySrcAccessOrder::ANY.0;
    if known.contains(&order.0) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

fn submit_all(transfers: Vec<Transfer>, stream: &Stream) -> Result<(), Failure> {
    for (index, transfer) in transfers.into_iter().enumerate() {
        work::copy(transfer, stream, false).map_err(|error| (error, index))?;
    }
    Ok(())
}

/// "The attribute at index i applies to copies `attrsIdxs[i]` up to `attrsIdxs[i+1] - 1`; the first entry must be 0,
/// entries must rise."
fn check_attributes(
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attribute_count: usize,
    count: usize,
) -> CUresult {
    let starts = get_array(starts, attribute_count)?;
    let rise = starts.first() == Some(&0) && starts.windows(2).all(|pair| pair[0] < pair[1]);
    if !rise || starts.last().is_some_and(|last| *last >= count) {
        return Err(CUerror::INVALID_VALUE);
    }
    for attribute in get_array(attributes, attribute_count)? {
        check_order(attribute.srcAccessOrder)?;
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the API's prototype")]
fn copy_all(
    null: Null,
    destinations: *mut CUdeviceptr,
    sources: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Result<(), Failure> {
    let stream = stream_for(stream, null).map_err(whole)?;
    if count == 0 {
        return Err(whole(CUerror::INVALID_VALUE));
    }
    check_attributes(attributes, starts, attribute_count, count).map_err(whole)?;
    let destinations = get_array(destinations, count).map_err(whole)?;
    let sources = get_array(sources, count).map_err(whole)?;
    let sizes = get_array(sizes, count).map_err(whole)?;
    let mut transfers = Vec::with_capacity(count);
    for (index, ((to, from), bytes)) in destinations.into_iter().zip(sources).zip(sizes).enumerate() {
        if bytes == 0 {
            return Err((CUerror::INVALID_VALUE, index));
        }
        let any = CUmemorytype::UNIFIED;
        let transfer = Transfer::new(&linear((any, to), (any, from), bytes));
        transfers.push(transfer.map_err(|error| (error, index))?);
    }
    submit_all(transfers, &stream)
}

fn copy_with_attributes(
    null: Null,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    attributes: *mut CUmemcpyAttributes,
    stream: CUstream,
) -> CUresult {
    let stream = resolve(stream, null)?;
    check_order(get(attributes)?.srcAccessOrder)?;
    let any = CUmemorytype::UNIFIED;
    work::copy(Transfer::new(&linear((any, to), (any, from), bytes))?, &stream, false)
}

/// Side of a batched volume, with the corresponding fields of `CUDA_MEMCPY3D`.
struct Operand {
    kind: CUmemorytype,
    device: CUdeviceptr,
    array: CUarray,
    pitch: usize,
    height: usize,
    offset: (usize, usize, usize),
}

/// Element size if the side is an array, whose extents and offsets count elements (docs/hardware.md, "copies in batches");
/// otherwise they count bytes.
fn element_of(operand: &CUmemcpy3DOperand) -> Result<Option<usize>, CUerror> {
    if operand.r#type != CUmemcpy3DOperandType::ARRAY {
        return Ok(None);
    }
    // SAFETY: the type says that the array is the union's member.
    let array = self::array(unsafe { operand.op.array }.array.0)?;
    Ok(Some(array.row_bytes() as usize / array.descriptor.Width.max(1)))
}

fn operand(given: &CUmemcpy3DOperand, element: usize, extent: &CUextent3D) -> Result<Operand, CUerror> {
    match given.r#type {
        CUmemcpy3DOperandType::POINTER => {
            // SAFETY: the type says that the pointer is the union's member.
            let pointer = unsafe { given.op.ptr };
            // "rowLength 0: rows are as long as the copy is wide"; layerHeight likewise.
            let row = if pointer.rowLength == 0 { extent.width } else { pointer.rowLength };
            Ok(Operand {
                kind: CUmemorytype::UNIFIED,
                device: pointer.ptr,
                array: CUarray::NULL,
                pitch: row.checked_mul(element).ok_or(CUerror::INVALID_VALUE)?,
                height: pointer.layerHeight,
                offset: (0, 0, 0),
            })
        }
        CUmemcpy3DOperandType::ARRAY => {
            // SAFETY: the type says that the array is the union's member.
            let array = unsafe { given.op.array };
            let x = array.offset.x.checked_mul(element).ok_or(CUerror::INVALID_VALUE)?;
            Ok(Operand {
                kind: CUmemorytype::ARRAY,
                device: 0,
                array: array.array,
                pitch: 0,
                height: 0,
                offset: (x, array.offset.y, array.offset.z),
            })
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn volume(op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<Transfer, CUerror> {
    check_order(op.srcAccessOrder)?;
    let element = element_of(&op.src)?.or(element_of(&op.dst)?).unwrap_or(1);
    let from = operand(&op.src, element, &op.extent)?;
    let to = operand(&op.dst, element, &op.extent)?;
    Transfer::new(&CUDA_MEMCPY3D {
        srcXInBytes: from.offset.0,
        srcY: from.offset.1,
        srcZ: from.offset.2,
        srcMemoryType: from.kind,
        srcDevice: from.device,
        srcArray: from.array,
        srcPitch: from.pitch,
        srcHeight: from.height,
        dstXInBytes: to.offset.0,
        dstY: to.offset.1,
        dstZ: to.offset.2,
        dstMemoryType: to.kind,
        dstDevice: to.device,
        dstArray: to.array,
        dstPitch: to.pitch,
        dstHeight: to.height,
        WidthInBytes: op.extent.width.checked_mul(element).ok_or(CUerror::INVALID_VALUE)?,
        Height: op.extent.height,
        Depth: op.extent.depth,
        ..empty()
    })
}

/// "flags: must be zero."
fn volume_all(
    null: Null,
    count: usize,
    operations: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> Result<(), Failure> {
    let stream = stream_for(stream, null).map_err(whole)?;
    if count == 0 || flags != 0 {
        return Err(whole(CUerror::INVALID_VALUE));
    }
    let mut transfers = Vec::new();
    for (index, operation) in get_array(operations, count).map_err(whole)?.iter().enumerate() {
        transfers.push(volume(operation).map_err(|error| (error, index))?);
    }
    submit_all(transfers, &stream)
}

fn volume_with_attributes(
    null: Null,
    operation: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    let stream = resolve(stream, null)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    work::copy(volume(&get(operation)?)?, &stream, false)
}
