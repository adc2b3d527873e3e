//! What `vcuda` says in a fixture.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Fixture, Manager, succeeded, text};

impl Fixture {
    /// Output of `vcuda` with these arguments, however it ends.
    pub fn output<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.vcuda(args).output().unwrap()
    }

    /// Its output on stdout, after a check that it succeeded.
    #[track_caller]
    pub fn stdout<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        succeeded(&self.output(args))
    }

    /// Its output on stdout as JSON, after a check that it succeeded.
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let out = self.stdout(args);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// All its output, after a check that it ended with this status.
    #[track_caller]
    pub fn refusal<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, status: i32) -> String {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        text(&output)
    }

    /// Makes a grant of this name with these options.
    #[track_caller]
    pub fn grant(&self, name: &str, options: &[&str]) -> String {
        self.stdout([&["grant", "create", name], options].concat())
    }

    /// The program in a grant: `vcuda run --sim --grant <grant> -- program`.
    pub fn in_grant(&self, grant: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.vcuda(["run", "--sim", "--grant", grant, "--"]);
        command.arg(program);
        command
    }

    /// A manager with this configuration, in `manager.toml` of the fixture's folder.
    pub fn manager_configured(&self, configuration: &str) -> Manager<'_> {
        let file = self.home().join("manager.toml");
        fs::write(&file, configuration).unwrap();
        self.manager_with(&["--config", file.to_str().unwrap()])
    }

    /// Output of `vcuda events`.
    pub fn events(&self) -> String {
        self.stdout(["events"])
    }

    /// Output of `vcuda sim report --json`.
    pub fn report(&self) -> Value {
        self.json(["sim", "report", "--json"])
    }

    /// Output of `vcuda smi --json`.
    pub fn smi(&self) -> Value {
        self.json(["smi", "--json"])
    }

    /// Findings of `vcuda doctor --sim --json`, whether all is well or not.
    pub fn findings(&self) -> Vec<Value> {
        let doctor = self.output(["doctor", "--sim", "--json"]);
        let mut document: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        serde_json::from_value(document["findings"].take()).unwrap()
    }

    /// A tenant on GPU 0 as `vcuda smi` shows it.
    #[track_caller]
    pub fn tenant_shown(&self, name: &str) -> Value {
        let smi = self.smi();
        let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
        let found = tenants.iter().find(|tenant| tenant["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {smi}")).clone()
    }

    /// UUID of a GPU.
    pub fn uuid(&self, gpu: usize) -> String {
        self.report()["gpus"][gpu]["uuid"].as_str().unwrap().to_owned()
    }

    /// GPU time of a process by the simulator's record, over all GPUs (ns).
    pub fn service_ns(&self, pid: u32) -> u64 {
        let report = self.report();
        let rows = report["processes"].as_array().unwrap();
        rows.iter().filter(|p| p["pid"] == pid).map(|p| p["service_ns"].as_u64().unwrap()).sum()
    }

    /// Memory of GPU 0 in use, by the simulator's record (bytes).
    pub fn used_bytes(&self) -> u64 {
        self.report()["gpus"][0]["memory_used_bytes"].as_u64().unwrap()
    }

    /// The most memory of a GPU that ever was in use, by the simulator's record (bytes).
    pub fn peak_bytes(&self, gpu: usize) -> u64 {
        self.report()["gpus"][gpu]["memory_peak_bytes"].as_u64().unwrap()
    }
}
