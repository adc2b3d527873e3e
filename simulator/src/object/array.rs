//! Arrays and mipmapped arrays (CUDA Driver API, "Memory Management").
//!
//! `texels.rs` computes the sizes. Rows of an array are consecutive, without padding. A real array's layout and size are
//! opaque ("CUDA arrays are opaque memory layouts"): here the size is that of its texels, rounded up.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind as HandleKind, Table};
use crate::object::context::Context;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};
use crate::object::process::process;
use crate::object::sparse::Mapped;
use crate::object::texels::{check, level_bytes, level_descriptor, texel_bytes};

/// All arrays, including levels of mipmapped arrays that were requested.
pub(crate) static ARRAYS: Table<Array> = Table::new(HandleKind::Array);
pub(crate) static MIPMAPS: Table<Mipmap> = Table::new(HandleKind::MipmappedArray);

/// Unit of an array's memory (bytes; docs/hardware.md, "arrays' memory"); `cuArrayGetMemoryRequirements` returns the same.
pub(crate) const ALIGNMENT: u64 = 64 << 10;

/// Memory shared by arrays, freed with the last user.
#[derive(Debug)]
pub(crate) struct Storage {
    device: &'static Device,
    /// `Context::unique` of the owner.
    context: u64,
    /// First address of the contents.
    base: u64,
    /// Mappings, if the array's memory is mapped later (`sparse.rs`).
    mapped: Option<Mutex<Mapped>>,
}

/// Kind of address ranges for contents that are not charged.
const UNPAID: Kind = Kind::Mapped(0);

impl Drop for Storage {
    fn drop(&mut self) {
        let kind = if self.mapped.is_some() { UNPAID } else { Kind::Global };
        let Ok(process) = process() else { return };
        // Memory of another interface does not belong to the array.
        if crate::object::external::free(self.base).is_ok() {
            return;
        }
        let Some(range) = memory::remove(self.base, |found| found == kind) else {
            return;
        };
        if self.mapped.is_some() {
            self.device.arena.give(range.base, range.bytes);
        } else {
            memory::release(process, &range);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Array {
    /// As the program described it.
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    storage: Arc<Storage>,
    /// Offset in the storage: levels of a mipmapped array are consecutive.
    offset: u64,
    /// Whether it is a level, which ends with its mipmapped array and not by `cuArrayDestroy`.
    pub(crate) is_level: bool,
}

impl Array {
    /// Makes an array. Its memory is taken from the context's device. Errors: `CUDA_ERROR_INVALID_VALUE` for an
    /// impossible description, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn create(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, context: &Context) -> Result<Array, CUerror> {
        let bytes = check(descriptor, 1)?;
        let storage = Storage::create(bytes, descriptor.Flags, context)?;
        Ok(Array { descriptor: *descriptor, storage, offset: 0, is_level: false })
    }

    pub(crate) fn row_bytes(&self) -> u64 {
        self.descriptor.Width as u64 * texel_bytes(&self.descriptor).unwrap_or(0)
    }

    /// Number of rows of a slice.
    pub(crate) fn rows(&self) -> u64 {
        self.descriptor.Height.max(1) as u64
    }

    /// Number of slices or layers.
    pub(crate) fn slices(&self) -> u64 {
        self.descriptor.Depth.max(1) as u64
    }

    /// First address of its memory. Error: `CUDA_ERROR_INVALID_VALUE` while nothing is mapped into it.
    pub(crate) fn base(&self) -> Result<u64, CUerror> {
        let is_empty = |mapped: &Mutex<Mapped>| mapped.lock().is_empty();
        if self.storage.mapped.as_ref().is_some_and(is_empty) {
            Err(CUerror::INVALID_VALUE)
        } else {
            Ok(self.storage.base + self.offset)
        }
    }

    pub(crate) fn storage(&self) -> Arc<Storage> {
        Arc::clone(&self.storage)
    }

    pub(crate) fn device(&self) -> &'static Device {
        self.storage.device
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.row_bytes() * self.rows() * self.slices()
    }
}

#[derive(Debug)]
pub(crate) struct Mipmap {
    /// As the program described it.
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    storage: Arc<Storage>,
    /// Handle of each level's array; 0 until asked for.
    levels: Mutex<Vec<usize>>,
}

impl Mipmap {
    /// Makes all levels; "the number of levels is clamped to 1 + floor(log2(max(width, height, depth)))".
    pub(crate) fn create(
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
        context: &Context,
    ) -> Result<Mipmap, CUerror> {
        Mipmap::on(descriptor, levels, |bytes| Storage::create(bytes, descriptor.Flags, context))
    }

    /// A mipmapped array on memory of another interface; `base` maps the given number of bytes. Error: as
    /// [`Array::create`], and those of `base`.
    pub(crate) fn external(
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
        context: &Context,
        base: impl FnOnce(u64) -> Result<u64, CUerror>,
    ) -> Result<Mipmap, CUerror> {
        Mipmap::on(descriptor, levels, |bytes| {
            Ok(Arc::new(Storage {
                device: context.device,
                context: context.unique,
                base: base(bytes)?,
                mapped: None,
            }))
        })
    }

    fn on(
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
        storage: impl FnOnce(u64) -> Result<Arc<Storage>, CUerror>,
    ) -> Result<Mipmap, CUerror> {
        let largest = descriptor.Width.max(descriptor.Height).max(descriptor.Depth).max(1);
        let levels = levels.clamp(1, 1 + largest.ilog2());
        let storage = storage(check(descriptor, levels)?)?;
        Ok(Mipmap { descriptor: *descriptor, storage, levels: Mutex::new(vec![0; levels as usize]) })
    }

    /// The handle of a level's array. Error: `CUDA_ERROR_INVALID_VALUE` for a level that does not exist.
    pub(crate) fn level(&self, level: u32) -> Result<usize, CUerror> {
        let mut levels = self.levels.lock();
        let handle = levels.get_mut(level as usize).ok_or(CUerror::INVALID_VALUE)?;
        if *handle == 0 {
            let offset = (0..level).map(|lower| level_bytes(&self.descriptor, lower).unwrap_or(0)).sum();
            *handle = ARRAYS.insert(Array {
                descriptor: level_descriptor(&self.descriptor, level),
                storage: Arc::clone(&self.storage),
                offset,
                is_level: true,
            });
        }
        Ok(*handle)
    }

    /// Ends the handles of its levels.
    pub(crate) fn end_levels(&self) {
        for handle in self.levels.lock().drain(..) {
            ARRAYS.remove(handle);
        }
    }

    pub(crate) fn storage(&self) -> Arc<Storage> {
        Arc::clone(&self.storage)
    }

    pub(crate) fn level_count(&self) -> u32 {
        self.levels.lock().len() as u32
    }

    /// Size of all levels (bytes).
    pub(crate) fn bytes(&self) -> u64 {
        (0..self.level_count()).filter_map(|level| level_bytes(&self.descriptor, level)).sum()
    }
}

impl Storage {
    fn create(bytes: u64, flags: u32, context: &Context) -> Result<Arc<Storage>, CUerror> {
        let device = context.device;
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(CUerror::OUT_OF_MEMORY)?;
        let (base, mapped) = if flags & (CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_SPARSE) == 0 {
            (memory::allocate(bytes, Kind::Global, device, None)?, None)
        } else {
            let base = device.arena.take(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
            let range = memory::insert(base, bytes, UNPAID, device, None);
            range.access.store(memory::READ_WRITE, Ordering::Relaxed);
            (base, Some(Mutex::default()))
        };
        Ok(Arc::new(Storage { device, context: context.unique, base, mapped }))
    }

    /// Changes the mappings of an array with memory mapped later.
    pub(crate) fn change_mappings(&self, change: impl FnOnce(&mut Mapped)) {
        if let Some(mapped) = &self.mapped {
            change(&mut mapped.lock());
        }
    }
}

/// Ends the arrays of an ending context.
pub(crate) fn forget_context(context: &Context) {
    for handle in MIPMAPS.handles(|mipmap| mipmap.storage.context == context.unique) {
        if let Some(mipmap) = MIPMAPS.remove(handle) {
            mipmap.end_levels();
        }
    }
    for handle in ARRAYS.handles(|array| array.storage.context == context.unique) {
        ARRAYS.remove(handle);
    }
}

pub(crate) fn array(handle: usize) -> Result<Arc<Array>, CUerror> {
    process()?;
    ARRAYS.get(handle).ok_or(CUerror::INVALID_HANDLE)
}
