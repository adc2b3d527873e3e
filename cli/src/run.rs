//! `vcuda run`: makes or joins a tenant, preloads the shim, and becomes the command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vcuda_quota::{CoreShare, MemorySize, Quota, QuotaChange};
use vcuda_region::clock;
use vcuda_region::directory::{self, Directory, Origin, Tenant};
use vcuda_region::limits::Limits;
use vcuda_region::process::Identity;

use crate::args::RunArgs;
use crate::config::{
    ENV_DEVICE_ORDER, ENV_LIBRARY_PATH, ENV_PRELOAD, ENV_TENANT, ENV_VISIBLE, Environment, joined,
    preloading, searching,
};
use crate::exec::become_command;
use crate::failure::{Failure, failed};
use crate::inventory::{self, Gpu, Inventory};
use crate::manager_client::ManagerClient;
use crate::{background, front, grant, installation, set, sim};

/// Runs the command as a tenant. Returns only on failure.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<(), Failure> {
    refuse_nesting(environment)?;
    if let Some(name) = &args.grant {
        return in_grant(name, args, environment);
    }
    let quota = Quota::UNLIMITED.merge(&args.quota.change())?;
    let root = environment.runtime_root()?;
    let shim = installation::shim(&root)?;
    let mut variables = vec![(ENV_PRELOAD, preloading(&shim, environment))];
    let gpus = if args.sim {
        let machine = environment.machine_dir(None)?;
        variables.extend(sim::variables(&machine, environment)?);
        Inventory::simulated(&machine)?.gpus()?
    } else {
        Inventory::real()?.gpus()?
    };
    put_front_first(&mut variables, &root, &shim, args, environment)?;
    let chosen = inventory::chosen(&gpus, &args.gpu)?;
    if let Some(memory) = args.quota.memory {
        inventory::fits(memory, &chosen)?;
    }
    args.quota.warning().into_iter().try_for_each(|warning| set::warn(&warning))?;
    if !args.gpu.is_empty() {
        let uuids: Vec<String> = chosen.iter().map(|gpu| gpu.uuid.to_string()).collect();
        variables.extend(visible(&uuids, &gpus));
    }

    let (directory, is_metered) = enter(&root, args, quota, &chosen)?;
    variables.push((ENV_TENANT, directory.path().as_os_str().to_owned()));
    if is_metered {
        background::ensure_arbiter(environment)?;
    }
    directory.keep_across_exec().map_err(|error| Failure::access("keep", &root, &error))?;
    Err(become_command(&args.command, &variables))
}

/// Runs the command in the tenant of a grant: the manager made its directory, which stays after the command.
fn in_grant(name: &str, args: &RunArgs, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let grant = node.grant(name)?.ok_or_else(|| grant::unknown(&node, name))?;
    let directory = PathBuf::from(&grant.directory);
    Limits::read(&directory).map_err(|error| {
        Failure::Failed(format!(
            "{error}; on the host a grant is used by the manager's user and by the user that it counts for (grant create --user), \
             in containers by all"
        ))
    })?;
    if !args.sim {
        driver_is_there()?;
    }
    let root = environment.runtime_root()?;
    let shim = installation::shim(&root)?;
    let mut variables =
        vec![(ENV_PRELOAD, preloading(&shim, environment)), (ENV_TENANT, directory.into_os_string())];
    // Without them the program still gets its UUIDs.
    let gpus = Inventory::find(environment, args.sim).and_then(|inventory| inventory.gpus());
    variables.extend(visible(&grant.gpu_uuids, &gpus.unwrap_or_default()));
    if args.sim {
        variables.extend(sim::variables(&environment.machine_dir(None)?, environment)?);
    }
    put_front_first(&mut variables, &root, &shim, args, environment)?;
    Err(become_command(&args.command, &variables))
}

/// Fails where a program would find no driver, with the words of a run without a grant. A driver without NVML suffices: the grant
/// names the GPUs.
fn driver_is_there() -> Result<(), Failure> {
    match vcuda_driver_open::library_path("libcuda.so.1") {
        Some(_) => Ok(()),
        None => Inventory::real().map(drop),
    }
}

/// Puts the folder of the driver's fronts before all others in `LD_LIBRARY_PATH`.
fn put_front_first(
    variables: &mut Vec<(&'static str, OsString)>,
    root: &Path,
    shim: &Path,
    args: &RunArgs,
    environment: &Environment,
) -> Result<(), Failure> {
    let simulator = args.sim.then(|| installation::simulator(root)).transpose()?;
    let driver_at = |soname: &str| match &simulator {
        Some(links) => Some(links.join(soname)),
        None => vcuda_driver_open::library_path(soname),
    };
    let Some(folder) = front::folder(root, shim, driver_at)? else {
        return Ok(());
    };
    // A path that the loader would split leaves the program the preload alone.
    let Ok(folder) = installation::checked(folder) else {
        return Ok(());
    };
    match variables.iter_mut().find(|(name, _)| *name == ENV_LIBRARY_PATH) {
        Some((_, path)) => *path = joined(folder.as_os_str(), path),
        None => variables.push((ENV_LIBRARY_PATH, searching(&folder, environment))),
    }
    Ok(())
}

/// Refuses a run inside a tenant, as a nested run would let a tenant write its own limits.
fn refuse_nesting(environment: &Environment) -> Result<(), Failure> {
    match directory::resolve(environment.tenant.as_deref()) {
        None => Ok(()),
        Some(path) => Err(Failure::Usage(format!(
            "this is already a tenant ({}); run the command as it is, it has that quota, or change the quota from outside with \
             `vcuda set`",
            path.display()
        ))),
    }
}

/// Makes the tenant's directory, or joins a living run of that name with the same or no quota. Returns also whether the
/// tenant's GPU time must be arbitrated.
fn enter(root: &Path, args: &RunArgs, quota: Quota, gpus: &[Gpu]) -> Result<(Directory, bool), Failure> {
    let me = Identity::current().map_err(|error| Failure::access("read", Path::new("/proc/self"), &error))?;
    let devices = gpus.iter().map(|gpu| (gpu.uuid, quota.config())).collect();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(&args.command, me.pid),
    };
    let tenant =
        Tenant { name, devices, is_suspendable: args.suspendable, memory_wait_ms: args.wait_for_memory };
    let enter = || Directory::create_or_join(root, &tenant, &me, clock::now_ns());
    // Before the removal of dead runs, as this run takes over the debt of a dead run of the same name.
    let entered = enter();
    // A directory of a dead run that cannot be removed is left to a later run.
    let _ = directory::remove_dead(root, &me);
    let (directory, origin) = entered.or_else(|_| enter()).map_err(|error| refused(&error))?;
    let is_metered = match origin {
        Origin::Joined => agrees(&directory, &tenant, args)?,
        Origin::Created => quota.is_metered(),
    };
    Ok((directory, is_metered))
}

/// Name `<cmd>-<pid>` from the command's file name. Characters that a directory's name cannot have become `_`.
fn default_name(command: &[OsString], pid: u32) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' }
    };
    let stem: String = program.to_string_lossy().chars().map(clean).take(48).collect();
    let stem = stem.trim_start_matches('.');
    format!("{}-{pid}", if stem.is_empty() { "command" } else { stem })
}

/// Variables by which the program's CUDA shows the GPUs of these UUIDs alone, in this order; `all` are the machine's.
///
/// They are CUDA's own interface to the program, so the numbers in them cross no boundary of ours (I10): the shim finds
/// each GPU by its UUID. Programs such as vLLM take every entry for a number. UUIDs stand where CUDA may count otherwise.
fn visible(uuids: &[String], all: &[Gpu]) -> Vec<(&'static str, OsString)> {
    let number = |uuid: &String| {
        let gpu = all.iter().find(|gpu| gpu.uuid.to_string() == *uuid)?;
        Some(gpu.cuda_number?.to_string())
    };
    match uuids.iter().map(number).collect::<Option<Vec<_>>>() {
        Some(numbers) => {
            vec![(ENV_VISIBLE, numbers.join(",").into()), (ENV_DEVICE_ORDER, "PCI_BUS_ID".into())]
        }
        None => vec![(ENV_VISIBLE, uuids.join(",").into())],
    }
}

/// Checks that a joining run asks for the tenant's quota. Returns whether GPU time must be arbitrated.
fn agrees(directory: &Directory, tenant: &Tenant, args: &RunArgs) -> Result<bool, Failure> {
    let name = &tenant.name;
    let limits = Limits::read(directory.path()).map_err(failed)?;
    if args.suspendable && !limits.is_suspendable() {
        return Err(Failure::Usage(format!(
            "--suspendable: {name} runs already without it; leave the option out to join it, or choose another name"
        )));
    }
    let mut is_metered = false;
    for (uuid, _) in &tenant.devices {
        let device = limits.find(uuid).ok_or_else(|| {
            Failure::Usage(format!(
                "--name {name}: it runs already, on other GPUs than {uuid}; choose another name"
            ))
        })?;
        let now = Quota::of(&limits.config(device).map_err(failed)?);
        is_metered |= now.is_metered();
        if let Some(difference) = difference(&now, &args.quota.change()) {
            return Err(Failure::Usage(format!(
                "--name {name}: it runs already with {difference}; leave the option out to join it, or change it with \
                 `vcuda set {name}`"
            )));
        }
    }
    Ok(is_metered)
}

/// The first option that differs from `now`, with its value in `now`.
fn difference(now: &Quota, asked: &QuotaChange) -> Option<String> {
    if asked.memory_bytes.is_some_and(|bytes| Some(bytes) != now.memory_bytes) {
        Some(now.memory_bytes.map_or_else(
            || "the whole GPU's memory".to_owned(),
            |bytes| format!("--memory {}", MemorySize(bytes)),
        ))
    } else if asked.cores_permille.is_some_and(|cores| cores != now.cores_permille) {
        Some(format!("--cores {}", CoreShare(now.cores_permille)))
    } else if asked.policy.is_some_and(|policy| policy != now.policy) {
        Some(format!("--policy {}", now.policy))
    } else if asked.cores_max_permille.is_some_and(|most| most != now.cores_max_permille) {
        Some(format!("--cores-max {}", CoreShare(now.cores_max_permille)))
    } else if asked.weight.is_some_and(|weight| weight != now.weight()) {
        Some(format!("--weight {}", now.weight()))
    } else if asked.priority.is_some_and(|priority| priority != now.priority) {
        Some(format!("--priority {}", now.priority))
    } else {
        None
    }
}

fn refused(error: &directory::DirectoryError) -> Failure {
    match error {
        directory::DirectoryError::Name(_) => Failure::Usage(format!("--name {error}")),
        directory::DirectoryError::Devices(_) => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use vcuda_region::GpuUuid;

    use super::*;

    #[test]
    fn names_come_from_the_command() {
        let name = |command: &str| default_name(&[OsString::from(command)], 7);
        assert_eq!(name("python"), "python-7");
        assert_eq!(name("/usr/bin/python3.12"), "python3.12-7");
        assert_eq!(name("./my app"), "my_app-7");
        assert_eq!(name(".hidden"), "hidden-7");
        assert_eq!(name("/"), "command-7");
        assert!(name(&"x".repeat(200)).len() <= 64);
    }

    #[test]
    fn the_programs_cuda_is_told_numbers_where_they_are_known() {
        let gpu = |digit: u8, cuda_number| Gpu {
            uuid: GpuUuid::from_bytes([digit; 16]),
            name: String::new(),
            memory_total_bytes: 0,
            memory_used_bytes: 0,
            memory_reserved_bytes: 0,
            cuda_number,
        };
        let all = [gpu(1, Some(3)), gpu(2, Some(0)), gpu(3, None)];
        let uuids: Vec<String> = all.iter().map(|gpu| gpu.uuid.to_string()).collect();
        assert_eq!(
            visible(&uuids[..2], &all),
            [(ENV_VISIBLE, "3,0".into()), (ENV_DEVICE_ORDER, "PCI_BUS_ID".into())]
        );
        assert_eq!(visible(&uuids[1..], &all), [(ENV_VISIBLE, uuids[1..].join(",").into())]);
        assert_eq!(visible(&uuids[..1], &[]), [(ENV_VISIBLE, uuids[0].clone().into())]);
    }
}
