//! Memory kept for later use, held by pools and graphs beyond what is in use.
//!
//! A [`Reserve`] counts bytes in use and bytes taken from the machine. Taken memory grows with use, and is freed only at
//! documented times (a synchronisation, a trim, a shortage).

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::CUerror;
use vcuda_machine::Refused;

use crate::object::device::Device;
use crate::object::process::process;

/// Unit in which a pool takes memory from the machine (bytes), the size of a large page (docs/hardware.md, "pools'
/// memory").
const STEP: u64 = 2 << 20;

/// Amounts of memory (bytes).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// In use.
    pub(crate) used: u64,
    /// Maximum in use since the last reset.
    pub(crate) used_high: u64,
    /// Taken from the machine.
    pub(crate) reserved: u64,
    /// Maximum taken since the last reset.
    pub(crate) reserved_high: u64,
}

static RESERVES: Mutex<Vec<Weak<Reserve>>> = Mutex::new(Vec::new());

/// A reserve of memory on one device.
#[derive(Debug)]
pub(crate) struct Reserve {
    device: &'static Device,
    is_managed: bool,
    counts: Mutex<Counts>,
}

impl Reserve {
    pub(crate) fn new(device: &'static Device, is_managed: bool) -> Arc<Reserve> {
        let reserve = Arc::new(Reserve { device, is_managed, counts: Mutex::default() });
        let mut all = RESERVES.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&reserve));
        reserve
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    /// "Resets the high watermark" to the current value (`CU_MEMPOOL_ATTR_*_MEM_HIGH` set to 0).
    pub(crate) fn reset_marks(&self, used: bool, reserved: bool) {
        let mut counts = self.counts.lock();
        if used {
            counts.used_high = counts.used;
        }
        if reserved {
            counts.reserved_high = counts.reserved;
        }
    }

    /// Puts bytes into use, from the reserve or newly taken, with at most `limit` taken. Error:
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with nothing changed.
    pub(crate) fn begin_use(&self, bytes: u64, limit: u64) -> Result<(), CUerror> {
        let mut counts = self.counts.lock();
        let used = counts.used.checked_add(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if used > counts.reserved {
            let wanted =
                used.checked_next_multiple_of(STEP).ok_or(CUerror::OUT_OF_MEMORY)?.min(limit.max(used));
            if wanted > limit {
                return Err(CUerror::OUT_OF_MEMORY);
            }
            let (client, gpu) = (&process()?.client, self.device.gpu);
            let more = wanted - counts.reserved;
            let taken = if self.is_managed { client.take_managed(gpu, more) } else { client.take(gpu, more) };
            taken.map_err(|_| CUerror::OUT_OF_MEMORY)?;
            counts.reserved = wanted;
        }
        counts.used = used;
        counts.used_high = counts.used_high.max(used);
        counts.reserved_high = counts.reserved_high.max(counts.reserved);
        Ok(())
    }

    /// Takes as much as is needed to put so many further bytes into use. Error: `CUDA_ERROR_OUT_OF_MEMORY`, with
    /// nothing changed.
    pub(crate) fn hold(&self, bytes: u64) -> Result<(), CUerror> {
        let (used, used_high) = {
            let counts = self.counts.lock();
            (counts.used, counts.used_high)
        };
        self.begin_use(bytes, u64::MAX)?;
        let mut counts = self.counts.lock();
        counts.used = counts.used.saturating_sub(bytes);
        counts.used_high = used_high.max(used);
        Ok(())
    }

    /// Ends the use of bytes, which stay in the reserve.
    pub(crate) fn end_use(&self, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.used = counts.used.saturating_sub(bytes);
    }

    /// Removes bytes that now belong to another process.
    pub(crate) fn lose(&self, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.reserved = counts.reserved.saturating_sub(bytes);
    }

    /// Frees unused memory beyond `keep`. Returns whether there was any.
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

/// Takes device memory. If it is short, unused memory of this process's pools and graphs is freed first (CUDA C++
/// Programming Guide, "Stream Ordered Memory Allocator": the driver reclaims unused pool memory for other allocations of
/// the process; graphs: docs/hardware.md, "memory when it is short").
pub(crate) fn take(device: &'static Device, bytes: u64) -> Result<(), CUerror> {
    let client = &process()?.client;
    take_by(device, || client.take(device.gpu, bytes))
}

/// As [`take`], for managed memory.
pub(crate) fn take_managed(device: &'static Device, bytes: u64) -> Result<(), CUerror> {
    let client = &process()?.client;
    take_by(device, || client.take_managed(device.gpu, bytes))
}

/// As [`take`], with a function that takes the memory.
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

/// Frees all unused memory of pools and graphs on a device. Returns whether there was any.
pub(crate) fn release_unused(device: &'static Device) -> bool {
    let mut all: Vec<Arc<Reserve>> = RESERVES.lock().iter().filter_map(Weak::upgrade).collect();
    all.retain(|reserve| reserve.device.gpu == device.gpu);
    all.iter().filter(|reserve| reserve.trim(0)).count() > 0
}
