//! NVML for tools: of a granted GPU the quota, the tenant's own processes, and the GPU time that they used.
//!
//! - *Memory* is the quota, as `cuMemGetInfo` tells it. A GPU that was not granted stays listed under its index, UUID and
//!   size, and has nothing free.
//! - *Processes* are those of the tenant that hold a slot, with the PIDs that this process knows them by and the memory
//!   that the ledger has. Those of another PID namespace have no such PID and are left out.
//! - *Utilisation* is the part of the GPU's time that the tenant used, as `vcuda smi` tells it: a tenant at its cap of
//!   30 % shows 30.
//!
//! If the tenant has the whole GPU's memory, its figures are NVML's; its processes are its own all the same. A process
//! without limits gets NVML's own answers, as do handles of MIG instances, to which no quota applies. Count, order,
//! UUIDs, serials and addresses of GPUs are NVML's, and are not hooked. No field of `nvmlDeviceGetFieldValues` tells
//! memory in use, processes or utilisation.

mod accounting;
mod array;
mod limits;
mod memory;
mod processes;
mod utilization;

use core::ffi::CStr;

use vcuda_driver_api::prelude::*;
use vcuda_region::{DeviceIndex, GpuUuid};

pub(super) use accounting::{accounting_pids, accounting_stats, accounting_stats_v2};
pub(super) use limits::{limits, set_limits};
pub(super) use memory::{attributes, bar1, memory, memory_v2, protected_memory};
pub(super) use processes::{compute, compute_v1, details, graphics, graphics_v1, mps, mps_v1};
pub(super) use utilization::{of_processes, of_processes_info, rates, samples};

use super::table::Handlers;
use crate::driver::{Bypass, real};
use crate::memory::state;
use crate::runtime::region::Region;
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::TELLING;

/// Whether no limit applies, so that NVML alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// A GPU, and the tenant's grant of it.
#[derive(Debug, Clone, Copy)]
struct Part {
    shim: &'static Shim,
    /// None: there is no grant, or the limits cannot be used.
    grant: Option<(&'static Region, DeviceIndex)>,
}

impl Part {
    /// The tenant's part of a GPU.
    ///
    /// # Errors
    /// NVML's own answer is right: no limits apply, or the handle is not a GPU's.
    fn of_device(device: nvmlDevice_t) -> Result<Self, Bypass> {
        let shim = state::managed()?;
        let uuid = uuid_of(device).ok_or(Bypass::BadArgument)?;
        let grant = shim.region().and_then(|region| Some((region, region.limits.find(&uuid)?)));
        shim.refresh_if_due();
        // Each answer is about what is left once the memory of dead processes is given back.
        if let Some((region, _)) = grant {
            shim.settle_released(region);
        }
        Ok(Self { shim, grant })
    }

    /// The memory limit (bytes), [`vcuda_quota::NO_MEMORY_LIMIT`] where there is none.
    fn memory_limit_bytes(&self) -> u64 {
        self.grant.map_or(0, |(region, index)| region.memory_limit_bytes(index))
    }

    /// The tenant's processes that use this GPU.
    fn processes(&self) -> Vec<Process> {
        let (Some((region, index)), Some(me)) = (self.grant, self.shim.identity()) else {
            return Vec::new();
        };
        let own = region.usage.processes();
        own.filter(|(_, identity)| identity.pid_namespace == me.pid_namespace)
            .map(|(slot, identity)| {
                let (used_bytes, peak_bytes) = region.usage.used_and_peak_bytes(index, slot);
                Process { pid: identity.pid, used_bytes, peak_bytes }
            })
            .filter(|process| process.used_bytes > 0)
            .collect()
    }
}

/// A process of the tenant.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: c_uint,
    used_bytes: u64,
    peak_bytes: u64,
}

/// A GPU's UUID from NVML, in the same form as vcuda's.
fn uuid_of(device: nvmlDevice_t) -> Option<GpuUuid> {
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: room for 96 characters; NVML writes a C string within them or nothing.
    unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) }.ok()?;
    // SAFETY: NVML returned success, so the array holds a C string.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    GpuUuid::from_ascii(text.to_bytes())
}
