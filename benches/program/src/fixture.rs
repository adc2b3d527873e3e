//! Fixture of `demo` and `bench`: a GPU, a private runtime directory, and tenants that end with it. The tenants are this
//! program, under `vcuda run` like any other.

pub(crate) mod interrupt;
pub(crate) mod manager;
pub(crate) mod program;
pub(crate) mod protocol;
pub(crate) mod record;
mod tenant;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tempfile::TempDir;
use vcuda_machine::{Config, Machine};
use vcuda_region::directory;

pub(crate) use tenant::Tenant;
use vcuda_cli::config::{ENV_MACHINE, ENV_MANAGER, ENV_RUNTIME, ENV_VISIBLE, Environment};
use vcuda_cli::failure::{Failure, failed};
use vcuda_cli::installation;
use vcuda_cli::inventory::{self, Gpu, GpuSelector, Inventory};
use vcuda_cli::manager_client::ManagerClient;
use vcuda_manager_api::SOCKET_NAME;
use vcuda_quota::{CoreShare, MemorySize};

/// Prefix of the private directories' names, followed by the PID.
const PREFIX: &str = "fixture-";
/// Program whose `run` and `grant` make the tenants.
const VCUDA: &str = "vcuda";
/// Hidden command of this program that tenants run ([`program`]).
const TENANT: &str = "fixture-tenant";

/// Kind of GPU to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuKind {
    /// A fresh simulated machine.
    Simulated,
    /// A real GPU only.
    Real,
    /// A real GPU, else a fresh simulated machine.
    Any,
}

impl GpuKind {
    /// A simulated GPU if `--sim` was given, else `otherwise`.
    pub(crate) fn asked(is_simulated: bool, otherwise: GpuKind) -> GpuKind {
        if is_simulated { GpuKind::Simulated } else { otherwise }
    }
}

/// A GPU and a private runtime directory, so that other tenants of this user are neither shown nor touched.
#[derive(Debug)]
pub(crate) struct Fixture {
    home: TempDir,
    /// Path of `vcuda`.
    vcuda: PathBuf,
    /// Path of this program.
    executable: PathBuf,
    inventory: Inventory,
    gpu: Gpu,
    why_simulated: String,
}

impl Fixture {
    /// Sets up a GPU of this kind: the requested one, else the one with the most free memory. Fails if a library of
    /// vcuda, the GPU, or a place for the directory is missing.
    pub(crate) fn set_up(
        kind: GpuKind,
        gpu: Option<&GpuSelector>,
        environment: &Environment,
    ) -> Result<Fixture, Failure> {
        if let Some(path) = directory::resolve(environment.tenant.as_deref()) {
            return Err(Failure::Usage(format!(
                "this is a tenant ({}); run it outside of one",
                path.display()
            )));
        }
        let root = environment.runtime_root()?;
        remove_abandoned(&root);
        // Reported here, and not by a tenant that does not start.
        installation::shim(&root)?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let home = tempfile::Builder::new().prefix(&prefix).tempdir_in(&root);
        let home = home.map_err(|error| Failure::access("create a directory in", &root, &error))?;
        let (inventory, why_simulated) = match kind {
            GpuKind::Simulated => (simulated(&home)?, "as asked".to_owned()),
            GpuKind::Real => (Inventory::real()?, String::new()),
            GpuKind::Any => match Inventory::real() {
                Ok(inventory) => (inventory, String::new()),
                Err(failure) => {
                    let words = failure.to_string();
                    let words = words.split(';').next().unwrap_or_default().to_owned();
                    (simulated(&home)?, words)
                }
            },
        };
        let free = |gpu: &Gpu| gpu.memory_total_bytes.saturating_sub(gpu.memory_used_bytes);
        let candidates = inventory::chosen(&inventory.gpus()?, gpu.map_or(&[], std::slice::from_ref))?;
        let gpu = candidates.into_iter().max_by_key(free);
        let gpu = gpu.ok_or_else(|| Failure::Usage("no GPU that can have tenants; use --sim".to_owned()))?;
        Ok(Fixture {
            home,
            vcuda: installation::program(VCUDA)?,
            executable: installation::executable()?,
            inventory,
            gpu,
            why_simulated,
        })
    }

    /// Description of the machine.
    pub(crate) fn description(&self) -> String {
        let memory = MemorySize(self.gpu.memory_total_bytes);
        match &self.inventory {
            Inventory::Real(_) => format!("a real GPU: {}, {memory}, {}", self.gpu.name, self.gpu.uuid),
            Inventory::Simulated(_) => {
                format!(
                    "a simulated GPU: {}, {memory}\nnot a real one: {}",
                    self.gpu.name, self.why_simulated
                )
            }
        }
    }

    /// The GPU as it was at the start.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Unit of the demo's sizes: 1 GiB, or less if the GPU has less than 16 GiB free.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let free = self.gpu.memory_total_bytes.saturating_sub(self.gpu.memory_used_bytes);
        (free / 16).min(1 << 30) >> 20 << 20
    }

    /// Source of the GPU.
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The manager of its tenants, which the first of them starts.
    pub(crate) fn node(&self) -> Result<ManagerClient, Failure> {
        ManagerClient::at_socket(&self.manager_socket())
    }

    /// Runs `vcuda` with these arguments to its end.
    pub(crate) fn vcuda(&self, arguments: &[&str]) -> Result<(), Failure> {
        let output =
            self.command(&self.vcuda).args(arguments).stdin(Stdio::null()).output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::Failed(format!("`vcuda {}` failed: {words}", arguments.join(" "))))
    }

    /// Starts a tenant: `vcuda run <options> -- vcuda-bench fixture-tenant`. Without `memory` it has no memory limit.
    pub(crate) fn tenant(
        &self,
        name: &str,
        memory: Option<MemorySize>,
        cores: CoreShare,
    ) -> Result<Tenant, Failure> {
        let mut command = self.command(&self.vcuda);
        command.args(["run", "--name", name, "--gpu", &self.gpu.uuid.to_string()]);
        command.args(["--cores", &cores.percent()]);
        if let Some(memory) = memory {
            command.args(["--memory", &format!("{}B", memory.0)]);
        }
        self.start(name, command)
    }

    /// Starts another process of a running tenant.
    pub(crate) fn join(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = self.command(&self.vcuda);
        command.args(["run", "--name", name, "--gpu", &self.gpu.uuid.to_string()]);
        self.start(name, command)
    }

    /// Starts a process in a grant of the fixture's manager.
    pub(crate) fn granted(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = self.command(&self.vcuda);
        command.args(["run", "--grant", name]);
        self.start(name, command)
    }

    /// Starts the same program without the shim, so without a quota.
    pub(crate) fn bare(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = match &self.inventory {
            Inventory::Simulated(_) => {
                let mut command = self.command(&self.vcuda);
                command.args(["sim", "--"]).arg(&self.executable);
                command
            }
            Inventory::Real(_) => self.command(&self.executable),
        };
        command.env(ENV_VISIBLE, self.gpu.uuid.to_string()).arg(TENANT);
        Tenant::start(name, &mut command)
    }

    fn start(&self, name: &str, mut command: Command) -> Result<Tenant, Failure> {
        if self.is_simulated() {
            command.arg("--sim");
        }
        command.arg("--").arg(&self.executable).arg(TENANT);
        Tenant::start(name, &mut command)
    }

    /// Whether the GPU is a simulated one.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.inventory, Inventory::Simulated(_))
    }

    /// A command for a program of vcuda with the fixture's GPU and tenants.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env(ENV_RUNTIME, self.home.path())
            // The user's manager, or one of the system, has other GPUs and tenants.
            .env(ENV_MANAGER, self.manager_socket());
        match &self.inventory {
            Inventory::Simulated(_) => command.env(ENV_MACHINE, self.home.path().join("machine")),
            // The user's simulated machine and its libraries are not used.
            Inventory::Real(_) => command.env_remove(ENV_MACHINE),
        };
        command
    }

    /// Directory of one of its tenants.
    pub(crate) fn tenant_directory(&self, name: &str) -> PathBuf {
        self.runtime_root().join("containers").join(name)
    }

    /// PID of its manager, as that wrote it into its lock.
    pub(crate) fn manager_pid(&self) -> Result<i32, Failure> {
        let lock = self.runtime_root().join("manager.lock");
        std::fs::read_to_string(lock).map_err(failed)?.parse().map_err(failed)
    }

    /// Socket of its manager.
    fn manager_socket(&self) -> PathBuf {
        self.runtime_root().join(SOCKET_NAME)
    }

    fn runtime_root(&self) -> PathBuf {
        self.home.path().join("vcuda")
    }

    /// Waits until the manager has ended with the last tenant, then removes everything.
    pub(crate) fn clear(self) {
        for _ in 0..100 {
            if !self.manager_socket().exists() {
                break;
            }
            thread::sleep(Duration::from_millis(30));
        }
        if let Err(error) = self.home.close() {
            let _ =
                writeln!(std::io::stderr(), "vcuda: a directory of tenants could not be removed: {error}");
        }
    }
}

/// A fresh machine with one GPU.
fn simulated(home: &TempDir) -> Result<Inventory, Failure> {
    let machine = Machine::create(&home.path().join("machine"), &Config::default());
    machine.map(Inventory::Simulated).map_err(failed)
}

/// Removes the directory of a program that was killed by SIGKILL.
fn remove_abandoned(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        let is_gone = |pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        if pid.is_some_and(is_gone) {
            // If it cannot be removed, it does no harm.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
