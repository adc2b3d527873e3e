//! `vcuda run`: gets a transient grant or joins one, preloads the shim, and becomes the command.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use vcuda_manager_api::v1::{CreateGrantRequest, Grant};
use vcuda_manager_api::{RUN_MAX, is_run_name};
use vcuda_quota::{CoreShare, MemorySize, Quota, QuotaChange};
use vcuda_region::clock;
use vcuda_region::directory::{self, Directory};
use vcuda_region::limits::Limits;

use crate::args::RunArgs;
use crate::config::{
    ENV_DEVICE_ORDER, ENV_LIBRARY_PATH, ENV_PRELOAD, ENV_TENANT, ENV_VISIBLE, Environment, joined,
    preloading, searching,
};
use crate::doctor::program::why_unlimited;
use crate::exec::become_command;
use crate::failure::{Failure, failed};
use crate::inventory::{self, Gpu, Inventory};
use crate::manager_client::ManagerClient;
use crate::output::warn;
use crate::render::quota::quota;
use crate::{front, grant, installation, sim};

/// Time for which a run tries to enter its tenant (ns): a run of its name may end at any moment.
const ENTERS_WITHIN_NS: u64 = 10_000_000_000;

/// Runs the command as a tenant. Returns only on failure.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<(), Failure> {
    refuse_nesting(environment)?;
    // For a person: the output of a program under a quota is its own.
    let command = args.command.first().filter(|_| std::io::stderr().is_terminal());
    if let Some(why) = command.and_then(|command| why_unlimited(command, environment)) {
        warn(&format!("{why}: the shim does not limit it, but what it starts if that is dynamic"))?;
    }
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
    args.quota.warning().into_iter().try_for_each(|warning| warn(&warning))?;
    if !args.gpu.is_empty() {
        let uuids: Vec<String> = chosen.iter().map(|gpu| gpu.uuid.to_string()).collect();
        variables.extend(visible(&uuids, &gpus));
    }

    let machine = args.sim.then(|| environment.machine_dir(None)).transpose()?;
    let directory = enter(args, quota, &chosen, (environment, machine.as_deref()))?;
    variables.push((ENV_TENANT, directory.path().as_os_str().to_owned()));
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

/// Gets a transient grant, or joins the living run of that name with the same or no quota, and enters its directory.
fn enter(
    args: &RunArgs,
    quota: Quota,
    gpus: &[Gpu],
    (environment, machine): (&Environment, Option<&Path>),
) -> Result<Directory, Failure> {
    let key = args.name.clone().unwrap_or_else(|| default_name(&args.command, std::process::id()));
    if !is_run_name(&key) {
        return Err(Failure::Usage(format!(
            "--name {key:?} cannot name a run: use 1 to {RUN_MAX} letters, digits, '.', '_' or '-', not first a '.'"
        )));
    }
    let until_ns = clock::now_ns() + ENTERS_WITHIN_NS;
    let mut node = ManagerClient::for_run(environment, machine)?;
    loop {
        let entered = enter_once(&node, &key, args, (quota, gpus));
        match entered {
            Ok(Some(directory)) => return Ok(directory),
            // The run that was joined has ended meanwhile.
            Ok(None) if clock::now_ns() < until_ns => {}
            Ok(None) => {
                return Err(Failure::Unavailable(format!(
                    "--name {key}: runs of it end all the time; try again"
                )));
            }
            // An own manager that had no tenant has just ended.
            Err(Failure::Unavailable(_)) if !node.is_there() && clock::now_ns() < until_ns => {
                node = ManagerClient::for_run(environment, machine)?;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// An attempt to enter; `None` if a run of that name has ended meanwhile.
fn enter_once(
    node: &ManagerClient,
    key: &str,
    args: &RunArgs,
    (quota, gpus): (Quota, &[Gpu]),
) -> Result<Option<Directory>, Failure> {
    let living = if args.name.is_some() { node.grant(key)? } else { None };
    let mut request = CreateGrantRequest {
        request_id: grant::request_id(),
        key: key.to_owned(),
        amounts: Some((&quota).into()),
        gpu_uuids: gpus.iter().map(|gpu| gpu.uuid.to_string()).collect(),
        suspendable: args.suspendable,
        memory_wait_ms: args.wait_for_memory,
        transient: true,
        ..CreateGrantRequest::default()
    };
    if let Some(living) = &living {
        // Another release may have made it, whose limits this one's shim cannot read.
        let directory = Path::new(&living.directory);
        match Limits::read(directory) {
            Err(error) if directory.exists() => return Err(failed(error)),
            _ => {}
        }
        agrees(key, living, gpus, args)?;
        request.amounts = living.amounts;
        request.gpu_uuids.clone_from(&living.gpu_uuids);
        (request.suspendable, request.memory_wait_ms) = (living.suspendable, living.memory_wait_ms);
    }
    let grant = node.create(request)?;
    if living.is_some_and(|living| living.number != grant.number) {
        // A new one, with the quota of the run that has ended.
        node.release(&grant.id, false)?;
        return Ok(None);
    }
    Directory::enter(Path::new(&grant.directory)).map_err(failed)
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

/// Checks that a joining run asks for what the living one has.
fn agrees(name: &str, living: &Grant, gpus: &[Gpu], args: &RunArgs) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::Usage(why));
    if !living.transient {
        return refused(format!(
            "--name {name}: {} is a grant; run in it with `--grant {name}`, or choose another name",
            living.id
        ));
    }
    if args.suspendable && !living.suspendable {
        return refused(format!(
            "--suspendable: {name} runs already without it; leave the option out to join it, or choose another name"
        ));
    }
    let has = |gpu: &&Gpu| living.gpu_uuids.contains(&gpu.uuid.to_string());
    if let Some(other) = gpus.iter().find(|gpu| !has(gpu)) {
        return refused(format!(
            "--name {name}: it runs already, on other GPUs than {}; choose another name",
            other.uuid
        ));
    }
    match difference(&quota(living), &args.quota.change()) {
        None => Ok(()),
        Some(difference) => refused(format!(
            "--name {name}: it runs already with {difference}; leave the option out to join it, or change it with \
             `vcuda set {name}`"
        )),
    }
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
