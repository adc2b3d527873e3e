//! Virtual memory management (CUDA Driver API, "Virtual Memory Management"): physical allocations.
//! `mapping.rs` has reserved addresses and what is mapped there, `vmm_api.rs` the exported functions.
//!
//! A physical allocation is a memory file; mapping it maps the file over the reserved addresses. It is charged
//! until "all outstanding mappings to it have been unmapped and all outstanding references to the handle have
//! been released" (`cuMemRelease`).

pub(crate) mod mapping;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::CUmemAllocationProp;

use crate::device::Device;
use crate::memory::{Allocation, Kind};
use crate::process::process;
use crate::table::{Kind as HandleKind, Table};

/// Sizes and addresses are multiples of this, bytes: the size of a large page.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// All physical allocations with a handle or a mapping.
static PHYSICALS: Table<Physical> = Table::new(HandleKind::Allocation);

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

/// `CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES`.
pub(crate) fn handle_types(of: &Allocation) -> u64 {
    let Kind::Mapped(handle) = of.kind else { return 0 };
    PHYSICALS.get(handle as usize).map_or(0, |physical| {
        u64::from(physical.properties.requestedHandleTypes.0)
    })
}
