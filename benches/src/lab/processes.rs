//! The processes of a tenant: they begin, are stopped, continued and killed, while time stands still.

use std::process::Child;

use anyhow::{Context as _, Result, bail, ensure};

use super::Lab;

/// A process of a tenant. Its service counts after its death.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    was_killed: bool,
}

impl Lab {
    /// Begins one more process of a tenant that has been started; its number among the tenant's. `quota` is as at the start.
    ///
    /// # Errors
    /// It does not begin.
    pub fn join(&mut self, tenant: usize, quota: &[&str], program: &[&str]) -> Result<usize> {
        let of = self.tenants.get(tenant).context("no such tenant")?;
        let mut command = self.vcuda(&["run", "--sim", "--name", &of.name]);
        command.args(quota).arg("--").arg(&self.program).args(program);
        let child = self.begin(&mut command)?;
        let processes = &mut self.tenants.get_mut(tenant).context("no such tenant")?.processes;
        processes.push(Process {
            child,
            was_killed: false,
        });
        Ok(processes.len() - 1)
    }

    /// Fails if a process has ended that was not killed here.
    ///
    /// # Errors
    /// One has.
    pub fn are_alive(&mut self) -> Result<()> {
        let all = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.processes);
        for process in all.filter(|process| !process.was_killed) {
            if let Some(ended) = process.child.try_wait()? {
                bail!("a tenant's process has ended: {ended}");
            }
        }
        Ok(())
    }

    /// Kills a process, whatever it does.
    ///
    /// # Errors
    /// There is no such process.
    pub fn kill(&mut self, tenant: usize, process: usize) -> Result<()> {
        let of = self.tenants.get_mut(tenant).context("no such tenant")?;
        let process = of.processes.get_mut(process).context("no such process")?;
        process.was_killed = true;
        process.child.kill()?;
        process.child.wait()?;
        self.world.end_process(process.child.id());
        Ok(())
    }

    /// Stops a process (SIGSTOP), whatever it does. Its work on the GPU goes on.
    ///
    /// # Errors
    /// It is over, or stopped already.
    pub fn stop(&self, tenant: usize, process: usize) -> Result<()> {
        let pid = self.pid(tenant, process)?;
        ensure!(!self.world.is_stopped(pid), "process {pid} is stopped already");
        Ok(self.world.stop(pid)?)
    }

    /// Continues a process that was stopped here, or stopped itself.
    ///
    /// # Errors
    /// It is over.
    pub fn resume(&self, tenant: usize, process: usize) -> Result<()> {
        Ok(self.world.resume(self.pid(tenant, process)?)?)
    }

    /// Whether a process is stopped, here or by itself.
    ///
    /// # Errors
    /// It was killed.
    pub fn is_stopped(&self, tenant: usize, process: usize) -> Result<bool> {
        Ok(self.world.is_stopped(self.pid(tenant, process)?))
    }

    fn pid(&self, tenant: usize, process: usize) -> Result<u32> {
        let process = self.tenants.get(tenant).and_then(|of| of.processes.get(process));
        let process = process.filter(|process| !process.was_killed);
        Ok(process.context("no such process")?.child.id())
    }
}
