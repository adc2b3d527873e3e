//! Memory that is kept for later use: what pools and graphs hold beyond what is in use.
//!
//! A [`Reserve`] counts bytes in use and bytes taken from the machine. Use grows what is taken; giving back
//! happens at documented moments only (a synchronisation, a trim, a shortage).

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::CUerror;
use vcuda_machine::Refused;

use crate::object::device::Device;
use crate::object::process::process;

/// A pool takes memory from the machine in multiples of this (docs/hardware.md, "pools' memory"; the size of a large
/// page).
const STEP: u64 = 2 << 20;

/// Counts, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// In use.
    pub(crate) used: u64,
    /// Most in use since the mark was reset.
    pub(crate) used_high: u64,
    /// Taken from the machine.
    pub(crate) reserved: u64,
    /// Most taken since the mark was reset.
    pub(crate) reserved_high: u64,
}

/// All of this process.
static RESERVES: Mutex<Vec<Weak<Reserve>>> = Mutex::new(Vec::new());

/// Memory of one device that is held.
#[derive(Debug)]
pub(crate) struct Reserve {
    device: &'static Device,
    is_managed: bool,
    counts: Mutex<Counts>,
}

impl Reserve {
    /// Nothing held yet.
    pub(crate) fn new(device: &'static Device, is_managed: bool) -> Arc<Reserve> {
        let reserve = Arc::new(Reserve {
            device,
            is_managed,
            counts: Mutex::default(),
        });
        let mut all = RESERVES.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&reserve));
        reserve
    }

    /// The counts now.
    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    /// "Resets the high watermark": to the current value (`CU_MEMPOOL_ATTR_*_MEM_HIGH` set to 0).
    pub(crate) fn reset_marks(&self, used: bool, reserved: bool) {
        let mut counts = self.counts.lock();
        if used {
            counts.used_high = counts.used;
        }
        if reserved {
            counts.reserved_high = counts.reserved;
        }
    }

    /// Uses bytes: of what is held, else taken anew, never holding more than `limit`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with nothing changed.
    pub(crate) fn enter(&self, bytes: u64, limit: u64) -> Result<(), CUerror> {
        let mut counts = self.counts.lock();
        let used = counts.used.checked_add(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if used > counts.reserved {
            let wanted = used
                .checked_next_multiple_of(STEP)
                .ok_or(CUerror::OUT_OF_MEMORY)?
                .min(limit.max(used));
            if wanted > limit {
                return Err(CUerror::OUT_OF_MEMORY);
            }
            let (client, gpu) = (&process()?.client, self.device.gpu);
            let more = wanted - counts.reserved;
            let taken = if self.is_managed {
                client.take_managed(gpu, more)
            } else {
                client.take(gpu, more)
            };
            taken.map_err(|_| CUerror::OUT_OF_MEMORY)?;
            counts.reserved = wanted;
        }
        counts.used = used;
        counts.used_high = counts.used_high.max(used);
        counts.reserved_high = counts.reserved_high.max(counts.reserved);
        Ok(())
    }

    /// Takes what is needed to use so many bytes more.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with nothing changed.
    pub(crate) fn hold(&self, bytes: u64) -> Result<(), CUerror> {
        let (used, used_high) = {
            let counts = self.counts.lock();
            (counts.used, counts.used_high)
        };
        self.enter(bytes, u64::MAX)?;
        let mut counts = self.counts.lock();
        counts.used = counts.used.saturating_sub(bytes);
        counts.used_high = used_high.max(used);
        Ok(())
    }

    /// Ends the use of bytes, which stay held.
    pub(crate) fn leave(&self, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.used = counts.used.saturating_sub(bytes);
    }

    /// Bytes that were held are another process's now.
    pub(crate) fn lose(&self, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.reserved = counts.reserved.saturating_sub(bytes);
    }

    /// Gives back what is held beyond `keep` and not in use; whether there was any.
    pub(crate) fn trim(&self, keep: u64) -> bool {
        let mut counts = self.counts.lock();
        let kept = counts.used.max(keep);
        let kept = kept.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        if kept < counts.reserved
            && let Ok(process) = process()
        {
            let (gpu, less) = (self.device.gpu, counts.reserved - kept);
            if self.is_managed {
                process.client.give_managed(gpu, less);
            } else {
                process.client.give(gpu, less);
            }
            counts.reserved = kept;
            return true;
        }
        false
    }
}

/// Takes device memory; where it is short, what this process's pools and graphs hold unused is given back
/// first (CUDA C++ Programming Guide, "Stream Ordered Memory Allocator": the driver reclaims unused pool
/// memory for other allocations of the process; graphs: docs/hardware.md, "memory when it is short").
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn take(device: &'static Device, bytes: u64) -> Result<(), CUerror> {
    let client = &process()?.client;
    take_by(device, || client.take(device.gpu, bytes))
}

/// As [`take`], for managed memory.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn take_managed(device: &'static Device, bytes: u64) -> Result<(), CUerror> {
    let client = &process()?.client;
    take_by(device, || client.take_managed(device.gpu, bytes))
}

/// As [`take`], in the caller's way of taking.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn take_by<R>(
    device: &'static Device,
    taking: impl Fn() -> Result<R, Refused>,
) -> Result<R, CUerror> {
    match taking() {
        Err(Refused::OutOfMemory { .. }) if release_unused(device) => taking(),
        answer => answer,
    }
    .map_err(|_| CUerror::OUT_OF_MEMORY)
}

/// Gives back what all pools and graphs hold of a device unused; whether there was any.
pub(crate) fn release_unused(device: &'static Device) -> bool {
    let mut all: Vec<Arc<Reserve>> = RESERVES.lock().iter().filter_map(Weak::upgrade).collect();
    all.retain(|reserve| reserve.device.gpu == device.gpu);
    all.iter().filter(|reserve| reserve.trim(0)).count() > 0
}
