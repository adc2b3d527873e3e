//! Reserved addresses and their mappings.

use core::ffi::c_void;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::CUerror;

use crate::object::memory::{self, Kind, READ_WRITE};
use crate::object::vmm::{GRANULARITY, Physical};

/// Lengths of reservations by first address.
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// Mappings by first address.
static MAPPED: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: Arc<Physical>,
    /// `CUmemAccess_flags` by device ordinal.
    access: BTreeMap<i32, u32>,
}

/// Reserves addresses; "addr: optional hint for start of address range". Error: `CUDA_ERROR_OUT_OF_MEMORY` without
/// address space.
pub(crate) fn reserve(bytes: u64, alignment: u64, hint: u64) -> Result<u64, CUerror> {
    let alignment = alignment.max(GRANULARITY);
    if hint != 0
        && hint.is_multiple_of(alignment)
        && place(hint, bytes, libc::MAP_FIXED_NOREPLACE) == Some(hint)
    {
        RESERVED.lock().insert(hint, bytes);
        return Ok(hint);
    }
    let room = bytes.checked_add(alignment).ok_or(CUerror::OUT_OF_MEMORY)?;
    let start = place(0, room, 0).ok_or(CUerror::OUT_OF_MEMORY)?;
    let base = start.next_multiple_of(alignment);
    give_up(start, base - start);
    give_up(base + bytes, start + room - (base + bytes));
    RESERVED.lock().insert(base, bytes);
    Ok(base)
}

/// Inaccessible addresses; `None` if the system refuses.
fn place(address: u64, bytes: u64, flags: i32) -> Option<u64> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: callers pass either no fixed place, one that must be free, or one that they have reserved.
    let got = unsafe { libc::mmap(address as *mut c_void, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

fn give_up(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: a part of a reservation of this module that nothing is mapped into.
        unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
    }
}

/// `cuMemAddressFree`: frees one whole reservation without mappings.
pub(crate) fn free(base: u64, bytes: u64) -> Result<(), CUerror> {
    let mut reserved = RESERVED.lock();
    if reserved.get(&base) != Some(&bytes) || !memory::overlapping(base, bytes).is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    reserved.remove(&base);
    give_up(base, bytes);
    Ok(())
}

/// Whether a range lies in one reservation.
fn is_reserved(reserved: &BTreeMap<u64, u64>, base: u64, bytes: u64) -> bool {
    let Some(end) = base.checked_add(bytes) else {
        return false;
    };
    let before = reserved.range(..=base).next_back();
    before.is_some_and(|(start, length)| start + length >= end)
}

/// `cuMemMap`. Error: `CUDA_ERROR_INVALID_VALUE` for addresses that are not reserved or not free, or beyond the
/// allocation's size.
pub(crate) fn map(base: u64, bytes: u64, physical: &Arc<Physical>) -> Result<(), CUerror> {
    let reserved = RESERVED.lock();
    if !is_reserved(&reserved, base, bytes)
        || bytes > physical.bytes
        || !memory::overlapping(base, bytes).is_empty()
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let (flags, file) =
        (libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE, physical.contents().as_raw_fd());
    // SAFETY: the range lies in a reservation of this module, and nothing is mapped there.
    let got = unsafe { libc::mmap(base as *mut c_void, bytes as usize, libc::PROT_NONE, flags, file, 0) };
    if got == libc::MAP_FAILED {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    physical.change(|users| users.mappings += 1);
    let mapping = Mapping { bytes, physical: Arc::clone(physical), access: BTreeMap::new() };
    MAPPED.lock().insert(base, mapping);
    memory::insert(base, bytes, Kind::Mapped(physical.handle as u64), physical.device, None);
    Ok(())
}

/// First addresses of the mappings in a range, each of which lies in it as a whole.
fn inside(mapped: &BTreeMap<u64, Mapping>, base: u64, bytes: u64) -> Result<Vec<u64>, CUerror> {
    let end = base.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
    let mut found = Vec::new();
    let overlapping = mapped.range(..end).rev();
    for (&start, mapping) in overlapping.take_while(|(start, mapping)| *start + mapping.bytes > base) {
        if start < base || start + mapping.bytes > end {
            return Err(CUerror::INVALID_VALUE);
        }
        found.push(start);
    }
    Ok(found)
}

/// First addresses of the mappings that exactly cover a range.
fn whole(mapped: &BTreeMap<u64, Mapping>, base: u64, bytes: u64) -> Result<Vec<u64>, CUerror> {
    let end = base.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
    let mut next = base;
    let mut found = Vec::new();
    for (&start, mapping) in mapped.range(base..end) {
        if start != next {
            return Err(CUerror::INVALID_VALUE);
        }
        found.push(start);
        next = start + mapping.bytes;
    }
    if next == end { Ok(found) } else { Err(CUerror::INVALID_VALUE) }
}

/// `cuMemUnmap`: "the range must be the entire address range that was mapped to; it may contain several mappings".
/// Reserved addresses at which nothing is mapped are no error (seen on an H200, 580.159.04). Error:
/// `CUDA_ERROR_INVALID_VALUE` for a part of a mapping, or addresses that are not reserved.
pub(crate) fn unmap(base: u64, bytes: u64) -> Result<(), CUerror> {
    if !is_reserved(&RESERVED.lock(), base, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut mapped = MAPPED.lock();
    for start in inside(&mapped, base, bytes)? {
        let Some(mapping) = mapped.remove(&start) else {
            continue;
        };
        memory::remove(start, |kind| matches!(kind, Kind::Mapped(_)));
        place(start, mapping.bytes, libc::MAP_FIXED);
        mapping.physical.change(|users| users.mappings -= 1);
    }
    Ok(())
}

/// `cuMemSetAccess` for one device, with `CUmemAccess_flags`. Error: `CUDA_ERROR_INVALID_VALUE` if the range is not
/// covered by whole mappings.
pub(crate) fn set_access(base: u64, bytes: u64, ordinal: i32, flags: u32) -> Result<(), CUerror> {
    let mut mapped = MAPPED.lock();
    for start in whole(&mapped, base, bytes)? {
        let Some(mapping) = mapped.get_mut(&start) else {
            continue;
        };
        mapping.access.insert(ordinal, flags);
        let any = mapping.access.values().fold(0, |any, flags| any | flags);
        let protection = if any == 0 { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: a mapping of this module, all of it.
        unsafe { libc::mprotect(start as *mut c_void, mapping.bytes as usize, protection) };
        if let Some(range) = memory::at(start) {
            range.access.store(any & READ_WRITE, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The allocation mapped at an address, with an added reference. Error: `CUDA_ERROR_INVALID_VALUE` if nothing is
/// mapped.
pub(crate) fn retain_at(address: u64) -> Result<usize, CUerror> {
    let mapped = MAPPED.lock();
    // A mapped allocation has not ended.
    mapping_at(&mapped, address)?.physical.retain().ok_or(CUerror::INVALID_VALUE)
}

/// The allocation mapped at an address. Error: `CUDA_ERROR_INVALID_VALUE` if nothing is mapped.
pub(crate) fn physical_at(address: u64) -> Result<Arc<Physical>, CUerror> {
    let mapped = MAPPED.lock();
    Ok(Arc::clone(&mapping_at(&mapped, address)?.physical))
}

fn mapping_at(mapped: &BTreeMap<u64, Mapping>, address: u64) -> Result<&Mapping, CUerror> {
    let (start, mapping) = mapped.range(..=address).next_back().ok_or(CUerror::INVALID_VALUE)?;
    if address - start < mapping.bytes { Ok(mapping) } else { Err(CUerror::INVALID_VALUE) }
}
