//! Processes of the tenants, under the shim.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Stage, lab};
use vcuda_manager_api::v1::Grant;

use crate::daemon::vcuda;

/// Running tenants, killed on drop.
#[derive(Debug)]
pub(crate) struct Tenants<'s> {
    stage: &'s Stage,
    place: &'s Path,
    load: PathBuf,
    idle: Vec<Child>,
    busy: Vec<Child>,
}

impl<'s> Tenants<'s> {
    pub(crate) fn new(stage: &'s Stage, place: &'s Path) -> Result<Self> {
        let load = place.join("load");
        lab::compile(&load)?;
        Ok(Self { stage, place, load, idle: Vec::new(), busy: Vec::new() })
    }

    fn in_grant(&self, grant: &Grant) -> Command {
        let mut command = vcuda(self.stage, self.place);
        command
            .args(["run", "--sim", "--grant", &grant.id, "--"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Starts a process that holds memory and waits.
    pub(crate) fn idle(&mut self, grant: &Grant) -> Result<()> {
        let gpu = grant.gpu_uuids.first().context("no GPU")?;
        let mut command = self.in_grant(grant);
        command
            .arg("env")
            .arg(format!("LD_LIBRARY_PATH={}", self.stage.dir().display()))
            .arg(format!("NOOP_GPU={gpu}"))
            .arg(self.stage.program("idle"));
        self.idle.push(command.spawn()?);
        Ok(())
    }

    /// Waits until each process holds its memory.
    pub(crate) fn until_idle(&mut self) -> Result<()> {
        for child in &mut self.idle {
            let mut said = [0; 4];
            let stdout = child.stdout.as_mut().context("no output")?;
            stdout.read_exact(&mut said).context("a process did not start")?;
            ensure!(said == *b"idle", "{:?}", String::from_utf8_lossy(&said));
        }
        Ok(())
    }

    /// Starts a process that saturates its GPU.
    pub(crate) fn saturate(&mut self, grant: &Grant) -> Result<()> {
        let mut command = self.in_grant(grant);
        command.arg(&self.load).args(["kernel", "1000000"]);
        self.busy.push(command.spawn()?);
        Ok(())
    }

    /// Number of saturating processes.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }
}

impl Drop for Tenants<'_> {
    fn drop(&mut self) {
        // They may be gone already.
        for child in self.idle.iter_mut().chain(&mut self.busy) {
            let _ = child.kill();
        }
        for child in self.idle.iter_mut().chain(&mut self.busy) {
            let _ = child.wait();
        }
    }
}
