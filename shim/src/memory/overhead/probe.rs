//! Probe contexts: throw-away contexts, made to measure.

use vcuda_driver_api::prelude::*;

use super::gpu;
use crate::driver::real;
use crate::memory::reserve::Reserved;
use crate::runtime::shim::devices::Device;

/// A short-lived context, current to no thread. Memory is reserved for it while it lives, so that it exceeds no quota
/// (I7) once the size of a context is known.
#[derive(Debug)]
pub(super) struct Probe {
    context: CUcontext,
    /// Dropped after the context has ended.
    reserved: Reserved,
}

impl Probe {
    /// Makes a probe; `None` if the quota has no room for it, or the driver makes none.
    pub(super) fn make(device: &'static Device) -> Option<Self> {
        let reserved = device.reserve_if_it_fits(device.most_context_bytes(false))?;
        let mut context = CUcontext::NULL;
        // SAFETY: the driver writes a handle or nothing.
        unsafe { real::cuCtxCreate_v2(&raw mut context, 0, device.ordinal) }.ok()?;
        let mut popped = CUcontext::NULL;
        // SAFETY: the new context was made current to this thread; it is not to stay so.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
        Some(Self { context, reserved })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: a context of the shim's own, which no other code knows.
        let _ = unsafe { real::cuCtxDestroy_v2(self.context) };
    }
}

/// Larger than any context: a larger difference is another process's doing (bytes).
pub(super) const LARGEST_CONTEXT_BYTES: u64 = 4 << 30;
/// Maximum number of probes for one figure.
const MAX_PROBES: usize = 6;
/// Largest excess of a difference over a known size that explains it (bytes): drivers hand out memory in such pages.
const PAGE_BYTES: u64 = 2 << 20;

/// Size of a context that was made (bytes), if `more_bytes` more are in use on the GPU than before; `None` if it cannot
/// be had. A process's first context (`is_first`) may take more than further ones.
///
/// If the size of the tenant's last context explains the growth, or the GPU does not tell, it is that size. Else probe
/// contexts tell, and their figure is noted for the tenant if it is larger. A known size is never lowered: too small a
/// charge exceeds the quota (I7), and too large a one is given back when NVML or the manager tells.
pub(super) fn context_size(device: &'static Device, is_first: bool, more_bytes: Option<u64>) -> Option<u64> {
    let known_bytes = device.context_bytes(is_first);
    let is_explained = more_bytes.is_none_or(|bytes| bytes <= known_bytes + PAGE_BYTES);
    if known_bytes > 0 && is_explained {
        return Some(known_bytes);
    }
    match probe_context(device) {
        Some(Probed::Agreed(bytes)) if bytes > known_bytes => {
            device.note_context(is_first, bytes);
            Some(bytes)
        }
        _ if known_bytes > 0 => Some(known_bytes),
        // The size of a context of the other kind is as good a guess, and is reserved.
        Some(Probed::Median(_)) if device.context_bytes(!is_first) > 0 => None,
        Some(Probed::Median(bytes)) => Some(bytes),
        _ => more_bytes,
    }
}

/// Size of one more context on the GPU (bytes).
enum Probed {
    /// Two probes gave exactly the same, when made and when ended. (One is not enough: a process that waits between the
    /// driver's answer and the ledger falsifies both.)
    Agreed(u64),
    /// Other processes allocated and freed during each probe: the median of the probes' figures.
    Median(u64),
}

/// Size of one more context on the GPU; `None` if it cannot be had. Asked in a context of this process.
fn probe_context(device: &'static Device) -> Option<Probed> {
    let own = gpu::context_on(device);
    if own.is_null() {
        return None;
    }
    let is_possible = |bytes: &u64| (1..=LARGEST_CONTEXT_BYTES).contains(bytes);
    let mut figures = Vec::new();
    let mut last = None;
    for _ in 0..MAX_PROBES {
        let probed = probe_once(device, own)?;
        let [made_bytes, ended_bytes] = probed;
        if made_bytes == ended_bytes && last.replace(probed) == Some(probed) && is_possible(&made_bytes) {
            return Some(Probed::Agreed(made_bytes));
        }
        figures.extend(probed);
    }
    figures.sort_unstable();
    let median_bytes = figures.get(figures.len() / 2).copied();
    median_bytes.filter(is_possible).map(Probed::Median)
}

/// Growth of the memory in use when a probe was made, and shrinkage when it ended (bytes).
fn probe_once(device: &'static Device, own: CUcontext) -> Option<[u64; 2]> {
    let before_bytes = beside_tenant(device, own, 0)?;
    let probe = Probe::make(device)?;
    let with_bytes = beside_tenant(device, own, probe.reserved.bytes())?;
    drop(probe);
    let after_bytes = beside_tenant(device, own, 0)?;
    let difference = |more: i128, less: i128| u64::try_from(more - less).unwrap_or(0);
    Some([difference(with_bytes, before_bytes), difference(with_bytes, after_bytes)])
}

/// Memory in use on the GPU without what the tenant's ledger has (bytes). `reserved_bytes` of the ledger are a probe's.
fn beside_tenant(device: &'static Device, own: CUcontext, reserved_bytes: u64) -> Option<i128> {
    let known_bytes = device.besides_overhead_bytes().saturating_sub(reserved_bytes);
    let used_bytes = gpu::used_by_driver(own)?;
    Some(i128::from(used_bytes) - i128::from(known_bytes))
}
