//! What the driver itself takes of a GPU for this process: contexts, modules, rounding. Measured, never guessed (I9):
//! NVML's figure for the process less what the ledger has; where NVML does not list us (another PID namespace), the
//! difference that making a context made on the card.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::devices::Device;
use crate::ffi::{elf, real};
use crate::hooks::real as hooked;
use crate::shim::{self, Shim};

/// No context was ever this large: a difference beyond it is a neighbour's doing.
const LARGEST_CONTEXT_BYTES: u64 = 4 << 30;

/// Between measurements that nothing asked for, small changes are left alone: the driver hands memory out in blocks, and
/// what an answer says should follow from what the program did.
const NOTICEABLE_BYTES: u64 = 16 << 20;

/// How this process measures.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    nvml: OnceCell<bool>,
    /// NVML has listed this process: its figure can be trusted.
    is_listed: AtomicBool,
    /// Contexts whose overhead was seen as a difference: what to give back with them.
    by_difference: Mutex<Vec<(CUcontext, &'static Device, u64)>>,
}

/// The card before a context is made.
#[derive(Debug)]
pub(crate) struct Before {
    device: &'static Device,
    card_used_bytes: Option<u64>,
}

/// The driver has loaded or unloaded code, or changed the size of a heap, on the current device.
pub(crate) fn changed() {
    let device = shim::get().and_then(Shim::current_device);
    if let Some(device) = device.filter(|device| device.grant.is_some()) {
        device.shim().overhead.measure(device);
    }
}

impl Overhead {
    /// Looks at the card before a context is made on `device`.
    pub(crate) fn before(&self, device: &'static Device) -> Before {
        let is_needed = !self.is_listed.load(Ordering::Relaxed);
        let handle = if is_needed { self.handle(device) } else { None };
        Before {
            device,
            card_used_bytes: handle.and_then(card_used_bytes),
        }
    }

    /// Charges what the new `context` took.
    pub(crate) fn after(&self, before: &Before, context: CUcontext) {
        let device = before.device;
        if self.measure(device) {
            return;
        }
        let now = self.handle(device).and_then(card_used_bytes);
        let (Some(now), Some(then)) = (now, before.card_used_bytes) else {
            return;
        };
        let bytes = now.saturating_sub(then);
        if bytes <= LARGEST_CONTEXT_BYTES {
            device.charge_overhead(bytes);
            self.by_difference.lock().push((context, device, bytes));
        }
    }

    /// Gives back what a destroyed context had taken.
    pub(crate) fn ended(&self, device: &'static Device, context: CUcontext) {
        if self.measure(device) {
            return;
        }
        let mut noted = self.by_difference.lock();
        if let Some(at) = noted.iter().position(|(of, _, _)| *of == context) {
            let (_, device, bytes) = noted.swap_remove(at);
            device.release_overhead(bytes);
        }
    }

    /// Sets the overhead to what NVML's figure for this process makes of it; `false` if NVML does not tell.
    pub(crate) fn measure(&self, device: &'static Device) -> bool {
        let Some(bytes) = self.figure(device) else {
            return false;
        };
        device.set_overhead(bytes);
        true
    }

    /// Follows what changed without a call that we saw: lazily loaded code, contexts of the runtime library.
    pub(crate) fn follow(&self, device: &'static Device) {
        if let Some(bytes) = self.figure(device)
            && bytes.abs_diff(device.overhead_bytes()) >= NOTICEABLE_BYTES
        {
            device.set_overhead(bytes);
        }
    }

    /// NVML's figure for this process, less what the ledger has (bytes): with what pools and graphs hold, which
    /// [`Device::own_bytes`] asks for first.
    fn figure(&self, device: &'static Device) -> Option<u64> {
        let handle = self.handle(device)?;
        let is_listed = self.is_listed.load(Ordering::Relaxed);
        if !is_listed {
            // Without a context nothing is taken, and no slot need be.
            process_bytes(handle)?;
        }
        // Other threads allocate meanwhile: a figure counts if the ledger did not move under it.
        for _ in 0..4 {
            let own_bytes = device.own_bytes();
            let Some(bytes) = process_bytes(handle) else {
                // Listed once and no more: its contexts are gone.
                return is_listed.then_some(0);
            };
            // A figure below what we hold is some other process's: PIDs of another namespace.
            let overhead = bytes.checked_sub(own_bytes)?;
            if own_bytes == device.own_bytes() {
                self.is_listed.store(true, Ordering::Relaxed);
                return Some(overhead);
            }
        }
        None
    }

    /// NVML's handle of a device; nothing if NVML cannot be had.
    fn handle(&self, device: &Device) -> Option<nvmlDevice_t> {
        if !*self.nvml.get_or_init(start_nvml) {
            return None;
        }
        let uuid = CString::new(device.uuid.to_string()).ok()?;
        let mut handle = nvmlDevice_t::NULL;
        // SAFETY: a C string; NVML writes a handle or nothing.
        unsafe { real::nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle) }.ok()?;
        Some(handle)
    }
}

/// Opens NVML, which the application may not have done. The CUDA driver is in use already.
fn start_nvml() -> bool {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    const NVML: &CStr = real::Library::Nvml.soname();
    let Some(address) = elf::libc_symbol(c"dlopen") else {
        return false;
    };
    // SAFETY: dlopen(3) has this type.
    let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
    // SAFETY: a C string.
    if unsafe { dlopen(NVML.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null() {
        return false;
    }
    // SAFETY: NVML counts its users: the application's own start and shutdown keep their meaning.
    unsafe { real::nvmlInit_v2() }.is_ok()
}

/// What is in use on the card, by whomever (bytes).
fn card_used_bytes(handle: nvmlDevice_t) -> Option<u64> {
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: NVML writes the structure or nothing.
    unsafe { hooked::nvmlDeviceGetMemoryInfo(handle, &raw mut memory) }.ok()?;
    Some(memory.used)
}

/// What NVML says that this process has (bytes); nothing if it is not listed or NVML does not know.
fn process_bytes(handle: nvmlDevice_t) -> Option<u64> {
    const NOT_AVAILABLE: u64 = u64::MAX;
    let empty = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut infos = vec![empty; 64];
    loop {
        let mut count = c_uint::try_from(infos.len()).ok()?;
        // SAFETY: room for `count` records; NVML writes as many at most and says how many there are.
        let asked = unsafe {
            real::nvmlDeviceGetComputeRunningProcesses_v3(handle, &raw mut count, infos.as_mut_ptr())
        };
        if asked == Err(NvmlError::INSUFFICIENT_SIZE) && infos.len() < 65_536 {
            infos.resize((count as usize).max(infos.len()) * 2, empty);
            continue;
        }
        asked.ok()?;
        infos.truncate(count as usize);
        let me = std::process::id();
        let own = infos.iter().find(|info| info.pid == me)?;
        return Some(own.usedGpuMemory).filter(|bytes| *bytes != NOT_AVAILABLE);
    }
}
