//! Memory that a context takes for its kernels beside `context_bytes`: local memory, the heap of `malloc`, the buffer
//! of `printf` (CUDA Driver API, `cuCtxSetLimit`; CUDA C++ Programming Guide, "Local Memory", "Dynamic Global Memory
//! Allocation and Operations").
//!
//! docs/hardware.md, "limits of a context": `context_bytes` covers the default limits. Beyond them the heap and the
//! buffer take their size, and local memory takes the stack of a thread times all threads that can be resident; taken
//! when the limit is set, given back when it is lowered. A kernel that needs more local memory than the stack has
//! takes the difference at its first launch, until the context ends; kernels of graphs do not. Green contexts share
//! what their primary context has.

use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::object::attributes::THREADS_PER_MULTIPROCESSOR;
use crate::object::device::Device;
use crate::object::process::process;

/// By `CUlimit`: stack size, printf buffer, malloc heap (bytes; the values that the CUDA documentation
/// names as defaults), runtime synchronisation depth, pending launches, L2 fetch granularity (bytes),
/// persisting L2 (bytes), an unused one. docs/hardware.md, "limits of a context", where the documentation is silent.
const DEFAULTS: [u64; 8] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0];

/// The limits of a context and what they cost.
#[derive(Debug)]
pub(crate) struct Limits {
    device: &'static Device,
    /// By `CUlimit`.
    values: [AtomicU64; DEFAULTS.len()],
    /// Local memory per thread that kernels have needed beyond the stack, bytes.
    local: AtomicU64,
    /// Bytes taken. The lock makes changes follow one another.
    taken: Mutex<u64>,
}

impl Limits {
    /// The defaults, which cost nothing.
    pub(crate) fn new(device: &'static Device) -> Limits {
        Limits {
            device,
            values: DEFAULTS.map(AtomicU64::new),
            local: AtomicU64::new(0),
            taken: Mutex::new(0),
        }
    }

    /// A limit's value.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values[index].load(Ordering::Relaxed)
    }

    /// Sets a limit.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with the limit as it was.
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

    /// A kernel is launched that needs so much local memory per thread, bytes.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    #[inline]
    pub(crate) fn need_local(&self, bytes: u64) -> CUresult {
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

    /// Bytes beyond what the defaults take; none for impossible numbers.
    fn cost(&self, values: &[u64], local: u64) -> Option<u64> {
        let beyond = |index: usize| values[index].saturating_sub(DEFAULTS[index]);
        let per_thread = beyond(0).max(local.saturating_sub(DEFAULTS[0]));
        let threads =
            u64::from(self.device.config.sms) * u64::from(THREADS_PER_MULTIPROCESSOR.unsigned_abs());
        per_thread
            .checked_mul(threads)?
            .checked_add(beyond(1))?
            .checked_add(beyond(2))
    }

    /// The context ends.
    pub(crate) fn end(&self) {
        let taken = core::mem::take(&mut *self.taken.lock());
        if taken > 0
            && let Ok(process) = process()
        {
            process.client.give(self.device.gpu, taken);
        }
    }
}

/// Local memory per thread that every context has (bytes): a launch within it needs no more.
pub(crate) const DEFAULT_LOCAL_BYTES: u32 = 1024;
