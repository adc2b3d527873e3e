//! Conditions that are looked at before a tenant is suspended: what a driver does badly or not at all, and the room in host memory.
//! docs/suspend.md has the source of each.

mod device_files;
mod host_memory;
mod process;

use std::path::PathBuf;

use vcuda_region::suspension::SuspendState;

use super::gates::Gates;
use super::helper::Settings;
use super::records::Process;
use super::{Shared, task};
use crate::gpu::Inventory;
use crate::observe::Tenant;
use crate::state::GrantError;

/// First release of the driver with checkpoints as a part of its API.
const FIRST_RELEASE: u32 = 570;
/// A release that ends processes which it locks.
const CRASHES: &str = "610.57.04";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// The observed state, or why the tenant cannot be suspended.
    pub outcome: Result<String, Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub why: String,
    /// The remedy; empty if `why` names it.
    pub remedy: &'static str,
}

impl Check {
    fn passed(name: &'static str, seen: impl Into<String>) -> Self {
        Self { name, outcome: Ok(seen.into()) }
    }

    fn refused(name: &'static str, why: impl Into<String>, remedy: &'static str) -> Self {
        Self { name, outcome: Err(Refusal { why: why.into(), remedy }) }
    }
}

/// Where the kernel tells of processes and of memory.
#[derive(Debug, Clone)]
struct Places {
    procfs: PathBuf,
    /// Root of cgroup v2.
    cgroups: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self { procfs: "/proc".into(), cgroups: "/sys/fs/cgroup".into() }
    }
}

/// A process whose memory would be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resident {
    pid: u32,
    /// Its memory on all GPUs (bytes).
    bytes: u64,
}

/// Checks that nothing speaks against a suspension of these processes.
pub(super) fn require(shared: &Shared, tenant: &Tenant, processes: &[Process]) -> Result<(), GrantError> {
    let mut checks = of_node(shared, tenant);
    checks.extend(of_processes(shared, tenant, processes));
    let refusal = checks.into_iter().find_map(|check| check.outcome.err());
    refusal.map_or(Ok(()), |Refusal { why, remedy }| {
        Err(GrantError::Refused(format!("{} is not suspended: {why}; {remedy}", tenant.id)))
    })
}

/// All checks of a tenant as it is now.
pub(super) fn all(shared: &Shared, id: &str) -> Result<Vec<Check>, GrantError> {
    let tenant = task::known(shared, id)?;
    let state = of_state(shared.state(id));
    if state.outcome.is_err() {
        return Ok(vec![state]);
    }
    let mut checks = vec![state];
    let gates = Gates::open(shared, &tenant);
    // `vcuda doctor` takes a tenant that is not suspendable for one that lacks nothing; damaged files are another matter.
    let name = match gates {
        Ok(_) | Err(GrantError::Refused(_)) => "suspendable",
        Err(_) => "files",
    };
    let (check, gates) = told(name, gates, |_| "yes".to_owned());
    checks.push(check);
    checks.extend(of_node(shared, &tenant));
    if gates.is_some() {
        let found = task::find(shared, id);
        let (check, found) =
            told("processes", found, |found| format!("{} with a GPU", found.processes.len()));
        checks.push(check);
        // As it was then, since a process may just have been given time to register.
        let (tenant, processes) = found.map_or((tenant, Vec::new()), |found| (found.tenant, found.processes));
        checks.extend(of_processes(shared, &tenant, &processes));
    }
    Ok(checks)
}

/// Only a tenant that runs can be suspended.
fn of_state(state: SuspendState) -> Check {
    let refused = |remedy| Check::refused("state", format!("it is {}", state.name()), remedy);
    match state {
        SuspendState::Running => Check::passed("state", state.name()),
        SuspendState::Suspending | SuspendState::Resuming => refused("try again when that is done"),
        SuspendState::Suspended => {
            refused("nothing: its next call brings it back, and so does `vcuda resume`")
        }
        SuspendState::Failed => refused("end its processes, as one of them lost its GPU state"),
    }
}

/// The check of a step that may be refused, and the step's result.
fn told<T>(
    name: &'static str,
    result: Result<T, GrantError>,
    seen: impl FnOnce(&T) -> String,
) -> (Check, Option<T>) {
    match result {
        Ok(value) => (Check::passed(name, seen(&value)), Some(value)),
        // Its text has the remedy.
        Err(error) => (Check::refused(name, error.to_string(), ""), None),
    }
}

fn of_node(shared: &Shared, tenant: &Tenant) -> Vec<Check> {
    let inventory = shared.grants.inventory();
    vec![program(&shared.helper), driver(&inventory.driver_version), persistence(&inventory, tenant)]
}

/// The program that moves the memory, and the driver that it finds.
fn program(helper: &Settings) -> Check {
    const NAME: &str = "vcuda-checkpoint";
    let path = helper.program.display();
    match helper.finds_driver() {
        Ok(true) => Check::passed(NAME, path.to_string()),
        Ok(false) => {
            let library = helper.cuda_library.as_deref().unwrap_or("libcuda.so.1".as_ref());
            Check::refused(
                NAME,
                format!("{path} finds no driver with checkpoints ({})", library.display()),
                "name the driver's libcuda.so.1 by cuda_library in manager.toml (--cuda-library), or update it to release 570 or later",
            )
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::refused(NAME, format!("{path} is missing"), "install it beside vcuda-manager")
        }
        Err(error) => Check::refused(NAME, format!("{path}: {error}"), "install it again"),
    }
}

fn of_processes(shared: &Shared, tenant: &Tenant, processes: &[Process]) -> Vec<Check> {
    let places = &Places::default();
    let resident: Vec<Resident> = processes
        .iter()
        .map(|process| Resident { pid: process.host_pid, bytes: resident_bytes(tenant, process.host_pid) })
        .collect();
    vec![
        device_files::all_seen(places, &shared.grants.inventory(), &resident),
        process::mps(places, &resident),
        process::nccl(places, &resident, tenant.devices.len()),
        host_memory::cgroups(places, &resident),
        host_memory::node(places, &resident),
    ]
}

/// Memory of a process on all GPUs (bytes).
fn resident_bytes(tenant: &Tenant, host_pid: u32) -> u64 {
    let mut processes = tenant.processes.iter();
    let found = processes.find(|process| process.host_pid == Some(host_pid));
    found.map_or(0, |process| process.used_bytes.iter().sum())
}

fn driver(version: &str) -> Check {
    let release = version.split('.').next().and_then(|word| word.parse::<u32>().ok());
    match release {
        None => Check::refused(
            "driver",
            "NVML does not tell the driver's release",
            "look at `vcuda doctor` for NVML's problem",
        ),
        Some(release) if release < FIRST_RELEASE => Check::refused(
            "driver",
            format!("driver {version} has no checkpoints"),
            "update it to release 570 or later",
        ),
        Some(_) if version == CRASHES => Check::refused(
            "driver",
            format!("driver {version} ends processes which it locks"),
            "install another release",
        ),
        Some(_) => Check::passed("driver", version),
    }
}

/// A GPU of which NVML does not tell the mode has none, such as those of integrated systems.
fn persistence(inventory: &Inventory, tenant: &Tenant) -> Check {
    let gpus = tenant.devices.iter().filter_map(|device| inventory.find(&device.gpu));
    let mut off = gpus.filter(|gpu| gpu.is_persistent == Some(false));
    match off.next() {
        Some(gpu) => Check::refused(
            "persistence mode",
            format!("persistence mode of {} is off", gpu.uuid),
            "run nvidia-persistenced, or `nvidia-smi -pm 1`",
        ),
        None => Check::passed("persistence mode", "on, or none"),
    }
}

#[cfg(test)]
mod tests {
    use vcuda_quota::DeviceConfig;
    use vcuda_region::GpuUuid;

    use super::*;
    use crate::gpu::Gpu;
    use crate::observe::{Device, Process as Seen};

    fn why(check: Check) -> String {
        let Refusal { why, remedy } = check.outcome.unwrap_err();
        format!("{why}; {remedy}")
    }

    #[test]
    fn a_driver_without_checkpoints_or_with_crashes_is_refused() {
        for (version, said) in [
            ("565.57.01", "has no checkpoints; update"),
            ("610.57.04", "ends processes which it locks; install another"),
            ("", "does not tell"),
            ("unknown", "does not tell"),
        ] {
            assert!(why(driver(version)).contains(said), "{version}");
        }
        for version in ["570.86.10", "580.95.05", "610.57.05", "610"] {
            assert_eq!(driver(version), Check::passed("driver", version));
        }
    }

    #[test]
    fn only_the_tenant_s_own_gpus_need_persistence_mode() {
        let uuid = |number| GpuUuid::from_bytes([number; 16]);
        let gpu = |number, is_persistent| Gpu { is_persistent, ..Gpu::new(uuid(number), "g", 1 << 30) };
        let inventory = Inventory {
            gpus: vec![gpu(1, Some(true)), gpu(2, Some(false)), gpu(3, None)],
            ..Inventory::default()
        };
        let on = |numbers: &[u8]| Tenant {
            devices: numbers
                .iter()
                .map(|number| Device::unused(uuid(*number), DeviceConfig::new(1 << 30, 300)))
                .collect(),
            ..Tenant::default()
        };
        assert!(why(persistence(&inventory, &on(&[1, 2]))).contains("nvidia-smi -pm 1"));
        assert!(persistence(&inventory, &on(&[1, 3])).outcome.is_ok());
    }

    #[test]
    fn the_memory_of_a_process_is_that_of_all_its_gpus() {
        let tenant = Tenant {
            processes: vec![Seen { host_pid: Some(70), used_bytes: vec![1, 20], ..Seen::default() }],
            ..Tenant::default()
        };
        assert_eq!(resident_bytes(&tenant, 70), 21);
        assert_eq!(resident_bytes(&tenant, 71), 0);
    }
}
