//! Processes of a tenant: start, stop, continue and kill while time is paused.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use vcuda_cli::args::changed_quota;
use vcuda_quota::Quota;
use vcuda_region::directory::{Directory, Tenant};

use super::Lab;

/// A process of a tenant. Its service still counts after its death.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    was_killed: bool,
}

impl Lab {
    /// Starts a further process of a tenant with the quota of its start. Returns its number within the tenant. Fails if
    /// it does not start.
    pub fn join(&mut self, tenant: usize, quota: &[&str], program: &[&str]) -> Result<usize> {
        let of = self.tenants.get(tenant).context("no such tenant")?;
        let directory = match &of.directory {
            Some(directory) => directory.clone(),
            None => self.make(&of.name, quota)?,
        };
        let mut command = match self.offset_s {
            0 => self.command(&self.program.to_string_lossy()),
            offset_s => {
                let mut command = self.command("/usr/bin/env");
                let offset_s = offset_s.to_string();
                command.args(["unshare", "--time", "--monotonic", &offset_s, "--boottime", &offset_s]);
                command.arg(&self.program);
                command
            }
        };
        self.world.take_part(&mut command);
        command
            .args(program)
            .env("LD_PRELOAD", self.preloads())
            .env("LD_LIBRARY_PATH", self.dir.path().join("driver"))
            .env("VCUDA_DIR", &directory);
        let child = self.begin(&mut command)?;
        self.tenants.get_mut(tenant).context("no such tenant")?.directory = Some(directory);
        let processes = &mut self.tenants.get_mut(tenant).context("no such tenant")?.processes;
        processes.push(Process { child, was_killed: false });
        Ok(processes.len() - 1)
    }

    /// Makes a tenant's directory, as the manager does, or by the manager if there is one.
    fn make(&self, name: &str, quota: &[&str]) -> Result<PathBuf> {
        if self.manager.is_some() {
            let create = ["grant", "create", name, "--directory"];
            return Ok(self.ask(&[&create, quota].concat())?.trim_end().into());
        }
        let config = changed_quota(&Quota::UNLIMITED, quota)?.config();
        // By a program that reads virtual time, as the machine begins when it is first opened.
        let report: Value = serde_json::from_str(&self.ask(&["sim", "report", "--json"])?)?;
        let gpus = report.get("gpus").and_then(Value::as_array).context("no GPUs")?;
        let uuids = gpus.iter().filter_map(|gpu| gpu.get("uuid")?.as_str());
        let devices = uuids.map(|uuid| Ok((uuid.parse()?, config))).collect::<Result<_>>()?;
        let tenant = Tenant::new(name, devices);
        let directory = Directory::create(&self.root(), &tenant, b"", None, self.now_ns())?;
        Ok(directory.path().to_owned())
    }

    /// Checks that no process has ended other than by [`Lab::kill`]. One that exits has ended, however long that takes
    /// in real time: the others' time goes on meanwhile. Fails if one has.
    pub fn are_alive(&mut self) -> Result<()> {
        let all = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.processes);
        for process in all.filter(|process| !process.was_killed) {
            let ended = match self.world.has(process.child.id()) {
                true => process.child.try_wait()?,
                false => Some(process.child.wait()?),
            };
            if let Some(ended) = ended {
                bail!("a tenant's process has ended: {ended}");
            }
        }
        Ok(())
    }

    /// Kills a process at once. Fails if there is no such process.
    pub fn kill(&mut self, tenant: usize, process: usize) -> Result<()> {
        let of = self.tenants.get_mut(tenant).context("no such tenant")?;
        let process = of.processes.get_mut(process).context("no such process")?;
        process.was_killed = true;
        process.child.kill()?;
        process.child.wait()?;
        self.world.end_process(process.child.id());
        Ok(())
    }

    /// Stops a process (SIGSTOP) at once. Its work on the GPU goes on. Fails if it has ended, or is stopped already.
    pub fn stop(&self, tenant: usize, process: usize) -> Result<()> {
        let pid = self.pid(tenant, process)?;
        ensure!(!self.world.is_stopped(pid), "process {pid} is stopped already");
        Ok(self.world.stop(pid)?)
    }

    /// Continues a stopped process. Fails if it has ended.
    pub fn resume(&self, tenant: usize, process: usize) -> Result<()> {
        Ok(self.world.resume(self.pid(tenant, process)?)?)
    }

    /// Whether a process is stopped, by [`Lab::stop`] or by itself. Fails if it was killed.
    pub fn is_stopped(&self, tenant: usize, process: usize) -> Result<bool> {
        Ok(self.world.is_stopped(self.pid(tenant, process)?))
    }

    /// The tenant's directory. Fails if there is no such tenant.
    pub fn directory(&self, tenant: usize) -> Result<PathBuf> {
        let tenant = self.tenants.get(tenant).context("no such tenant")?;
        tenant.directory.clone().context("no process of it was started")
    }

    fn pid(&self, tenant: usize, process: usize) -> Result<u32> {
        let process = self.tenants.get(tenant).and_then(|of| of.processes.get(process));
        let process = process.filter(|process| !process.was_killed);
        Ok(process.context("no such process")?.child.id())
    }
}
