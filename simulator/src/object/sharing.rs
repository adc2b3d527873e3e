//! Memory shared with other processes: holds of the machine's objects, and address ranges that map their contents.
//!
//! Exported memory becomes an object of the machine (`vcuda_machine::Client::object_make`), a file that all its processes
//! can map. Its bytes count once until the last hold ends. The kinds of exports are in `ipc.rs`, `vmm.rs`,
//! `export/pool_share.rs` and `external.rs`.

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Object, ObjectId, Refused};

use crate::object::device::Device;
use crate::object::process::process;

const PAGE: u64 = 4096;

/// Sort of an object, the lowest byte of its tag on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sort {
    /// Memory of `cuMemAlloc`.
    Linear = 1,
    /// A physical allocation of `cuMemCreate`.
    Physical,
    /// A pool, without bytes.
    Pool,
    PoolBlock,
    /// A file from outside, memory of another interface.
    Foreign,
}

impl Sort {
    /// Whether an object is of this sort.
    pub(crate) fn is_of(self, object: &Object) -> bool {
        object.tag & 0xff == self as u64
    }
}

/// A hold of an object, released on drop.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Id on the machine.
    pub(crate) id: ObjectId,
    pub(crate) device: &'static Device,
    pub(crate) bytes: u64,
    /// Tag that its maker gave it, the [`Sort`] first.
    pub(crate) tag: u64,
    contents: File,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Ok(process) = process() {
            process.client.object_release(self.id);
        }
    }
}

impl Shared {
    /// Holds an object of another process; `maker` must still hold it. Errors: `CUDA_ERROR_INVALID_HANDLE` if it is
    /// gone, `CUDA_ERROR_INVALID_VALUE` if it is of another sort or on a GPU that is not visible,
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the machine's table of holders is full.
    pub(crate) fn hold(id: ObjectId, maker: Option<u64>, sort: Sort) -> Result<Shared, CUerror> {
        let client = &process()?.client;
        let object = client.object_hold(id, maker).map_err(|refused| match refused {
            Refused::Gone => CUerror::INVALID_HANDLE,
            _ => CUerror::OUT_OF_MEMORY,
        })?;
        Shared::of(&object)
            .and_then(|shared| if sort.is_of(&object) { Ok(shared) } else { Err(CUerror::INVALID_VALUE) })
    }

    /// Takes over a hold of the client; releases it on failure.
    fn of(object: &Object) -> Result<Shared, CUerror> {
        let process = process()?;
        let devices = &process.devices;
        let device = devices.iter().find(|device| device.gpu == object.gpu);
        let contents = process.client.object_contents(object.id);
        match (device, contents) {
            (Some(device), Ok(contents)) => {
                Ok(Shared { id: object.id, device, bytes: object.bytes, tag: object.tag, contents })
            }
            (device, _) => {
                process.client.object_release(object.id);
                Err(match device {
                    Some(_) => CUerror::OPERATING_SYSTEM,
                    None => CUerror::INVALID_VALUE,
                })
            }
        }
    }

    /// Makes an object of memory that this process has taken. Error: `CUDA_ERROR_OUT_OF_MEMORY` if the machine or its
    /// disk is full.
    pub(crate) fn make(device: &'static Device, bytes: u64, tag: u64) -> Result<Shared, CUerror> {
        let client = &process()?.client;
        let id = client.object_make(device.gpu, bytes, tag).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        match client.object_contents(id) {
            Ok(contents) => Ok(Shared { id, device, bytes, tag, contents }),
            Err(_) => {
                client.object_unmake(id);
                Err(CUerror::OPERATING_SYSTEM)
            }
        }
    }

    /// Takes memory as an object.
    pub(crate) fn create(device: &'static Device, bytes: u64, tag: u64) -> Result<Shared, CUerror> {
        let client = &process()?.client;
        let id = crate::object::backing::take_by(device, || client.object_create(device.gpu, bytes, tag))?;
        let gpu = device.gpu;
        Shared::of(&Object { id, gpu, bytes, tag })
    }

    pub(crate) fn contents(&self) -> BorrowedFd<'_> {
        self.contents.as_fd()
    }

    /// A descriptor for other processes. The object lives while it or a duplicate is open anywhere.
    pub(crate) fn export(&self) -> Result<OwnedFd, CUerror> {
        let file = process()?.client.object_export(self.id);
        file.map(OwnedFd::from).map_err(|_| CUerror::OPERATING_SYSTEM)
    }

    /// A dma-buf, which keeps the object likewise.
    pub(crate) fn export_range(&self) -> Result<OwnedFd, CUerror> {
        let file = process()?.client.object_export_range(self.id);
        file.map(OwnedFd::from).map_err(|_| CUerror::OPERATING_SYSTEM)
    }

    /// Holds memory of another interface, given as a file. Its first `bytes` are taken from the device with the first
    /// hold in any process. Errors: `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if others hold fewer bytes
    /// of it.
    pub(crate) fn foreign(device: &'static Device, bytes: u64, contents: File) -> Result<Shared, CUerror> {
        let client = &process()?.client;
        let tag = Sort::Foreign as u64;
        let object = crate::object::backing::take_by(device, || {
            let hold = || client.object_of_file(&contents, device.gpu, bytes, tag);
            // Another process may be making it an object at this moment.
            hold().or_else(|refused| if refused == Refused::Gone { hold() } else { Err(refused) })
        })?;
        let shared = Shared { id: object.id, device, bytes: object.bytes, tag, contents };
        if object.bytes < bytes {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(shared)
    }
}

/// The error of functions that call an invalid handle an invalid value.
pub(crate) fn as_invalid_value(error: CUerror) -> CUerror {
    if error == CUerror::INVALID_HANDLE { CUerror::INVALID_VALUE } else { error }
}

/// Addresses of an arena that map a part of an object.
#[derive(Debug)]
struct Range {
    shared: Arc<Shared>,
    /// Start (which may be before the range) and length of the mapping, in whole pages.
    start: u64,
    length: u64,
}

/// The object of an exported descriptor, which is not consumed. Error: `CUDA_ERROR_INVALID_VALUE` for any other
/// descriptor, or none.
pub(crate) fn object_of(descriptor: i32) -> Result<ObjectId, CUerror> {
    let object = process()?.client.object_of_descriptor(&duplicate(descriptor)?);
    object.ok_or(CUerror::INVALID_VALUE)
}

/// A descriptor of the same open file. Error: `CUDA_ERROR_INVALID_VALUE` for an invalid descriptor.
pub(crate) fn duplicate(descriptor: i32) -> Result<File, CUerror> {
    // SAFETY: a number that is no descriptor is an error, and nothing else is touched.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the descriptor just made, owned by no other code.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// Address ranges that map an object, by first address.
static RANGES: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());

/// Whether the range at `base` maps an object. The object is not returned, as the reference could outlive a release in
/// another thread.
pub(crate) fn is_shared(base: u64) -> bool {
    RANGES.lock().contains_key(&base)
}

/// Turns a range of taken memory into an object. Its contents stay if no other thread writes to it meanwhile, see
/// `semantics::memory::share`.
pub(crate) fn share(
    device: &'static Device,
    base: u64,
    bytes: u64,
    tag: u64,
) -> Result<Arc<Shared>, CUerror> {
    let mut ranges = RANGES.lock();
    if let Some(range) = ranges.get(&base) {
        return Ok(Arc::clone(&range.shared));
    }
    let shared = Arc::new(Shared::make(device, bytes, tag)?);
    let moved =
        copy_out(base, bytes, &shared.contents).and_then(|()| map(base, bytes, Some((shared.contents(), 0))));
    if moved.is_err() {
        unmake(shared);
        return Err(CUerror::MAP_FAILED);
    }
    let range = Range { shared: Arc::clone(&shared), start: base, length: bytes };
    ranges.insert(base, range);
    Ok(shared)
}

/// Maps an object of another process into its device's arena. Errors: `CUDA_ERROR_OUT_OF_MEMORY` without address space,
/// `CUDA_ERROR_MAP_FAILED`.
pub(crate) fn import(shared: Shared) -> Result<u64, CUerror> {
    let bytes = shared.bytes;
    show(&Arc::new(shared), 0, bytes)
}

/// Maps `bytes` of an object from `offset` on into its device's arena.
pub(crate) fn show(shared: &Arc<Shared>, offset: u64, bytes: u64) -> Result<u64, CUerror> {
    let arena = &shared.device.arena;
    let before = offset % PAGE;
    let length = before + bytes;
    let start = arena.take(length).ok_or(CUerror::OUT_OF_MEMORY)?;
    if let Err(error) = map(start, length, Some((shared.contents(), offset - before))) {
        arena.give(start, length);
        return Err(error);
    }
    let range = Range { shared: Arc::clone(shared), start, length };
    RANGES.lock().insert(start + before, range);
    Ok(start + before)
}

/// Unmaps an object made by another process or interface, and frees the addresses.
pub(crate) fn end(base: u64) {
    let range = RANGES.lock().remove(&base);
    if let Some(range) = range {
        // If this fails, the addresses still map the object, which does no harm.
        let _ = map(range.start, range.length, None);
        range.shared.device.arena.give(range.start, range.length);
    }
}

/// Replaces the mapping of an object in this process's own memory by private memory. Returns the object.
pub(crate) fn hide(base: u64) -> Option<Arc<Shared>> {
    let range = RANGES.lock().remove(&base)?;
    // As above.
    let _ = map(base, range.length, None);
    Some(range.shared)
}

/// Turns an object into plain memory of this process, if no other process holds it. Returns whether it did.
pub(crate) fn unmake(shared: Arc<Shared>) -> bool {
    let Some(shared) = Arc::into_inner(shared) else {
        return false;
    };
    let Ok(process) = process() else { return false };
    let is_own = process.client.object_unmake(shared.id);
    // The hold has ended already.
    core::mem::forget(shared);
    is_own
}

/// Maps a file from an offset on, or private memory, at an address.
fn map(address: u64, bytes: u64, file: Option<(BorrowedFd<'_>, u64)>) -> CUresult {
    let length = bytes.next_multiple_of(PAGE) as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    let flags = kind | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let (descriptor, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
    // SAFETY: callers pass a range of an arena that is theirs; arenas give out whole pages.
    let got = unsafe {
        libc::mmap(address as *mut c_void, length, protection, flags, descriptor, offset as libc::off_t)
    };
    if got == libc::MAP_FAILED {
        return Err(CUerror::MAP_FAILED);
    }
    // SAFETY: the mapping just made.
    unsafe { libc::madvise(got, length, libc::MADV_DONTDUMP) };
    Ok(())
}

/// Copies a range to a file of zeros. Pages that were never touched are zero and not read.
fn copy_out(base: u64, bytes: u64, to: &File) -> CUresult {
    use std::os::unix::fs::FileExt;
    const CHUNK: u64 = 512;
    let pages = bytes.div_ceil(PAGE);
    let map = File::open("/proc/self/pagemap").map_err(|_| CUerror::OPERATING_SYSTEM)?;
    let mut entries = [0; CHUNK as usize * 8];
    for first in (0..pages).step_by(CHUNK as usize) {
        let entries = &mut entries[..(pages - first).min(CHUNK) as usize * 8];
        map.read_exact_at(entries, (base / PAGE + first) * 8).map_err(|_| CUerror::OPERATING_SYSTEM)?;
        for (page, entry) in (first..).zip(entries.as_chunks::<8>().0) {
            // Present, or swapped out (Documentation/admin-guide/mm/pagemap.rst).
            if u64::from_ne_bytes(*entry) >> 62 == 0 {
                continue;
            }
            let start = page * PAGE;
            let length = PAGE.min(bytes - start) as usize;
            // SAFETY: inside the range, which is memory of this process.
            let page = unsafe { core::slice::from_raw_parts((base + start) as *const u8, length) };
            to.write_all_at(page, start).map_err(|_| CUerror::OPERATING_SYSTEM)?;
        }
    }
    Ok(())
}
