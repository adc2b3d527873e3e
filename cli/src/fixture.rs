//! Where `demo` and `bench` play: a GPU, a private runtime directory, tenants that end with it. The tenants are this program
//! again, under `vcuda run` like any other.

pub(crate) mod interrupt;
pub(crate) mod manager;
pub(crate) mod program;
pub(crate) mod protocol;
pub(crate) mod record;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tempfile::TempDir;
use vcuda_machine::{Config, Machine};
use vcuda_region::directory;

use crate::config::{ENV_MACHINE, ENV_RUNTIME, ENV_VISIBLE, Environment};
use crate::failure::{Failure, failed};
use crate::inventory::{self, Gpu, GpuSelector, Inventory};
use crate::libraries;
use crate::smi::{Scope, Watch};
use protocol::{Reply, Request, Shape, Work};
use vcuda_quota::{CoreShare, MemorySize};

/// How long a tenant may take to answer: a first launch compiles PTX.
const ANSWER: Duration = Duration::from_secs(20);
/// How the private directories begin; the process's id follows.
const PREFIX: &str = "fixture-";
/// The hidden command that is the tenants' program ([`program`]).
const PROGRAM: &str = "fixture-tenant";

/// Which kind of GPU is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A fresh simulated machine.
    Simulated,
    /// A real one and nothing else.
    Real,
    /// A real one, else a fresh simulated machine.
    Any,
}

impl Ground {
    /// A real GPU unless `--sim` was given.
    pub(crate) fn asked(is_simulated: bool, otherwise: Ground) -> Ground {
        if is_simulated {
            Ground::Simulated
        } else {
            otherwise
        }
    }
}

/// One GPU and a private runtime directory, so that other tenants of this user are neither shown nor touched.
#[derive(Debug)]
pub(crate) struct Fixture {
    home: TempDir,
    executable: PathBuf,
    inventory: Inventory,
    gpu: Gpu,
    why_simulated: String,
}

impl Fixture {
    /// A GPU of that kind: the one that is asked for, else the one with the most free memory.
    ///
    /// # Errors
    /// A library of vcuda is missing, no such GPU, no place for the directory.
    pub(crate) fn set_up(
        ground: Ground,
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
        // Said here, and not by a tenant that does not start.
        libraries::shim(&root)?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let home = tempfile::Builder::new().prefix(&prefix).tempdir_in(&root);
        let home = home.map_err(|error| Failure::access("create a directory in", &root, &error))?;
        let (inventory, why_simulated) = match ground {
            Ground::Simulated => (simulated(&home)?, "as asked".to_owned()),
            Ground::Real => (Inventory::real()?, String::new()),
            Ground::Any => match Inventory::real() {
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
            executable: libraries::executable()?,
            inventory,
            gpu,
            why_simulated,
        })
    }

    /// What it plays on, in words.
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

    /// The GPU as it was found.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The amount that the demo counts in: 1 GiB, less where the GPU has not 16 of them free.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let free = self
            .gpu
            .memory_total_bytes
            .saturating_sub(self.gpu.memory_used_bytes);
        (free / 16).min(1 << 30) >> 20 << 20
    }

    /// Where the GPU is.
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Looks at its tenants, as `vcuda smi` does.
    pub(crate) fn watch(&self) -> Result<Watch, Failure> {
        Watch::new(Scope::User(self.runtime_root()))
    }

    /// Runs `vcuda` with these arguments to its end.
    pub(crate) fn vcuda(&self, arguments: &[&str]) -> Result<(), Failure> {
        let output = self
            .command()
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::Failed(format!(
            "`vcuda {}` failed: {words}",
            arguments.join(" ")
        )))
    }

    /// Starts a tenant: `vcuda run <options> -- vcuda fixture-tenant`. Without `memory` it may have the whole GPU.
    pub(crate) fn tenant(
        &self,
        name: &str,
        memory: Option<MemorySize>,
        cores: CoreShare,
    ) -> Result<Tenant, Failure> {
        let mut command = self.command();
        command.args(["run", "--name", name, "--gpu", &self.gpu.uuid.to_string()]);
        command.args(["--cores", &cores.percent()]);
        if let Some(memory) = memory {
            command.args(["--memory", &memory.0.to_string()]);
        }
        self.start(name, command)
    }

    /// Starts another process of a tenant that runs already.
    pub(crate) fn join(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = self.command();
        command.args(["run", "--name", name, "--gpu", &self.gpu.uuid.to_string()]);
        self.start(name, command)
    }

    /// Starts a process in a grant of the fixture's manager.
    pub(crate) fn granted(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = self.command();
        command.args(["run", "--grant", name]);
        self.start(name, command)
    }

    /// Starts the same program without the shim, so without a quota.
    pub(crate) fn bare(&self, name: &str) -> Result<Tenant, Failure> {
        let mut command = self.command();
        match &self.inventory {
            Inventory::Simulated(_) => {
                command.args(["sim", "--"]).arg(&self.executable);
            }
            Inventory::Real(_) => {}
        }
        command.env(ENV_VISIBLE, self.gpu.uuid.to_string()).arg(PROGRAM);
        Tenant::start(name, &mut command)
    }

    fn start(&self, name: &str, mut command: Command) -> Result<Tenant, Failure> {
        if self.is_simulated() {
            command.arg("--sim");
        }
        command.arg("--").arg(&self.executable).arg(PROGRAM);
        Tenant::start(name, &mut command)
    }

    /// Whether the GPU is a simulated one.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.inventory, Inventory::Simulated(_))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.env(ENV_RUNTIME, self.home.path());
        match &self.inventory {
            Inventory::Simulated(_) => command.env(ENV_MACHINE, self.home.path().join("machine")),
            // Not the user's simulated machine, nor its libraries.
            Inventory::Real(_) => command.env_remove(ENV_MACHINE),
        };
        command
    }

    /// Where the files of one of its tenants are.
    pub(crate) fn tenant_directory(&self, name: &str) -> PathBuf {
        self.runtime_root().join("containers").join(name)
    }

    /// The processes that apportion GPU time between its tenants.
    pub(crate) fn arbiters(&self) -> Vec<i32> {
        vcuda_arbiter::processes(&self.runtime_root())
    }

    fn runtime_root(&self) -> PathBuf {
        self.home.path().join("vcuda")
    }

    /// Waits until the arbiter has seen that no tenant is left, then removes everything.
    pub(crate) fn clear(self) {
        for _ in 0..100 {
            if !vcuda_arbiter::is_running(&self.runtime_root()) {
                break;
            }
            thread::sleep(Duration::from_millis(30));
        }
        if let Err(error) = self.home.close() {
            let _ = writeln!(
                std::io::stderr(),
                "vcuda: a directory of tenants could not be removed: {error}"
            );
        }
    }
}

/// A fresh machine with one GPU.
fn simulated(home: &TempDir) -> Result<Inventory, Failure> {
    let machine = Machine::create(&home.path().join("machine"), &Config::default());
    machine.map(Inventory::Simulated).map_err(failed)
}

/// What somebody left who was killed with SIGKILL.
fn remove_abandoned(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next()?.parse().ok());
        let is_gone = |pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        if pid.is_some_and(is_gone) {
            // If it cannot be removed it harms nobody.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A running tenant. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<String>,
}

impl Tenant {
    fn start(name: &str, command: &mut Command) -> Result<Tenant, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Failed("the tenant has no pipes".to_owned()));
        };
        let (sender, replies) = channel();
        let reader = thread::Builder::new()
            .name(format!("tenant {name}"))
            .spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        reader.map_err(failed)?;
        let mut tenant = Tenant {
            name: name.to_owned(),
            child,
            stdin,
            replies,
        };
        tenant.expect_done()?;
        Ok(tenant)
    }

    /// Its process: `run` has become the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.stdin
            .write_all(&line)
            .map_err(|error| self.broken(&error.to_string()))?;
        self.answer()
    }

    /// Kernels of a millisecond each, launched one by one with enough in flight to keep the GPU busy.
    pub(crate) fn work_of_a_millisecond(&mut self) -> Result<Work, Failure> {
        match self.ask(Request::Calibrate)? {
            Reply::Calibrated { iterations_per_ms } => Ok(Work {
                iterations: iterations_per_ms,
                shape: Shape::Launches,
                group: 1,
                depth: 8,
            }),
            other => Err(self.broken(&format!("asked for the GPU's rate, got {other:?}"))),
        }
    }

    /// Asks for something that must succeed.
    pub(crate) fn must(&mut self, request: Request) -> Result<(), Failure> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(self.broken(&format!("{request:?} was answered with {other:?}"))),
        }
    }

    fn expect_done(&mut self) -> Result<(), Failure> {
        match self.answer()? {
            Reply::Ready => Ok(()),
            other => Err(self.broken(&format!("it could not start: {other:?}"))),
        }
    }

    fn answer(&mut self) -> Result<Reply, Failure> {
        let line = self.replies.recv_timeout(ANSWER).map_err(|_| {
            let ended = self.child.try_wait().ok().flatten();
            self.broken(&ended.map_or_else(|| "no answer".to_owned(), |status| format!("it ended: {status}")))
        })?;
        match serde_json::from_str(&line).map_err(failed)? {
            Reply::Failed { message } => Err(self.broken(&message)),
            reply => Ok(reply),
        }
    }

    fn broken(&self, what: &str) -> Failure {
        Failure::Failed(format!("tenant {} (process {}): {what}", self.name, self.pid()))
    }

    /// SIGKILL, and the kernel's word that it is gone.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(drop)
            .map_err(failed)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
