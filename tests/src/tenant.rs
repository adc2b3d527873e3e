//! A tenant with many processes, each started without `vcuda`, for tests that start hundreds.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde_json::Value;

use vcuda_machine::Machine;
use vcuda_quota::Quota;
use vcuda_region::clock;
use vcuda_region::directory::{self, Directory};

use crate::{Fixture, Running, release_dir, succeeded};

/// A tenant that exists until drop, with the environment of its processes.
#[derive(Debug)]
pub struct Tenant<'b> {
    fixture: &'b Fixture,
    name: String,
    environment: BTreeMap<String, String>,
    keeper: Option<Running>,
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
        Tenant { fixture: self, name: name.to_owned(), environment, keeper: Some(keeper) }
    }
}

impl Fixture {
    /// Makes a tenant with this memory limit as a manager does, for tests that play the manager.
    pub fn made(&self, name: &str, memory_bytes: u64) -> Tenant<'_> {
        let machine = Machine::open_or_create(&self.machine()).unwrap();
        let config = Quota { memory_bytes: Some(memory_bytes), ..Quota::UNLIMITED }.config();
        let devices = machine.config().gpus.iter().map(|gpu| (gpu.uuid.parse().unwrap(), config)).collect();
        let tenant = directory::Tenant::new(name, devices);
        let root = self.runtime().join("vcuda");
        let made = Directory::create(&root, &tenant, b"", None, clock::now_ns()).unwrap();
        let path = made.path();
        let shown = succeeded(&self.bare("env").output().unwrap());
        let lines = shown.lines().filter_map(|line| line.split_once('='));
        let mut environment: BTreeMap<String, String> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let shim = release_dir().join("libvcuda_shim.so");
        environment.insert("LD_PRELOAD".to_owned(), shim.display().to_string());
        environment.insert("VCUDA_DIR".to_owned(), path.display().to_string());
        Tenant { fixture: self, name: name.to_owned(), environment, keeper: None }
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
        self.keeper.as_ref().unwrap().0.id()
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
