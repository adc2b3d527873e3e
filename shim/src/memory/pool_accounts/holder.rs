//! The driver's object that holds the memory of a pool account: its figures, and how it is trimmed.

use core::ffi::c_void;

use vcuda_driver_api::prelude::*;

use crate::driver::real;
use crate::runtime::shim::devices::Device;

/// The driver's object that holds the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// A pool of stream-ordered memory.
    Pool(CUmemoryPool),
    /// The graphs of the device.
    Graphs,
    /// A pool that was destroyed while some of its memory lived. It cannot be asked any more and ends with that
    /// memory.
    Orphan,
}

impl Holder {
    /// Bytes held; `None` if the driver cannot be asked.
    pub(super) fn held(self, device: &Device) -> Option<u64> {
        match self {
            Self::Pool(pool) => pool_figure(pool, CUmemPool_attribute::RESERVED_MEM_CURRENT),
            Self::Graphs => graph_figure(device, CUgraphMem_attribute::RESERVED_MEM_CURRENT),
            Self::Orphan => None,
        }
    }

    /// Bytes in use; `None` if the driver cannot be asked.
    pub(super) fn used(self, device: &Device) -> Option<u64> {
        match self {
            Self::Pool(pool) => pool_figure(pool, CUmemPool_attribute::USED_MEM_CURRENT),
            Self::Graphs => graph_figure(device, CUgraphMem_attribute::USED_MEM_CURRENT),
            Self::Orphan => None,
        }
    }

    /// Gives back what is not in use.
    pub(super) fn trim(self, device: &Device) {
        match self {
            // SAFETY: the pool is not destroyed while the pool account's lock is held.
            Self::Pool(pool) => drop(unsafe { real::cuMemPoolTrimTo(pool, 0) }),
            // SAFETY: an ordinal of the driver's own.
            Self::Graphs => drop(unsafe { real::cuDeviceGraphMemTrim(device.ordinal) }),
            Self::Orphan => {}
        }
    }
}

/// A pool's figure, by the driver; `None` if it knows no such pool or attribute.
#[inline]
pub(super) fn pool_figure(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
    let mut bytes = 0_u64;
    let place: *mut c_void = (&raw mut bytes).cast();
    // SAFETY: the driver writes 64 bits for these attributes, 32 for the type of memory, or nothing.
    unsafe { real::cuMemPoolGetAttribute(pool, attribute, place) }.ok()?;
    Some(bytes)
}

fn graph_figure(device: &Device, attribute: CUgraphMem_attribute) -> Option<u64> {
    let mut bytes = 0_u64;
    let place: *mut c_void = (&raw mut bytes).cast();
    // SAFETY: the driver writes 64 bits for these attributes or nothing.
    unsafe { real::cuDeviceGetGraphMemAttribute(device.ordinal, attribute, place) }.ok()?;
    Some(bytes)
}
