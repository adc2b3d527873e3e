//! What NVML tells of the GPUs beside their memory: versions, sensors, and processes of no tenant.

use vcuda_driver_open::{Nvml, NvmlGpu};

use super::Inventory;
use crate::installation;
use crate::process_facts::{self, Seen};
use crate::render::{ProcessView, Snapshot};

/// NVML of an inventory's GPUs. Where it is missing or does not support a call, the figure stays unknown.
#[derive(Debug)]
pub(crate) struct Sensors {
    /// The simulated NVML. The real one belongs to the inventory.
    simulated: Option<Nvml>,
    /// Whether processes of no tenant are listed.
    has_outside: bool,
}

impl Sensors {
    /// NVML of the GPUs of this inventory. Inside a tenant no processes are listed: NVML may give them the host's PIDs there.
    pub(crate) fn of(inventory: &Inventory, is_in_tenant: bool) -> Sensors {
        let open = || Nvml::open_library(&installation::simulated_nvml().ok()?).ok();
        Sensors {
            simulated: match inventory {
                Inventory::Real(_) => None,
                Inventory::Simulated(_) => open(),
            },
            has_outside: !is_in_tenant,
        }
    }

    pub(crate) fn add_to(&self, snapshot: &mut Snapshot, inventory: &Inventory) {
        let nvml = match inventory {
            Inventory::Real(nvml) => nvml,
            Inventory::Simulated(_) => match &self.simulated {
                Some(nvml) => nvml,
                None => return,
            },
        };
        snapshot.driver_version = nvml.driver_version().ok();
        snapshot.cuda_version = nvml.cuda_version().ok();
        for gpu in &mut snapshot.gpus {
            let Ok(Some(handle)) = nvml.find(&gpu.uuid) else {
                continue;
            };
            gpu.show_readings(nvml.readings(handle));
            if !self.has_outside {
                continue;
            }
            let is_tenants = |pid: u32| {
                let mut processes = gpu.tenants.iter().flat_map(|tenant| &tenant.processes);
                processes.any(|process| process.pid == pid)
            };
            let outside = listed(nvml, handle).into_iter().filter(|process| !is_tenants(process.pid));
            gpu.outside_processes = outside.collect();
        }
    }
}

fn listed(nvml: &Nvml, gpu: NvmlGpu) -> Vec<ProcessView> {
    let listed = nvml.processes(gpu).unwrap_or_default();
    let view = |(pid, bytes): (u32, Option<u64>)| {
        process_facts::view(&Seen::Here(pid), &process_facts::name(pid), bytes)
    };
    listed.into_iter().map(view).collect()
}
