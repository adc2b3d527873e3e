//! A memset of any shape, as data for `cuMemset*` and graph nodes.

use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::CUDA_MEMSET_NODE_PARAMS;

use crate::object::graph_memory;
use crate::object::memory::{self, Kind};

/// Rows of elements set to one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// The program's description, with `value` cut to the element size.
    pub(crate) params: CUDA_MEMSET_NODE_PARAMS,
}

impl Fill {
    /// Checks a description. Error: `CUDA_ERROR_INVALID_VALUE` for an element size other than 1, 2 or 4 bytes, an
    /// address or a pitch that is not a multiple of it, a pitch shorter than its row, or a range that is not memory of
    /// this process.
    pub(crate) fn new(params: &CUDA_MEMSET_NODE_PARAMS) -> Result<Fill, CUerror> {
        let element = u64::from(params.elementSize);
        if ![1, 2, 4].contains(&element) || !params.dst.is_multiple_of(element) {
            return Err(CUerror::INVALID_VALUE);
        }
        let fill = Fill { params: *params };
        if fill.bytes() == 0 {
            return Ok(fill);
        }
        let row = (params.width as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE)?;
        let pitch = params.pitch as u64;
        if params.height > 1 && (pitch < row || !pitch.is_multiple_of(element)) {
            return Err(CUerror::INVALID_VALUE);
        }
        let reach = pitch.checked_mul(params.height as u64 - 1).and_then(|rows| rows.checked_add(row));
        let reach = reach.ok_or(CUerror::INVALID_VALUE)?;
        if !memory::is_usable(params.dst, reach) && graph_memory::planned(params.dst, reach).is_none() {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(fill)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let elements = (self.params.width as u64).saturating_mul(self.params.height as u64);
        elements.saturating_mul(u64::from(self.params.elementSize))
    }

    /// "The cudaMemset functions are asynchronous with respect to the host except when the target memory is
    /// pinned host memory" ("API synchronization behavior").
    pub(crate) fn blocks_host_if_synchronous(&self) -> bool {
        memory::find(self.params.dst).is_some_and(|range| range.kind.is_host())
    }

    /// Writes the values, if the memory still exists.
    pub(crate) fn run(&self) {
        let (element, row) = (self.params.elementSize as usize, self.params.width);
        for y in 0..self.params.height {
            let start = self.params.dst + (y * self.params.pitch) as u64;
            if !memory::is_usable(start, (row * element) as u64) {
                return;
            }
            let value = self.params.value;
            if value == 0 && row * element >= CLEARED_BYTES && clear(start, (row * element) as u64) {
                continue;
            }
            match element {
                // SAFETY: the range has just been found to be memory of this process.
                1 => unsafe { core::ptr::write_bytes(start as *mut u8, value as u8, row) },
                2 => set(start as *mut u16, value as u16, row),
                _ => set(start as *mut u32, value, row),
            }
        }
    }
}

/// Minimum size of zeros that are made by releasing pages (bytes), so that clearing device memory does not fill the host's.
const CLEARED_BYTES: usize = 1 << 20;

/// Clears a range of device memory by releasing pages; false for memory of another kind, whose pages are shared.
fn clear(start: u64, bytes: u64) -> bool {
    const PAGE: u64 = 4096;
    let is_private = memory::find(start).is_some_and(|range| {
        matches!(range.kind, Kind::Device | Kind::Managed | Kind::Global | Kind::Pool(_) | Kind::Graph)
    });
    let is_private =
        is_private && memory::find(start).is_some_and(|range| !crate::object::sharing::is_shared(range.base));
    let (first, end) = (start.next_multiple_of(PAGE), (start + bytes) / PAGE * PAGE);
    if !is_private || first >= end {
        return false;
    }
    // SAFETY: whole pages of a private anonymous mapping (the device's arena), inside memory that the caller
    // has checked.
    unsafe { libc::madvise(first as *mut _, (end - first) as usize, libc::MADV_DONTNEED) };
    set(start as *mut u8, 0, (first - start) as usize);
    set(end as *mut u8, 0, (start + bytes - end) as usize);
    true
}

fn set<T: Copy>(start: *mut T, value: T, count: usize) {
    for index in 0..count {
        // SAFETY: the caller has checked that `count` elements lie in memory of this process.
        let place = unsafe { start.add(index) };
        // SAFETY: as above; `Fill::new` checked the alignment.
        unsafe { place.write(value) };
    }
}
