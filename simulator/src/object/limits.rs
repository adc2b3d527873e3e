//! Memory of a context for its kernels in addition to `context_bytes`: local memory, the heap of `malloc`, the buffer of
//! `printf` (CUDA Driver API, `cuCtxSetLimit`; CUDA C++ Programming Guide, "Local Memory", "Dynamic Global Memory
//! Allocation and Operations").
//!
//! docs/hardware.md, "limits of a context": `context_bytes` covers the default limits. Beyond them, heap and buffer take
//! their size, and local memory takes a thread's stack times all resident threads. Memory is taken when a limit is set and
//! freed when it is lowered. A kernel that needs more local memory than the stack takes the difference at its first launch,
//! until the context ends; kernels of graphs do not. Green contexts share their primary context's.

use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::object::attributes::THREADS_PER_MULTIPROCESSOR;
use crate::object::device::Device;
use crate::object::process::process;

/// Defaults by `CUlimit`: stack size, printf buffer, malloc heap (bytes, from the CUDA documentation), runtime
/// synchronisation depth, pending launches, L2 fetch granularity (bytes), persisting L2 (bytes), an unused one. The
/// undocumented ones: docs/hardware.md, "limits of a context".
const DEFAULTS: [u64; 8] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0];

/// Limits of a context and their memory.
#[derive(Debug)]
pub(crate) struct Limits {
    device: &'static Device,
    /// Values by `CUlimit`.
    values: [AtomicU64; DEFAULTS.len()],
    /// Local memory per thread that kernels needed beyond the stack (bytes).
    local: AtomicU64,
    /// Memory taken (bytes). The lock serialises changes.
    taken: Mutex<u64>,
}

impl Limits {
    /// Default limits, which cost nothing.
    pub(crate) fn new(device: &'static Device) -> Limits {
        Limits {
            device,
            values: DEFAULTS.map(AtomicU64::new),
            local: AtomicU64::new(0),
            taken: Mutex::new(0),
        }
    }

    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values[index].load(Ordering::Relaxed)
    }

    /// Sets a limit. Errors: `CUDA_ERROR_OUT_OF_MEMORY`; the limit is then unchanged.
    pub(crate) fn set(&self, index: usize, value: u64) -> CUresult {
        let mut taken = self.taken.lock();
        let mut values = DEFAULTS;
        for (place, known) in values.iter_mut().zip(&self.values) {
            *place = known.load(Ordering::Relaxed);
        }
        values[index] = value;
        self.pay(&mut taken, &values, self.local.load(Ordering::Relaxed))?;
        self.values[index].store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Takes memory for a kernel with this much local memory per thread (bytes).
    #[inline]
    pub(crate) fn reserve_local(&self, bytes: u64) -> CUresult {
        if bytes <= self.local.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut taken = self.taken.lock();
        let values = [0, 1, 2].map(|index| self.get(index));
        self.pay(&mut taken, &values, bytes)?;
        self.local.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn pay(&self, taken: &mut u64, values: &[u64], local: u64) -> CUresult {
        let cost = self.cost(values, local).ok_or(CUerror::OUT_OF_MEMORY)?;
        if cost > *taken {
            crate::object::backing::take(self.device, cost - *taken)?;
        } else if cost < *taken {
            process()?.client.give(self.device.gpu, *taken - cost);
        }
        *taken = cost;
        Ok(())
    }

    /// Cost beyond the defaults (bytes); `None` for impossible numbers.
    fn cost(&self, values: &[u64], local: u64) -> Option<u64> {
        let beyond = |index: usize| values[index].saturating_sub(DEFAULTS[index]);
        let per_thread = beyond(0).max(local.saturating_sub(DEFAULTS[0]));
        let threads =
            u64::from(self.device.config.sms) * u64::from(THREADS_PER_MULTIPROCESSOR.unsigned_abs());
        per_thread.checked_mul(threads)?.checked_add(beyond(1))?.checked_add(beyond(2))
    }

    /// Frees the memory, as the context ends.
    pub(crate) fn end(&self) {
        let taken = core::mem::take(&mut *self.taken.lock());
        if taken > 0
            && let Ok(process) = process()
        {
            process.client.give(self.device.gpu, taken);
        }
    }
}

/// Local memory per thread in every context (bytes), enough for launches that need no more.
pub(crate) const DEFAULT_LOCAL_BYTES: u32 = 1024;
