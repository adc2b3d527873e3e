//! A tenant with many processes, each started without `vcuda`, for tests that start hundreds.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Fixture, Running};

/// A tenant that exists until drop, with the environment of its processes.
#[derive(Debug)]
pub struct Tenant<'b> {
    fixture: &'b Fixture,
    name: String,
    environment: BTreeMap<String, String>,
    keeper: Running,
}

impl Fixture {
    /// Makes a tenant with this quota, kept by a shell without CUDA.
    pub fn keep(&self, name: &str, quota: &[&str]) -> Tenant<'_> {
        let mut keeper = self.tenant(&[quota, &["--name", name]].concat(), "/bin/sh");
        keeper.args(["-c", "env; echo kept; exec sleep 100000"]);
        let mut keeper = Running::start(&mut keeper);
        let mut environment = BTreeMap::new();
        loop {
            let line = keeper.wait_for("");
            if line == "kept" {
                break;
            }
            if let Some((variable, value)) = line.split_once('=') {
                environment.insert(variable.to_owned(), value.to_owned());
            }
        }
        Tenant { fixture: self, name: name.to_owned(), environment, keeper }
    }
}

impl Tenant<'_> {
    /// A command for one more process of this tenant.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.environment).stdin(Stdio::null());
        command
    }

    /// The directory with `limits` and `usage`.
    pub fn directory(&self) -> std::path::PathBuf {
        self.environment["VCUDA_DIR"].clone().into()
    }

    /// Value of a variable in the environment of its processes.
    pub fn variable(&self, name: &str) -> &str {
        &self.environment[name]
    }

    /// PID of the shell that keeps it.
    pub fn keeper(&self) -> u32 {
        self.keeper.0.id()
    }

    /// Its entry in `vcuda smi --json` on a GPU.
    pub fn smi(&self, gpu: usize) -> Value {
        let all = self.fixture.smi();
        let tenants = all["gpus"][gpu]["tenants"].as_array().unwrap();
        let found = tenants.iter().find(|tenant| tenant["name"] == self.name.as_str());
        found.unwrap_or_else(|| panic!("no {} in {all}", self.name)).clone()
    }

    /// Memory of the tenant on GPU 0 by `vcuda smi` (bytes).
    pub fn used_bytes(&self) -> u64 {
        self.smi(0)["memory_used_bytes"].as_u64().unwrap()
    }
}
