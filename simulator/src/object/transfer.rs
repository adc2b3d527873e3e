//! A copy of any shape, as data for `cuMemcpy*` and graph nodes.
//!
//! Source: CUDA Driver API, `cuMemcpy3D` (meaning of the fields), "API synchronization behavior" (which calls wait).

use std::sync::Arc;

use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::{CUDA_MEMCPY3D, CUmemorytype};
use vcuda_machine::Engine;

use crate::object::array::{Array, array};
use crate::object::{graph_memory, memory};

/// Place of a side's memory, which determines the engine and whether the call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Memory of the GPU with this index.
    Device(usize),
    /// Page-locked memory of the host.
    Pinned,
    /// Any other memory of the host.
    Pageable,
}

/// Side of a copy: rows of bytes in slices.
#[derive(Clone, Debug)]
struct Side {
    start: u64,
    pitch: u64,
    slice: u64,
    place: Place,
    /// Keeps an array's memory while the copy is pending.
    array: Option<Arc<Array>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// The program's description, for `cuGraphMemcpyNodeGetParams`.
    pub(crate) params: CUDA_MEMCPY3D,
    source: Side,
    destination: Side,
    width: u64,
    height: u64,
    depth: u64,
    /// Whether the caller waits for the copy, so that no staging is needed.
    pub(crate) is_awaited: bool,
    staged: Option<Arc<[u8]>>,
}

// SAFETY: the raw pointers in `params` are used as numbers. The program keeps their memory valid until the copy is done, in
// whatever thread.
unsafe impl Send for Transfer {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Transfer {}

/// Maximum size of copies from pageable memory that are staged at the call (bytes); the caller of a larger one waits. A
/// real driver's staging buffer is limited too.
const STAGED_BYTES: u64 = 1 << 20;

/// A side's fields, the same for source and destination.
struct Fields {
    x: usize,
    y: usize,
    z: usize,
    kind: CUmemorytype,
    host: usize,
    device: u64,
    array: usize,
    pitch: usize,
    height: usize,
}

impl Transfer {
    /// Checks a description and determines the places of its sides. Errors: `CUDA_ERROR_INVALID_VALUE` for an unknown
    /// memory type, a device address that is not (wholly) memory of this process, a pitch shorter than its row, an
    /// extent past an array's edge; `CUDA_ERROR_INVALID_HANDLE` for an array that is none.
    pub(crate) fn new(params: &CUDA_MEMCPY3D) -> Result<Transfer, CUerror> {
        let p = params;
        let extent = (p.WidthInBytes as u64, p.Height as u64, p.Depth as u64);
        let source = Fields {
            x: p.srcXInBytes,
            y: p.srcY,
            z: p.srcZ,
            kind: p.srcMemoryType,
            host: p.srcHost as usize,
            device: p.srcDevice,
            array: p.srcArray.0,
            pitch: p.srcPitch,
            height: p.srcHeight,
        };
        let destination = Fields {
            x: p.dstXInBytes,
            y: p.dstY,
            z: p.dstZ,
            kind: p.dstMemoryType,
            host: p.dstHost as usize,
            device: p.dstDevice,
            array: p.dstArray.0,
            pitch: p.dstPitch,
            height: p.dstHeight,
        };
        if p.srcLOD != 0 || p.dstLOD != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(Transfer {
            params: *params,
            source: Side::new(&source, extent)?,
            destination: Side::new(&destination, extent)?,
            width: extent.0,
            height: extent.1,
            depth: extent.2,
            is_awaited: false,
            staged: None,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// The copy engine; `None` within one GPU, which copies by itself.
    pub(crate) fn engine(&self) -> Option<Engine> {
        match (self.source.place, self.destination.place) {
            (Place::Device(source), Place::Device(destination)) if source != destination => {
                Some(Engine::Peer)
            }
            (Place::Device(_), Place::Device(_)) => None,
            (Place::Device(_), _) => Some(Engine::ToHost),
            (_, Place::Device(_)) => Some(Engine::ToDevice),
            _ => Some(Engine::Host),
        }
    }

    /// Whether an asynchronous call returns only after the copy: "for transfers from device memory to
    /// pageable host memory, the function will return only once the copy has completed"; "from any host
    /// memory to any host memory, the function is fully synchronous".
    pub(crate) fn blocks_host(&self) -> bool {
        match (self.source.place, self.destination.place) {
            (Place::Device(_), destination) => destination == Place::Pageable,
            (Place::Pageable, Place::Device(_)) => self.bytes() > STAGED_BYTES,
            (Place::Pinned, Place::Device(_)) => false,
            _ => true,
        }
    }

    /// Whether a synchronous call waits: "for transfers from device memory to device memory, no host-side
    /// synchronization is performed".
    pub(crate) fn blocks_host_if_synchronous(&self) -> bool {
        !matches!((self.source.place, self.destination.place), (Place::Device(_), Place::Device(_)))
    }

    /// See `Work::stage`.
    pub(crate) fn stage(&mut self) {
        if self.is_awaited
            || self.source.place != Place::Pageable
            || !matches!(self.destination.place, Place::Device(_))
            || self.bytes() > STAGED_BYTES
        {
            return;
        }
        let mut staged = vec![0; self.bytes() as usize];
        let (pitch, slice) = (self.width, self.width * self.height);
        let buffer =
            Side { start: staged.as_mut_ptr() as u64, pitch, slice, place: Place::Pageable, array: None };
        copy(&self.source, &buffer, self.width, self.height, self.depth);
        let staged: Arc<[u8]> = staged.into();
        self.source = Side { start: staged.as_ptr() as u64, ..buffer };
        self.staged = Some(staged);
    }

    /// Copies the bytes. Memory that was freed meanwhile is left alone.
    pub(crate) fn run(&self) {
        let is_there = |side: &Side| {
            side.place == Place::Pageable
                || side.array.is_some()
                || memory::is_usable(side.start, side.reach(self.width, self.height, self.depth).unwrap_or(0))
        };
        if self.bytes() != 0 && is_there(&self.source) && is_there(&self.destination) {
            copy(&self.source, &self.destination, self.width, self.height, self.depth);
        }
    }
}

impl Side {
    fn new(fields: &Fields, (width, height, depth): (u64, u64, u64)) -> Result<Side, CUerror> {
        if fields.kind == CUmemorytype::ARRAY {
            return Side::of_array(fields, (width, height, depth));
        }
        let address = match fields.kind {
            CUmemorytype::HOST => fields.host as u64,
            CUmemorytype::DEVICE | CUmemorytype::UNIFIED => fields.device,
            _ => return Err(CUerror::INVALID_VALUE),
        };
        let is_one_row = height <= 1 && depth <= 1;
        let pitch = if fields.pitch == 0 && is_one_row { width } else { fields.pitch as u64 };
        let (x, y, z) = (fields.x as u64, fields.y as u64, fields.z as u64);
        if !is_one_row && pitch < x.checked_add(width).ok_or(CUerror::INVALID_VALUE)? {
            return Err(CUerror::INVALID_VALUE);
        }
        let rows = if fields.height == 0 { height } else { fields.height as u64 };
        let slice = pitch.checked_mul(rows).ok_or(CUerror::INVALID_VALUE)?;
        let offset = slice
            .checked_mul(z)
            .and_then(|sum| sum.checked_add(pitch.checked_mul(y)?))
            .and_then(|sum| sum.checked_add(x));
        let start = offset.and_then(|offset| address.checked_add(offset)).ok_or(CUerror::INVALID_VALUE)?;
        let mut side = Side { start, pitch, slice, place: Place::Pageable, array: None };
        if width == 0 || height == 0 || depth == 0 {
            return Ok(side);
        }
        let reach = side.reach(width, height, depth).ok_or(CUerror::INVALID_VALUE)?;
        side.place = place_of(start, reach, fields.kind)?;
        Ok(side)
    }

    fn of_array(fields: &Fields, (width, height, depth): (u64, u64, u64)) -> Result<Side, CUerror> {
        let array = array(fields.array)?;
        let fits = |from: usize, count: u64, limit: u64| {
            (from as u64).checked_add(count).is_some_and(|end| end <= limit)
        };
        if !fits(fields.x, width, array.row_bytes())
            || !fits(fields.y, height, array.rows())
            || !fits(fields.z, depth, array.slices())
        {
            return Err(CUerror::INVALID_VALUE);
        }
        let (pitch, slice) = (array.row_bytes(), array.row_bytes() * array.rows());
        let start = array.base()? + slice * fields.z as u64 + pitch * fields.y as u64 + fields.x as u64;
        Ok(Side { start, pitch, slice, place: Place::Device(array.device().gpu), array: Some(array) })
    }

    /// Number of bytes from the start to the end of the last row.
    fn reach(&self, width: u64, height: u64, depth: u64) -> Option<u64> {
        let slices = self.slice.checked_mul(depth.checked_sub(1)?)?;
        let rows = self.pitch.checked_mul(height.checked_sub(1)?)?;
        slices.checked_add(rows)?.checked_add(width)
    }
}

fn place_of(start: u64, reach: u64, kind: CUmemorytype) -> Result<Place, CUerror> {
    if start == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(device) = graph_memory::planned(start, reach) {
        return Ok(Place::Device(device.gpu));
    }
    match memory::find(start) {
        Some(range) if range.kind.is_host() => {
            // A registered range may end in the middle of a copy: then not all of it is pinned.
            let is_pinned = memory::is_usable(start, reach);
            Ok(if is_pinned { Place::Pinned } else { Place::Pageable })
        }
        Some(range) if memory::is_usable(start, reach) => Ok(Place::Device(range.device.gpu)),
        // A device address, but part of the range is not usable memory.
        Some(_) => Err(CUerror::INVALID_VALUE),
        None if kind == CUmemorytype::DEVICE => Err(CUerror::INVALID_VALUE),
        // Memory unknown to CUDA is the host's own.
        None if crate::base::ffi::is_possible(start as *const u8) && reach < 1 << 46 => Ok(Place::Pageable),
        None => Err(CUerror::INVALID_VALUE),
    }
}

/// Copies `depth` slices of `height` rows of `width` bytes.
fn copy(source: &Side, destination: &Side, width: u64, height: u64, depth: u64) {
    let is_dense = |side: &Side| side.pitch == width && side.slice == width * height;
    let (width, height, depth) = if is_dense(source) && is_dense(destination) {
        (width * height * depth, 1, 1)
    } else {
        (width, height, depth)
    };
    for z in 0..depth {
        for y in 0..height {
            let from = source.start + z * source.slice + y * source.pitch;
            let to = destination.start + z * destination.slice + y * destination.pitch;
            // SAFETY: both rows lie in memory that this process has noted as its own, or in the program's
            // own memory, which it promised to keep valid; they may overlap.
            unsafe { core::ptr::copy(from as *const u8, to as *mut u8, width as usize) };
        }
    }
}

/// Description of a copy of consecutive bytes.
pub(crate) fn linear(
    destination: (CUmemorytype, u64),
    source: (CUmemorytype, u64),
    bytes: usize,
) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: source.0,
        srcHost: source.1 as *const _,
        srcDevice: source.1,
        srcPitch: bytes,
        dstMemoryType: destination.0,
        dstHost: destination.1 as *mut _,
        dstDevice: destination.1,
        dstPitch: bytes,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..empty()
    }
}

/// All fields zero.
pub(crate) fn empty() -> CUDA_MEMCPY3D {
    // SAFETY: the structure has only integers, handles and raw pointers, for which zero is a value.
    unsafe { core::mem::zeroed() }
}
