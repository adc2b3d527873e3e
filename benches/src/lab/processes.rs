//! Processes of a tenant: start, stop, continue and kill while time is paused.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context as _, Result, bail, ensure};

use super::Lab;

/// A process of a tenant. Its service still counts after its death.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    was_killed: bool,
}

impl Lab {
    /// Starts a further process of a tenant with the quota of its start. Returns its number within the tenant.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn join(&mut self, tenant: usize, quota: &[&str], program: &[&str]) -> Result<usize> {
        let of = self.tenants.get(tenant).context("no such tenant")?;
        let mut command = self.vcuda(&["run", "--sim", "--name", &of.name]);
        command.args(quota).arg("--").arg(&self.program).args(program);
        let child = self.begin(&mut command)?;
        let processes = &mut self.tenants.get_mut(tenant).context("no such tenant")?.processes;
        processes.push(Process { child, was_killed: false });
        Ok(processes.len() - 1)
    }

    /// Checks that no process has ended other than by [`Lab::kill`]. One that exits has ended, however long that takes in real
    /// time: the others' time goes on meanwhile.
    ///
    /// # Errors
    /// Fails if one has.
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

    /// Kills a process at once.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub fn kill(&mut self, tenant: usize, process: usize) -> Result<()> {
        let of = self.tenants.get_mut(tenant).context("no such tenant")?;
        let process = of.processes.get_mut(process).context("no such process")?;
        process.was_killed = true;
        process.child.kill()?;
        process.child.wait()?;
        self.world.end_process(process.child.id());
        Ok(())
    }

    /// Stops a process (SIGSTOP) at once. Its work on the GPU goes on.
    ///
    /// # Errors
    /// Fails if it has ended, or is stopped already.
    pub fn stop(&self, tenant: usize, process: usize) -> Result<()> {
        let pid = self.pid(tenant, process)?;
        ensure!(!self.world.is_stopped(pid), "process {pid} is stopped already");
        Ok(self.world.stop(pid)?)
    }

    /// Continues a stopped process.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn resume(&self, tenant: usize, process: usize) -> Result<()> {
        Ok(self.world.resume(self.pid(tenant, process)?)?)
    }

    /// Whether a process is stopped, by [`Lab::stop`] or by itself.
    ///
    /// # Errors
    /// Fails if it was killed.
    pub fn is_stopped(&self, tenant: usize, process: usize) -> Result<bool> {
        Ok(self.world.is_stopped(self.pid(tenant, process)?))
    }

    /// The tenant's directory.
    ///
    /// # Errors
    /// Fails if there is no such tenant.
    pub fn directory(&self, tenant: usize) -> Result<PathBuf> {
        let tenant = self.tenants.get(tenant).context("no such tenant")?;
        Ok(self.dir.path().join("run/vcuda/containers").join(&tenant.name))
    }

    fn pid(&self, tenant: usize, process: usize) -> Result<u32> {
        let process = self.tenants.get(tenant).and_then(|of| of.processes.get(process));
        let process = process.filter(|process| !process.was_killed);
        Ok(process.context("no such process")?.child.id())
    }
}
