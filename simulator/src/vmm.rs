//! Virtual memory management (CUDA Driver API, "Virtual Memory Management"): physical allocations, reserved
//! addresses, and what is mapped where. `vmm_api.rs` has the exported functions.
//!
//! A physical allocation is a memory file; mapping it maps the file over the reserved addresses. It is charged
//! until "all outstanding mappings to it have been unmapped and all outstanding references to the handle have
//! been released" (`cuMemRelease`).

use core::ffi::c_void;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::CUmemAllocationProp;

use crate::device::Device;
use crate::memory::{self, Allocation, Kind, READ_WRITE};
use crate::process::process;
use crate::table::{Kind as HandleKind, Table};

/// Sizes and addresses are multiples of this, bytes: the size of a large page.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// All physical allocations with a handle or a mapping.
static PHYSICALS: Table<Physical> = Table::new(HandleKind::Allocation);
/// Reserved addresses: length by first address.
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// What is mapped, by first address.
static MAPPED: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

/// Physical memory.
#[derive(Debug)]
pub(crate) struct Physical {
    /// What the program knows it by.
    pub(crate) handle: usize,
    /// Where it is.
    pub(crate) device: &'static Device,
    /// Its size.
    pub(crate) bytes: u64,
    /// As asked for at its creation.
    pub(crate) properties: CUmemAllocationProp,
    file: OwnedFd,
    /// Whether this process pays for it: an imported one is its exporter's.
    is_charged: bool,
    users: Mutex<Users>,
}

// SAFETY: the raw pointer in `properties` is a number that is handed back, never followed.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

/// References that keep an allocation.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    handles: u32,
    mappings: u32,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: Arc<Physical>,
    /// `CUmemAccess_flags` by device ordinal.
    access: BTreeMap<i32, u32>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.is_charged
            && let Ok(process) = process()
        {
            process.client.give(self.device.gpu, self.bytes);
        }
    }
}

impl Physical {
    /// Takes memory for an allocation.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn create(
        device: &'static Device,
        bytes: u64,
        properties: CUmemAllocationProp,
    ) -> Result<usize, CUerror> {
        let file = memory_file(device, bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        crate::backing::take(device, bytes)?;
        Ok(Physical::keep(device, bytes, properties, file, true))
    }

    fn keep(
        device: &'static Device,
        bytes: u64,
        properties: CUmemAllocationProp,
        file: OwnedFd,
        is_charged: bool,
    ) -> usize {
        let users = Mutex::new(Users {
            handles: 1,
            mappings: 0,
        });
        PHYSICALS
            .insert_with(|handle| Physical {
                handle,
                device,
                bytes,
                properties,
                file,
                is_charged,
                users,
            })
            .0
    }

    /// A file descriptor of the same memory, the caller's to close.
    ///
    /// # Errors
    /// `CUDA_ERROR_OPERATING_SYSTEM` where the process has no more descriptors.
    pub(crate) fn export(&self) -> Result<OwnedFd, CUerror> {
        self.file.try_clone().map_err(|_| CUerror::OPERATING_SYSTEM)
    }

    /// One more reference by handle.
    pub(crate) fn retain(&self) -> usize {
        self.users.lock().handles += 1;
        self.handle
    }

    fn change(&self, change: impl FnOnce(&mut Users)) {
        let mut users = self.users.lock();
        change(&mut users);
        if users.handles == 0 && users.mappings == 0 {
            drop(users);
            PHYSICALS.remove(self.handle);
        }
    }
}

/// The allocation behind a handle that has not been released.
///
/// # Errors
/// `CUDA_ERROR_NOT_INITIALIZED`, `CUDA_ERROR_INVALID_VALUE`.
pub(crate) fn physical(handle: u64) -> Result<Arc<Physical>, CUerror> {
    process()?;
    let physical = PHYSICALS.get(handle as usize).ok_or(CUerror::INVALID_VALUE)?;
    if physical.users.lock().handles == 0 {
        Err(CUerror::INVALID_VALUE)
    } else {
        Ok(physical)
    }
}

/// `cuMemRelease`.
///
/// # Errors
/// As [`physical`].
pub(crate) fn release(handle: u64) -> Result<(), CUerror> {
    physical(handle)?.change(|users| users.handles -= 1);
    Ok(())
}

/// Imports a descriptor that [`Physical::export`] gave, here or in another process.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for any other descriptor, or memory of a GPU that this process does not see.
pub(crate) fn import(descriptor: i32) -> Result<usize, CUerror> {
    let link =
        std::fs::read_link(format!("/proc/self/fd/{descriptor}")).map_err(|_| CUerror::INVALID_VALUE)?;
    let (gpu, bytes) = link.to_str().and_then(parse_name).ok_or(CUerror::INVALID_VALUE)?;
    let devices = &process()?.devices;
    let device = devices
        .iter()
        .find(|device| device.gpu == gpu)
        .ok_or(CUerror::INVALID_VALUE)?;
    // SAFETY: a plain duplicate; the descriptor has just been seen to be open.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(CUerror::OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor just made, owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(copy) };
    let identity = identity_of(&file).ok_or(CUerror::INVALID_VALUE)?;
    if let Some(known) = PHYSICALS
        .all()
        .iter()
        .find(|known| identity_of(&known.file) == Some(identity))
    {
        return Ok(known.retain());
    }
    Ok(Physical::keep(
        device,
        bytes,
        crate::vmm_api::device_properties(device.ordinal),
        file,
        false,
    ))
}

fn identity_of(file: &OwnedFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The file's name says what it holds, so that an importer knows.
fn memory_file(device: &Device, bytes: u64) -> Option<OwnedFd> {
    let name = std::ffi::CString::new(format!("vcuda-vmm:{}:{bytes}", device.gpu)).ok()?;
    // SAFETY: a call that makes a new file of this name; nothing else is touched.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor just made, owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let length = libc::off_t::try_from(bytes).ok()?;
    // SAFETY: sets the length of the file just made; it stays sparse.
    (unsafe { libc::ftruncate(descriptor, length) } == 0).then_some(file)
}

/// "/memfd:vcuda-vmm:0:2097152 (deleted)": GPU and bytes.
fn parse_name(link: &str) -> Option<(usize, u64)> {
    let name = link.strip_prefix("/memfd:vcuda-vmm:")?;
    let (gpu, bytes) = name.split_whitespace().next()?.split_once(':')?;
    Some((gpu.parse().ok()?, bytes.parse().ok()?))
}

/// Reserves addresses; "addr: optional hint for start of address range".
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` without address space.
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

/// Addresses that nothing can be read from or written to; none if they cannot be had.
fn place(address: u64, bytes: u64, flags: i32) -> Option<u64> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: callers pass either no fixed place, one that must be free, or one that they have reserved.
    let got = unsafe {
        libc::mmap(
            address as *mut c_void,
            bytes as usize,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        )
    };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

fn give_up(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: a part of a reservation of this module that nothing is mapped into.
        unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
    }
}

/// `cuMemAddressFree`: the whole of one reservation, with nothing mapped.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) fn free(base: u64, bytes: u64) -> Result<(), CUerror> {
    let mut reserved = RESERVED.lock();
    if reserved.get(&base) != Some(&bytes) || !memory::overlapping(base, bytes).is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    reserved.remove(&base);
    give_up(base, bytes);
    Ok(())
}

/// `cuMemMap`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for addresses that are not reserved or not free, or more bytes than there are.
pub(crate) fn map(base: u64, bytes: u64, physical: &Arc<Physical>) -> Result<(), CUerror> {
    let end = base.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
    let reserved = RESERVED.lock();
    let is_reserved = reserved
        .range(..=base)
        .next_back()
        .is_some_and(|(start, length)| start + length >= end);
    if !is_reserved || bytes > physical.bytes || !memory::overlapping(base, bytes).is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    let (flags, file) = (
        libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
        physical.file.as_raw_fd(),
    );
    // SAFETY: the range lies in a reservation of this module, and nothing is mapped there.
    let got = unsafe {
        libc::mmap(
            base as *mut c_void,
            bytes as usize,
            libc::PROT_NONE,
            flags,
            file,
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    physical.change(|users| users.mappings += 1);
    let mapping = Mapping {
        bytes,
        physical: Arc::clone(physical),
        access: BTreeMap::new(),
    };
    MAPPED.lock().insert(base, mapping);
    memory::insert(
        base,
        bytes,
        Kind::Mapped(physical.handle as u64),
        physical.device,
        None,
    );
    Ok(())
}

/// First addresses and lengths of the mappings that make up a range exactly.
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
    if next == end {
        Ok(found)
    } else {
        Err(CUerror::INVALID_VALUE)
    }
}

/// `cuMemUnmap`: "the range must be the entire address range that was mapped to; it may contain several
/// mappings".
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) fn unmap(base: u64, bytes: u64) -> Result<(), CUerror> {
    let mut mapped = MAPPED.lock();
    for start in whole(&mapped, base, bytes)? {
        let Some(mapping) = mapped.remove(&start) else {
            continue;
        };
        memory::remove(start, |kind| matches!(kind, Kind::Mapped(_)));
        place(start, mapping.bytes, libc::MAP_FIXED);
        mapping.physical.change(|users| users.mappings -= 1);
    }
    Ok(())
}

/// `cuMemSetAccess` for one device: `flags` of `CUmemAccess_flags`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where the range is not made of whole mappings.
pub(crate) fn set_access(base: u64, bytes: u64, ordinal: i32, flags: u32) -> Result<(), CUerror> {
    let mut mapped = MAPPED.lock();
    for start in whole(&mapped, base, bytes)? {
        let Some(mapping) = mapped.get_mut(&start) else {
            continue;
        };
        mapping.access.insert(ordinal, flags);
        let any = mapping.access.values().fold(0, |any, flags| any | flags);
        let protection = if any == 0 {
            libc::PROT_NONE
        } else {
            libc::PROT_READ | libc::PROT_WRITE
        };
        // SAFETY: a mapping of this module, all of it.
        unsafe { libc::mprotect(start as *mut c_void, mapping.bytes as usize, protection) };
        if let Some(range) = memory::at(start) {
            range.access.store(any & READ_WRITE, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// `cuMemGetAccess`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where nothing is mapped.
pub(crate) fn get_access(address: u64, ordinal: i32) -> Result<u32, CUerror> {
    let mapped = MAPPED.lock();
    Ok(mapping_at(&mapped, address)?
        .access
        .get(&ordinal)
        .copied()
        .unwrap_or(0))
}

/// The allocation that is mapped at an address, with one more reference.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where nothing is mapped.
pub(crate) fn retain_at(address: u64) -> Result<usize, CUerror> {
    let mapped = MAPPED.lock();
    Ok(mapping_at(&mapped, address)?.physical.retain())
}

fn mapping_at(mapped: &BTreeMap<u64, Mapping>, address: u64) -> Result<&Mapping, CUerror> {
    let (start, mapping) = mapped
        .range(..=address)
        .next_back()
        .ok_or(CUerror::INVALID_VALUE)?;
    if address - start < mapping.bytes {
        Ok(mapping)
    } else {
        Err(CUerror::INVALID_VALUE)
    }
}

/// `CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES`.
pub(crate) fn handle_types(of: &Allocation) -> u64 {
    let Kind::Mapped(handle) = of.kind else { return 0 };
    PHYSICALS.get(handle as usize).map_or(0, |physical| {
        u64::from(physical.properties.requestedHandleTypes.0)
    })
}
