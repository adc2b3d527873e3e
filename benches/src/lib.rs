//! Common parts of the benchmarks: release build, no-op driver, and programs.
#![warn(clippy::too_many_lines)]

pub mod accuracy;
pub mod lab;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
pub use vcuda_figures::{least, median};

/// Driver of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// `apps/noop.c`, which does nothing, so that only the hook remains.
    Noop,
    /// The driver that only takes time (`apps/timed.c`).
    Timed,
    /// The simulated driver.
    Simulated,
}

/// Options of a benchmark: `[--check] [--brief] [NUMBER...]`.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether to exit with 1 if a goal is missed. Timings depend on other load: not for CI.
    pub check: bool,
    /// Whether to run as briefly as possible, to see that it works; the figures mean nothing.
    pub brief: bool,
    /// Sizes for which the benchmark runs.
    pub numbers: Vec<usize>,
    missed: Vec<String>,
}

impl Options {
    /// Parses the options of this program. Fails for any other argument.
    pub fn from_arguments() -> Result<Self> {
        let mut options = Self::default();
        for argument in std::env::args().skip(1) {
            match argument.as_str() {
                "--check" => options.check = true,
                "--brief" => options.brief = true,
                number => options.numbers.push(
                    number
                        .parse()
                        .with_context(|| format!("{number:?}: neither --check nor --brief nor a number"))?,
                ),
            }
        }
        Ok(options)
    }

    /// `usual`, or 1 for a brief run.
    pub fn rounds(&self, usual: usize) -> usize {
        if self.brief { 1 } else { usual }
    }

    /// Checks that a figure is at most its goal.
    pub fn at_most(&mut self, what: &str, got: f64, goal: f64) {
        if got.is_nan() || got > goal {
            self.missed.push(format!("{what}: {got:.2}, goal at most {goal}"));
        }
    }

    /// Checks that a figure is at least its goal.
    pub fn at_least(&mut self, what: &str, got: f64, goal: f64) {
        if got.is_nan() || got < goal {
            self.missed.push(format!("{what}: {got:.2}, goal at least {goal}"));
        }
    }

    fn has_failed(&self) -> bool {
        self.check && !self.missed.is_empty()
    }

    /// Prints the missed goals. Exit status 1 if there are any and `check` is set.
    #[expect(clippy::print_stdout, reason = "for the benchmarks' programs")]
    pub fn verdict(self) -> ExitCode {
        for missed in &self.missed {
            println!("missed: {missed}");
        }
        if self.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Fixture: a folder with the no-op driver, programs linked against it, a simulated machine, a runtime directory in memory,
/// and the release build.
#[derive(Debug)]
pub struct Stage {
    dir: tempfile::TempDir,
    runtime: tempfile::TempDir,
    release: PathBuf,
}

impl Stage {
    /// Compiles the driver and these programs of `apps/`. Fails without a release build or a C compiler.
    pub fn new(programs: &[&str]) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stage = Self {
            dir: tempfile::tempdir()?,
            // In memory, as `XDG_RUNTIME_DIR` usually is.
            runtime: tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?,
            release: release_dir()?,
        };
        ensure!(
            stage.shim().exists(),
            "no libvcuda_shim.so in {}: run `cargo build --release --workspace` first",
            stage.release.display()
        );
        let source = |name: &str| here.join("apps").join(name).with_extension("c");
        let library = stage.drivers(Driver::Noop).join("libcuda.so.1");
        for (driver, name) in [(Driver::Noop, "noop"), (Driver::Timed, "timed")] {
            let folder = stage.drivers(driver);
            std::fs::create_dir_all(&folder)?;
            cc(Command::new("cc")
                // As in a real driver, internal calls bypass all hooks.
                .args(["-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", "-o"])
                .arg(folder.join("libcuda.so.1"))
                .arg(source(name)))?;
        }
        cc(Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o"])
            .arg(stage.dir.path().join("libnvidia-ml.so.1"))
            .arg(source("nonvml")))?;
        for program in programs {
            cc(Command::new("cc")
                .args(["-O2", "-pthread", "-o"])
                .arg(stage.program(program))
                .arg(source(program))
                .arg(&library))?;
        }
        // The simulated machine has the no-op driver's UUID, as the quota names it. Contexts are small, so that hundreds
        // fit.
        std::fs::create_dir_all(stage.machine())?;
        std::fs::write(
            stage.machine().join("machine.toml"),
            "context_bytes = \"64MiB\"\n[[gpus]]\nuuid = \"GPU-11111111-1111-1111-1111-111111111111\"\n",
        )?;
        Ok(stage)
    }

    /// Path of the folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of the shim.
    pub fn shim(&self) -> PathBuf {
        self.release.join("libvcuda_shim.so")
    }

    /// Path of a program or library of the release build.
    pub fn released(&self, name: &str) -> PathBuf {
        self.release.join(name)
    }

    /// Path of a compiled program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Folder of a driver's library.
    fn drivers(&self, driver: Driver) -> PathBuf {
        match driver {
            Driver::Timed => self.dir.path().join("timed"),
            Driver::Noop | Driver::Simulated => self.dir.path().to_owned(),
        }
    }

    fn machine(&self) -> PathBuf {
        self.dir.path().join("machine")
    }

    /// A command for `arguments` on `driver`: bare, or as a tenant with `quota` (options of `vcuda run`).
    pub fn command(&self, driver: Driver, quota: Option<&[&str]>) -> Command {
        let mut command = match (driver, quota) {
            (_, Some(quota)) => {
                let mut command = Command::new(self.release.join("vcuda"));
                command.args(["run", "--sim"]).args(quota).arg("--");
                command
            }
            (Driver::Simulated, None) => {
                let mut command = Command::new(self.release.join("vcuda"));
                command.args(["sim", "--"]);
                command
            }
            (Driver::Noop | Driver::Timed, None) => Command::new("env"),
        };
        if driver != Driver::Simulated {
            let folder = format!("LD_LIBRARY_PATH={}", self.drivers(driver).display());
            if quota.is_some() {
                command.arg("env");
            }
            command.arg(folder);
        }
        command.env("VCUDA_SIM", self.machine()).env("XDG_RUNTIME_DIR", self.runtime.path());
        command
    }
}

/// Folder of the build under test: `VCUDA_TEST_BUILD`, else the release build. Fails if there is none, and names the
/// command that makes it.
pub fn release_dir() -> Result<PathBuf> {
    let built = std::env::var_os("VCUDA_TEST_BUILD").map_or_else(
        || {
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let target = std::env::var_os("CARGO_TARGET_DIR");
            target.map_or_else(|| here.join("../target"), PathBuf::from).join("release")
        },
        PathBuf::from,
    );
    let is_whole = |dir: &PathBuf| ["libvcuda_shim.so", "vcuda"].iter().all(|name| dir.join(name).exists());
    built
        .canonicalize()
        .ok()
        .filter(is_whole)
        .with_context(|| {
            format!(
                "{} has no libvcuda_shim.so or no vcuda: run `export VCUDA_TEST_BUILD=$(scripts/build-tests.sh)`, or, for \
             figures of cost, `cargo build --release --workspace`",
                built.display()
            )
        })
}

fn cc(command: &mut Command) -> Result<()> {
    let output = command.output().context("no C compiler")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Runs a command. Returns its output. Fails if it cannot be started, or fails.
pub fn printed(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}{text}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked() -> Options {
        Options { check: true, ..Options::default() }
    }

    #[test]
    fn a_missed_goal_fails_if_it_is_to_be_checked() {
        let mut options = checked();
        options.at_most("a", 5.0, 5.0);
        options.at_least("b", 1.0, 1.0);
        assert!(!options.has_failed());
        for miss in [
            |options: &mut Options| options.at_most("a", 5.1, 5.0),
            |options: &mut Options| options.at_least("b", 0.9, 1.0),
            |options: &mut Options| options.at_most("c", f64::NAN, 1.0),
            |options: &mut Options| options.at_least("d", f64::NAN, 1.0),
        ] {
            let mut options = checked();
            miss(&mut options);
            assert!(options.has_failed());
            options.check = false;
            assert!(!options.has_failed());
        }
    }
}
