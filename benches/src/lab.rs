//! Experiments in virtual time: the built shim, simulated driver and arbiter, each process under
//! `libvcuda_virtual_clock.so`. A tenant's service is the simulator's exact record. A manager, in place of the arbiter, only
//! reads virtual time.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vcuda_cli::args::changed_quota;
use vcuda_clock::{Costs, World};
use vcuda_quota::Quota;
use vcuda_region::limits::LimitsWriter;

use processes::Process;
use processor::Processor;

use crate::{cc, release_dir};

mod manager;
mod processes;
mod processor;

/// Maximum real time for the start of a process.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
/// Virtual time for the start of a tenant (ns).
const START_NS: u64 = 100_000_000;

/// A simulated machine, a user's runtime directory and an arbiter in their own virtual time.
#[derive(Debug)]
pub struct Lab {
    dir: tempfile::TempDir,
    release: PathBuf,
    program: PathBuf,
    world: World,
    processor: Processor,
    arbiter: Option<Child>,
    manager: Option<Child>,
    tenants: Vec<Tenant>,
    /// Offset of the clocks of processes to start, see [`Lab::shift`].
    offset_s: i64,
    /// Refinements of the limiter to leave out, see [`Lab::leave_out`].
    without: String,
    /// See [`Lab::without_shim`].
    is_bare: bool,
}

/// Processes of a tenant.
#[derive(Debug)]
struct Tenant {
    name: String,
    /// Its directory, made by its first process.
    directory: Option<PathBuf>,
    processes: Vec<Process>,
}

/// A tenant to start: options of its quota as for `vcuda run`, and the program (`apps/load.c`).
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Options of `vcuda run`.
    pub quota: &'a [&'a str],
    /// Arguments of the program.
    pub program: &'a [&'a str],
    /// Number of processes.
    pub processes: usize,
}

/// Compiles `apps/load.c` into `to`. Fails without a C compiler.
pub fn compile(to: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/load.c");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wno-unused", "-DVIA_DLSYM", "-o"]);
    cc(command.arg(to).arg(source).args(["-ldl", "-lpthread", "-lm"]))
}

impl Lab {
    /// A lab for `program` ([`compile`]) on a machine with this `machine.toml`. Fails without a release build.
    pub fn new(program: &Path, machine: &str) -> Result<Lab> {
        let release = release_dir()?;
        // In memory, as nothing outlives the lab.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let at = |name: &str| dir.path().join(name);
        let library = release.join("libvcuda_virtual_clock.so");
        ensure!(library.exists(), "no {}: run `cargo build --release --workspace` first", library.display());
        let world = World::create(&at("clock"), &library, Costs::default())?;
        std::fs::create_dir(at("machine"))?;
        std::fs::write(at("machine/machine.toml"), machine)?;
        std::fs::create_dir_all(at("run/vcuda"))?;
        std::fs::create_dir(at("driver"))?;
        for (name, library) in [("libcuda.so.1", "cuda"), ("libnvidia-ml.so.1", "nvml")] {
            let library = release.join(format!("libvcuda_simulator_{library}.so"));
            symlink(library, at("driver").join(name))?;
        }
        Ok(Lab {
            release,
            program: program.to_owned(),
            world,
            processor: Processor::next()?,
            arbiter: None,
            manager: None,
            tenants: Vec::new(),
            offset_s: 0,
            without: String::new(),
            is_bare: false,
            dir,
        })
    }

    /// Leaves out refinements (names separated by commas) of programs built with the feature `ablation`.
    pub fn leave_out(&mut self, refinements: &str) {
        refinements.clone_into(&mut self.without);
    }

    /// Whether tenants' processes start without the shim from now on: plain programs, with no limits.
    pub fn without_shim(&mut self, is_bare: bool) {
        self.is_bare = is_bare;
    }

    /// Starts tenants' processes from now on in time namespaces (time_namespaces(7)) whose clocks are ahead by this offset (s); 0: in none.
    /// Needs unshare(1), and the right to use it.
    pub fn shift(&mut self, offset_s: i64) {
        self.offset_s = offset_s;
    }

    fn vcuda(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("vcuda");
        command.args(arguments);
        command
    }

    /// A program of the release in the lab's environment.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.release.join(name));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VCUDA_"))
        {
            command.env_remove(name);
        }
        command
            .env("VCUDA_SIM", self.dir.path().join("machine"))
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("VCUDA_WITHOUT", &self.without)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Starts a command that takes part ([`World::take_part`]).
    fn begin(&self, command: &mut Command) -> Result<Child> {
        let child = command.spawn()?;
        ensure!(self.world.await_part(child.id(), BEGINS_WITHIN), "{command:?} did not begin");
        // It waits for its first turn, before `main`: it has no other thread yet.
        self.processor.keep(child.id())?;
        Ok(child)
    }

    /// Starts a tenant, and lets its start-up time pass. Returns its number. Fails if it does not start.
    pub fn start(&mut self, load: Load<'_>) -> Result<usize> {
        let number = self.tenants.len();
        self.tenants.push(Tenant { name: format!("tenant{number}"), directory: None, processes: Vec::new() });
        for _ in 0..load.processes {
            self.join(number, load.quota, load.program)?;
            // The first process makes the directory that the others join.
            self.run_for(1_000_000)?;
        }
        if self.arbiter.is_none() && self.manager.is_none() {
            let mut command = self.command("vcuda-manager");
            command.arg("--only-divide").arg("--root").arg(self.root());
            self.world.take_part(&mut command);
            self.arbiter = Some(self.begin(&mut command)?);
        }
        self.run_for(START_NS)?;
        self.are_alive()?;
        Ok(number)
    }

    /// Virtual time (ns).
    pub fn now_ns(&self) -> u64 {
        self.world.now_ns()
    }

    /// Lets time pass (ns). Fails if a process blocks the world.
    pub fn run_for(&self, ns: u64) -> Result<()> {
        if self.manager.is_some() {
            return self.run_beside_manager(ns);
        }
        Ok(self.world.run_until(self.world.now_ns() + ns)?)
    }

    /// Runs `vcuda` while time is paused. Returns its output. Fails if the command fails.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.vcuda(arguments);
        self.world.look_on(&mut command);
        crate::printed(command.stdout(Stdio::piped()))
    }

    /// Changes a tenant's quota, by options of `vcuda set`. Fails if it is refused.
    pub fn set(&self, tenant: usize, quota: &[&str]) -> Result<()> {
        let directory = self.directory(tenant)?;
        let mut writer = LimitsWriter::open(&directory)?;
        let devices: Vec<_> = writer.limits().devices().map(|(device, _)| device).collect();
        for device in devices {
            let now = Quota::of(&writer.limits().config(device)?);
            writer.set_config(device, &changed_quota(&now, quota)?.config(), self.now_ns())?;
        }
        Ok(())
    }

    /// `LD_PRELOAD` of a tenant's programs.
    fn preloads(&self) -> String {
        let libraries = ["libvcuda_virtual_clock.so", "libvcuda_shim.so"];
        let libraries = libraries.iter().take(if self.is_bare { 1 } else { 2 });
        libraries
            .map(|library| self.release.join(library).display().to_string())
            .collect::<Vec<_>>()
            .join(":")
    }

    /// The runtime directory with the tenants.
    fn root(&self) -> PathBuf {
        self.dir.path().join("run/vcuda")
    }

    /// Service so far by the simulator's record, by tenant and process (ns). Fails if the record cannot be read.
    pub fn service_ns(&self) -> Result<Vec<Vec<u64>>> {
        Ok(self.record_ns()?.0)
    }

    /// Service so far by tenant and process, and the time of context switches (ns). Fails if `vcuda sim report` fails.
    pub fn record_ns(&self) -> Result<(Vec<Vec<u64>>, u64)> {
        let report: Value = serde_json::from_str(&self.ask(&["sim", "report", "--json"])?)?;
        let rows = report.get("processes").and_then(Value::as_array).context("no processes")?;
        let of = |process: &Process| -> u64 {
            let own =
                |row: &&Value| row.get("pid").and_then(Value::as_u64) == Some(process.child.id().into());
            let services = rows.iter().filter(own).filter_map(|row| row.get("service_ns")?.as_u64());
            services.sum()
        };
        let tenants = self.tenants.iter();
        let services = tenants.map(|tenant| tenant.processes.iter().map(of).collect());
        let gpus = report.get("gpus").and_then(Value::as_array).context("no GPUs")?;
        let switched = gpus.iter().filter_map(|gpu| gpu.get("switched_ns")?.as_u64());
        Ok((services.collect(), switched.sum()))
    }

    /// Time for which each GPU was busy, by the simulator's record (ns). Fails if there are not so many GPUs.
    pub fn busy_ns<const GPUS: usize>(&self) -> Result<[u64; GPUS]> {
        let report: Value = serde_json::from_str(&self.ask(&["sim", "report", "--json"])?)?;
        let gpus = report.get("gpus").and_then(Value::as_array).context("no GPUs")?;
        let busy: Vec<u64> = gpus.iter().filter_map(|gpu| gpu.get("busy_ns")?.as_u64()).collect();
        busy.try_into().ok().context("another number of GPUs")
    }

    /// Share of each tenant in each of `count` windows (1 is the whole GPU).
    pub fn windows(&self, count: usize, window_ns: u64) -> Result<Vec<Vec<f64>>> {
        let sums = |all: Vec<Vec<u64>>| -> Vec<u64> { all.iter().map(|one| one.iter().sum()).collect() };
        let mut before = sums(self.service_ns()?);
        let mut shares = vec![Vec::with_capacity(count); before.len()];
        for _ in 0..count {
            self.run_for(window_ns)?;
            let after = sums(self.service_ns()?);
            for ((share, after), before) in shares.iter_mut().zip(&after).zip(&before) {
                share.push(ratio(after.saturating_sub(*before), window_ns));
            }
            before = after;
        }
        Ok(shares)
    }
}

/// A duration as a fraction of another.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn ratio(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns as f64
}

impl Drop for Lab {
    fn drop(&mut self) {
        let tenants = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.processes);
        let children = tenants.map(|process| &mut process.child);
        for child in children.chain(&mut self.arbiter) {
            // It may have ended already. Time is paused, so none of them holds a lock.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(manager) = &mut self.manager {
            manager::end(manager);
        }
    }
}
