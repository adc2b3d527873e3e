//! The user's own manager, which `vcuda run` starts where no other one can be used. It ends with the last run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use vcuda_manager_api::{OWN_LOG, SOCKET_NAME};
use vcuda_region::{clock, directory};

use super::ManagerClient;
use super::connect::enough_descriptors;
use crate::config::{ENV_MACHINE, ENV_PRELOAD, ENV_TENANT, ENV_VISIBLE, Environment};
use crate::failure::Failure;
use crate::installation;
use crate::inventory::Inventory;

const PROGRAM: &str = "vcuda-manager";
/// Time within which it answers (ns): NVML of a real driver takes up to 3 s to start.
const STARTS_WITHIN_NS: u64 = 10_000_000_000;
/// Interval of starting it again: one that is about to end still has the lock of the root.
const START_EVERY_NS: u64 = 250_000_000;
/// Open files that it needs with a few runs: it has the limit of who starts it.
const FEWEST_DESCRIPTORS: u64 = 32;
const LOOK: Duration = Duration::from_millis(1);

/// Connects to the manager of `root`, which is started if none runs there: for this simulated machine, else for the real GPUs.
///
/// # Errors
/// It cannot be started, or does not answer; its log says why.
pub(crate) fn connect(root: &Path, machine: Option<&Path>) -> Result<ManagerClient, Failure> {
    let begun_ns = clock::now_ns();
    let mut start_ns = begun_ns;
    loop {
        let why = match ManagerClient::at(&root.join(SOCKET_NAME)) {
            Ok(node) => return serving(node, root, machine),
            // One that is silent may lack processor time.
            Err(why) if why.is_not_running() || why.is_silent() => why,
            Err(why) => return Err(why.into()),
        };
        let now_ns = clock::now_ns();
        if now_ns > begun_ns + STARTS_WITHIN_NS {
            let log = root.join(OWN_LOG);
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it said nothing");
            let waited_s = STARTS_WITHIN_NS / 1_000_000_000;
            return Err(Failure::Unavailable(format!(
                "the manager of {} did not answer within {waited_s} s: {last} ({})",
                root.display(),
                log.display()
            )));
        }
        if why.is_not_running() && now_ns >= start_ns {
            start(root, machine)?;
            start_ns = now_ns + START_EVERY_NS;
        }
        std::thread::sleep(LOOK);
    }
}

/// The manager, if its GPUs are those of this simulated machine, or real ones. A user's own manager serves the GPUs of the command that
/// started it.
fn serving(node: ManagerClient, root: &Path, machine: Option<&Path>) -> Result<ManagerClient, Failure> {
    let served = PathBuf::from(node.status()?.simulated_machine);
    // One that was not told of its machine, as under `vcuda sim`, is known by its GPUs.
    if served.as_os_str().is_empty() && machine.is_some_and(|machine| node.has_gpus_of(machine)) {
        return Ok(node);
    }
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if real(&served) == real(machine.unwrap_or(Path::new(""))) {
        return Ok(node);
    }
    let words = |machine: &Path| match machine.as_os_str().is_empty() {
        true => "the real GPUs".to_owned(),
        false => format!("the simulated machine {}", machine.display()),
    };
    Err(Failure::Unavailable(format!(
        "your manager ({}) has {}, and this is for {}: wait until its runs have ended (`vcuda ps`) and no `vcuda top` or `events` is \
         connected, end one that you started yourself, or set XDG_RUNTIME_DIR to another folder for this",
        root.display(),
        words(&served),
        words(machine.unwrap_or(Path::new("")))
    )))
}

/// As [`connect`], for the GPUs that this user's commands show.
pub(crate) fn connect_for(environment: &Environment) -> Result<ManagerClient, Failure> {
    let is_simulated = matches!(Inventory::find(environment, false), Ok(Inventory::Simulated(_)));
    let machine = is_simulated.then(|| environment.machine_dir(None)).transpose()?;
    connect(&environment.runtime_root()?, machine.as_deref())
}

/// Whether the user's own manager, of this socket, should run: it has been killed, and its tenants live.
pub(crate) fn is_missed(environment: &Environment, socket: &Path) -> Result<bool, Failure> {
    let root = environment.runtime_root()?;
    let is_own = socket == root.join(SOCKET_NAME) && root.join(OWN_LOG).exists();
    Ok(is_own && directory::list(&root).is_ok_and(|tenants| !tenants.is_empty()))
}

/// Starts the manager, which sees the driver without what this command has for its own program.
fn start(root: &Path, machine: Option<&Path>) -> Result<(), Failure> {
    enough_descriptors(FEWEST_DESCRIPTORS)
        .map_err(|error| Failure::Failed(format!("a manager cannot be started: {error}")))?;
    let program = installation::program(PROGRAM)?;
    let mut command = Command::new(&program);
    command.arg("--own").arg("--root").arg(root);
    if let Some(machine) = machine {
        command.arg("--nvml-library").arg(installation::simulated_nvml()?);
        command.arg("--cuda-library").arg(installation::simulated_cuda()?);
        command.env(ENV_MACHINE, machine);
    }
    for name in [ENV_PRELOAD, ENV_TENANT, ENV_VISIBLE] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("{} did not start ({status})", program.display()))),
        Err(error) => Err(Failure::access("start", &program, &error)),
    }
}
