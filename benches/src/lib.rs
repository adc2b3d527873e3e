//! What the benchmarks share: the release build, the driver that does nothing, and programs beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The driver on which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// `apps/noop.c`: does nothing, so that only the hook remains.
    Noop,
    /// The simulated driver.
    Simulated,
}

/// A folder with the driver that does nothing, programs linked against it, a simulated machine and a runtime directory,
/// and the release build.
#[derive(Debug)]
pub struct Stage {
    dir: tempfile::TempDir,
    release: PathBuf,
}

impl Stage {
    /// Compiles the driver and the programs of these names from `apps/`.
    ///
    /// # Errors
    /// There is no release build, or no C compiler.
    pub fn new(programs: &[&str]) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("../target"), PathBuf::from);
        let stage = Self {
            dir: tempfile::tempdir()?,
            release: target.join("release").canonicalize()?,
        };
        ensure!(
            stage.shim().exists(),
            "no libvcuda_shim.so in {}: run `cargo build --release --workspace` first",
            stage.release.display()
        );
        let library = stage.dir.path().join("libcuda.so.1");
        let source = |name: &str| here.join("apps").join(name).with_extension("c");
        cc(Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(&library)
            .arg(source("noop")))?;
        for program in programs {
            cc(Command::new("cc")
                .args(["-O2", "-pthread", "-o"])
                .arg(stage.program(program))
                .arg(source(program))
                .arg(&library))?;
        }
        // The quota names a card by its UUID: the simulated machine has the one of the driver that does nothing.
        std::fs::create_dir_all(stage.machine())?;
        std::fs::write(
            stage.machine().join("machine.toml"),
            "[[gpus]]\nuuid = \"GPU-11111111-1111-1111-1111-111111111111\"\n",
        )?;
        Ok(stage)
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The shim's library.
    #[must_use]
    pub fn shim(&self) -> PathBuf {
        self.release.join("libvcuda_shim.so")
    }

    /// The compiled program of this name.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn machine(&self) -> PathBuf {
        self.dir.path().join("machine")
    }

    /// `arguments` as a command of its own on `driver`: bare, or as a tenant with `quota` (`vcuda run`'s options).
    #[must_use]
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
            (Driver::Noop, None) => Command::new("env"),
        };
        if driver == Driver::Noop {
            let folder = format!("LD_LIBRARY_PATH={}", self.dir.path().display());
            if quota.is_some() {
                command.arg("env");
            }
            command.arg(folder);
        }
        command
            .env("VCUDA_SIM", self.machine())
            .env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }
}

fn cc(command: &mut Command) -> Result<()> {
    let output = command.output().context("no C compiler")?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// What a command has printed.
///
/// # Errors
/// It cannot be started, or failed.
pub fn printed(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{command:?}: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// The value in the middle; not a number if there is none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
