//! Virtual memory management (CUDA Driver API, "Virtual Memory Management"): physical allocations. `mapping.rs` has
//! reserved addresses and mappings.
//!
//! A physical allocation is a file, which `cuMemMap` maps over reserved addresses. It is charged until "all outstanding
//! mappings to it have been unmapped and all outstanding references to the handle have been released" (`cuMemRelease`), and
//! "all shareable handles are closed" (`cuMemExportToShareableHandle`). An exportable allocation is an object of the
//! machine from the beginning.

pub(crate) mod mapping;

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::ObjectId;

use crate::base::table::{Kind as HandleKind, Table};
use crate::object::device::Device;
use crate::object::memory::{Allocation, Kind};
use crate::object::multicast::Team;
use crate::object::process::process;
use crate::object::sharing::{self, Shared, Sort};

/// Unit of sizes and addresses (bytes), the size of a large page.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// All physical allocations with a handle or a mapping.
static PHYSICALS: Table<Physical> = Table::new(HandleKind::Allocation);

#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) handle: usize,
    pub(crate) device: &'static Device,
    pub(crate) bytes: u64,
    /// Properties given at its creation.
    pub(crate) properties: CUmemAllocationProp,
    /// Set for a multicast object.
    pub(crate) team: Option<Team>,
    memory: Memory,
    users: Mutex<Users>,
}

/// Kind of an allocation's memory.
#[derive(Debug)]
enum Memory {
    /// A memory file of this process alone.
    Own(OwnedFd),
    /// The same without charge, for multicast objects.
    Unpaid(OwnedFd),
    /// An object of the machine, made here or imported.
    Shared(Shared),
}

// SAFETY: the raw pointer in `properties` is a number that is handed back, never followed.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

/// References to an allocation.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    handles: u32,
    mappings: u32,
}

impl Users {
    /// Adds a handle; false if the last reference, and so the allocation, has ended.
    fn retain(&mut self) -> bool {
        let lives = !self.are_gone();
        self.handles += u32::from(lives);
        lives
    }

    fn are_gone(self) -> bool {
        self.handles == 0 && self.mappings == 0
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if matches!(self.memory, Memory::Own(_))
            && let Ok(process) = process()
        {
            process.client.give(self.device.gpu, self.bytes);
        }
    }
}

impl Physical {
    /// Makes an allocation, with memory.
    pub(crate) fn create(
        device: &'static Device,
        bytes: u64,
        properties: CUmemAllocationProp,
    ) -> Result<usize, CUerror> {
        let memory = if properties.requestedHandleTypes == CUmemAllocationHandleType::NONE {
            let file = memory_file(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
            crate::object::backing::take(device, bytes)?;
            Memory::Own(file)
        } else {
            Memory::Shared(Shared::create(device, bytes, tag(&properties))?)
        };
        Ok(Physical::keep(device, bytes, properties, memory, None))
    }

    /// Makes a multicast object. Error: `CUDA_ERROR_OUT_OF_MEMORY` if the process has no more descriptors.
    pub(crate) fn create_unpaid(bytes: u64, team: Team) -> Result<usize, CUerror> {
        let device = crate::object::process::device(0)?;
        let properties = CUmemAllocationProp {
            requestedHandleTypes: CUmemAllocationHandleType::NONE,
            ..device_properties(device.ordinal)
        };
        let file = memory_file(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        Ok(Physical::keep(device, bytes, properties, Memory::Unpaid(file), Some(team)))
    }

    fn keep(
        device: &'static Device,
        bytes: u64,
        properties: CUmemAllocationProp,
        memory: Memory,
        team: Option<Team>,
    ) -> usize {
        let users = Mutex::new(Users { handles: 1, mappings: 0 });
        PHYSICALS.insert_with(|handle| Physical { handle, device, bytes, properties, team, memory, users }).0
    }

    /// A file descriptor that holds the same memory, to be closed by the caller. Errors: `CUDA_ERROR_INVALID_VALUE` for
    /// memory not made exportable; `CUDA_ERROR_OPERATING_SYSTEM` if the process has no more descriptors.
    pub(crate) fn export(&self) -> Result<OwnedFd, CUerror> {
        match &self.memory {
            Memory::Own(_) | Memory::Unpaid(_) => Err(CUerror::INVALID_VALUE),
            Memory::Shared(shared) => shared.export(),
        }
    }

    /// A dma-buf of the memory. Errors: `CUDA_ERROR_NOT_SUPPORTED` for memory not made exportable;
    /// `CUDA_ERROR_OPERATING_SYSTEM`.
    pub(crate) fn export_range(&self) -> Result<OwnedFd, CUerror> {
        match &self.memory {
            Memory::Own(_) | Memory::Unpaid(_) => Err(CUerror::NOT_SUPPORTED),
            Memory::Shared(shared) => shared.export_range(),
        }
    }

    fn contents(&self) -> BorrowedFd<'_> {
        match &self.memory {
            Memory::Own(file) | Memory::Unpaid(file) => file.as_fd(),
            Memory::Shared(shared) => shared.contents(),
        }
    }

    /// Its object on the machine, if it has one.
    fn object(&self) -> Option<ObjectId> {
        match &self.memory {
            Memory::Own(_) | Memory::Unpaid(_) => None,
            Memory::Shared(shared) => Some(shared.id),
        }
    }

    /// Adds a reference by handle; `None` if another thread has just ended the last one.
    pub(crate) fn retain(&self) -> Option<usize> {
        self.users.lock().retain().then_some(self.handle)
    }

    fn change(&self, change: impl FnOnce(&mut Users)) {
        let mut users = self.users.lock();
        change(&mut users);
        if users.are_gone() {
            drop(users);
            PHYSICALS.remove(self.handle);
        }
    }
}

/// A reference like that of a mapping: by tiles of sparse arrays, or by memory bound to a multicast object.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Physical>);

impl Hold {
    /// Holds the allocation until dropped.
    pub(crate) fn new(physical: Arc<Physical>) -> Hold {
        physical.change(|users| users.mappings += 1);
        Hold(physical)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.change(|users| users.mappings -= 1);
    }
}

/// The allocation behind a handle that has not been released.
pub(crate) fn physical(handle: u64) -> Result<Arc<Physical>, CUerror> {
    process()?;
    let physical = PHYSICALS.get(handle as usize).ok_or(CUerror::INVALID_VALUE)?;
    if physical.users.lock().handles == 0 { Err(CUerror::INVALID_VALUE) } else { Ok(physical) }
}

/// `cuMemRelease`.
pub(crate) fn release(handle: u64) -> Result<(), CUerror> {
    physical(handle)?.change(|users| users.handles -= 1);
    Ok(())
}

/// Imports a descriptor from [`Physical::export`] of any process. A second import in this process returns the same
/// handle ("there is no guarantee that the contents of handle will be the same"). Error: `CUDA_ERROR_INVALID_VALUE` for
/// any other descriptor, or memory of a GPU that this process does not see.
pub(crate) fn import(descriptor: i32) -> Result<usize, CUerror> {
    let object = sharing::object_of(descriptor)?;
    let mut known = PHYSICALS.all().into_iter().filter(|known| known.object() == Some(object));
    if let Some(handle) = known.find_map(|known| known.retain()) {
        return Ok(handle);
    }
    let shared = Shared::hold(object, None, Sort::Physical).map_err(sharing::as_invalid_value)?;
    let (device, bytes) = (shared.device, shared.bytes);
    let properties = properties(shared.tag, device.ordinal);
    Ok(Physical::keep(device, bytes, properties, Memory::Shared(shared), None))
}

/// Facts about an allocation for importers, as the object's tag.
fn tag(properties: &CUmemAllocationProp) -> u64 {
    let flags = &properties.allocFlags;
    Sort::Physical as u64
        | u64::from(properties.requestedHandleTypes.0 as u8) << 8
        | u64::from(flags.compressionType) << 16
        | u64::from(flags.gpuDirectRDMACapable) << 24
        | u64::from(flags.usage) << 32
}

/// Properties of plain memory on a device.
pub(crate) fn device_properties(ordinal: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        r#type: CUmemAllocationType::PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation { r#type: CUmemLocationType::DEVICE, id: ordinal },
        win32HandleMetaData: core::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_allocFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Properties stored in a [`tag`]. A device has another ordinal in each process.
fn properties(tag: u64, ordinal: i32) -> CUmemAllocationProp {
    let byte = |number: u32| (tag >> (8 * number)) as u8;
    let mut properties = device_properties(ordinal);
    properties.requestedHandleTypes = CUmemAllocationHandleType(u32::from(byte(1)));
    properties.allocFlags.compressionType = byte(2);
    properties.allocFlags.gpuDirectRDMACapable = byte(3);
    properties.allocFlags.usage = (tag >> 32) as u16;
    properties
}

fn memory_file(bytes: u64) -> Option<OwnedFd> {
    // Called by number: the function came with glibc 2.27, and images may have 2.17. SAFETY: the call makes a new file of
    // this name and touches nothing else.
    let answer = unsafe { libc::syscall(libc::SYS_memfd_create, c"vcuda-vmm".as_ptr(), libc::MFD_CLOEXEC) };
    let descriptor = RawFd::try_from(answer).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: the descriptor just made, owned by no other code.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let length = libc::off_t::try_from(bytes).ok()?;
    // SAFETY: sets the length of the file just made; it stays sparse.
    (unsafe { libc::ftruncate(descriptor, length) } == 0).then_some(file)
}

pub(crate) fn mapped(handle: u64) -> Option<Arc<Physical>> {
    PHYSICALS.get(handle as usize)
}

/// Value of `CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES`.
pub(crate) fn handle_types(of: &Allocation) -> u64 {
    let Kind::Mapped(handle) = of.kind else { return 0 };
    PHYSICALS.get(handle as usize).map_or(0, |physical| u64::from(physical.properties.requestedHandleTypes.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_whose_last_reference_has_ended_is_not_retained_again() {
        let mut users = Users { handles: 1, mappings: 1 };
        users.handles -= 1;
        assert!(users.retain(), "it is mapped");
        users.handles -= 1;
        users.mappings -= 1;
        assert!(users.are_gone() && !users.retain() && users.are_gone());
    }
}
