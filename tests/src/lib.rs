//! Runs small real programs on a simulated GPU, with and without the shim.
//!
//! A [`Fixture`] is one simulated machine and one user's runtime directory, both temporary, so that tests do not see
//! each other's tenants. The programs are C files in `apps/`, compiled once per test run; `vcuda`, the daemons, the
//! shim and the simulator's libraries are those that `scripts/test.sh` put together, else the release build.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it should be"
)]
#![allow(clippy::missing_panics_doc, reason = "every function here panics to fail the test")]

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

pub mod api_server;
pub mod cgroup;
pub mod cluster;
pub mod containerd;
pub mod coverage;
pub mod doors;
pub mod dra;
pub mod resource_api;
pub mod shown_objects;
pub mod table;
pub mod threats;
#[cfg(target_arch = "x86_64")]
pub mod tracer;

mod command_line;
mod commanded;
mod granted_container;
pub mod kubelet;
mod manager;
mod other_users;
mod plugin;
pub mod podman;
mod programs;
mod release;
pub mod runc;
mod running;
pub mod seccomp;
pub mod sources;
mod tenant;
mod tmpfs;
pub mod virtual_time;
pub use commanded::Commanded;
pub use granted_container::{GrantedContainer, Mounted, holding};
pub use manager::Manager;
pub use other_users::{OtherUsers, is_other_users};
pub use plugin::{Node, Plugin};
pub use programs::{Programs, Speaks};
pub use release::of_release;
pub use running::Running;
pub use tenant::Tenant;
pub use tmpfs::Tmpfs;

/// 1 MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// 1 GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// Folder of the build under test: `vcuda`, the daemons and the libraries.
pub fn release_dir() -> PathBuf {
    vcuda_benches::release_dir().unwrap()
}

/// Root of the checkout.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Ways in which a C program reaches the driver's functions (`apps/driver.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// Undefined symbols that the loader resolves: `-lcuda`.
    Link,
    /// `dlopen` and `dlsym` of each exported symbol.
    Dlsym,
    /// Everything through `cuGetProcAddress_v2`.
    ProcAddress,
}

impl Door {
    /// All three, for programs that must behave the same through each.
    pub const ALL: [Door; 3] = [Door::Link, Door::Dlsym, Door::ProcAddress];
}

/// Compiles a source of `apps/` into a program or library that no other test uses.
pub fn compile(output: &Path, arguments: &[&str], source: &str) {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O1", "-g", "-o"]).arg(output).arg(workspace().join("tests/apps").join(source));
    run_ok(cc.args(arguments).arg("-ldl"));
}

/// Compiles `apps/<name>.c` for this door and returns the executable. Compiled once per change of the source.
pub fn app(name: &str, door: Door) -> PathBuf {
    let source = workspace().join("tests/apps").join(format!("{name}.c"));
    let headers = [
        "driver.h",
        "conformance/answers.h",
        "conformance/second.h",
        "fuzz/base.h",
        "fuzz/own.h",
        "fuzz/shared.h",
        "fuzz/signals.h",
        "hardware/exports.h",
        "hardware/measure.h",
        "hardware/nvml.h",
        "usage.h",
    ]
    .map(|header| workspace().join("tests/apps").join(header));
    let mut key = DefaultHasher::new();
    for file in [&source].into_iter().chain(&headers) {
        std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).hash(&mut key);
    }
    door.hash(&mut key);
    let dir = release_dir().join("test-apps");
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join(format!("{}-{:016x}", name.replace('/', "-"), key.finish()));
    if program.exists() {
        return program;
    }
    // Several tests may compile the same program: each builds its own file and renames it.
    let builder = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let unfinished = program.with_extension(builder.replace(['(', ')'], ""));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O1", "-g", "-Wall", "-Wno-unused", "-o"])
        .arg(&unfinished)
        .arg(&source)
        .args(["-ldl", "-lpthread"]);
    match door {
        Door::Link => {
            let links = driver_links();
            cc.arg("-DVIA_LINK").arg("-L").arg(links.path()).args(["-lcuda", "-Wl,--allow-shlib-undefined"]);
            run_ok(&mut cc);
        }
        Door::Dlsym => run_ok(cc.arg("-DVIA_DLSYM")),
        Door::ProcAddress => run_ok(cc.arg("-DVIA_PROC")),
    }
    std::fs::rename(&unfinished, &program).unwrap();
    program
}

/// A folder with links from the driver's names to the simulator's libraries, to link against.
fn driver_links() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = release_dir().join("libvcuda_simulator_cuda.so");
    std::os::unix::fs::symlink(from, dir.path().join("libcuda.so")).unwrap();
    dir
}

fn run_ok(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
}

/// All output of a program, for messages.
pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Output on stdout of a program, after a check that it succeeded.
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A simulated machine and a user's runtime directory.
#[derive(Debug)]
pub struct Fixture {
    home: TempDir,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    /// A machine with one GPU of 80 GiB, the default.
    pub fn new() -> Self {
        let home = tempfile::Builder::new().prefix("vcuda-test-").tempdir().unwrap();
        std::fs::create_dir(home.path().join("run")).unwrap();
        Fixture { home }
    }

    /// A machine with `gpus` GPUs of this size.
    pub fn with_gpus(gpus: usize, memory: &str) -> Self {
        let fixture = Fixture::new();
        let made = fixture
            .vcuda(["sim", "--gpus", &gpus.to_string(), "--memory", memory, "--", "true"])
            .output()
            .unwrap();
        succeeded(&made);
        fixture
    }

    /// A machine like this real driver and GPU (`simulator/profiles`).
    pub fn with_profile(profile: &str) -> Self {
        Fixture::with_config(&format!("profile = \"{profile}\"\n"))
    }

    /// A machine described by this `machine.toml`.
    pub fn with_config(toml: &str) -> Self {
        let fixture = Fixture::new();
        std::fs::create_dir(fixture.machine()).unwrap();
        std::fs::write(fixture.machine().join("machine.toml"), toml).unwrap();
        fixture
    }

    /// The simulated machine's directory.
    pub fn machine(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    /// Directory of all its files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The user's runtime directory, with the tenants' directories.
    pub fn runtime(&self) -> PathBuf {
        self.home.path().join("run")
    }

    /// Path of its manager's socket.
    pub fn manager_socket(&self) -> PathBuf {
        self.runtime().join("vcuda/manager.sock")
    }

    /// `vcuda` with these arguments in this fixture's environment.
    pub fn vcuda<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(release_dir().join("vcuda"));
        command.args(args);
        self.environment(&mut command);
        command
    }

    /// Sets this fixture's machine, runtime directory and manager in a command's environment, and removes an outer tenant's. A
    /// manager of this machine, or a socket that it left behind, is not seen.
    pub fn environment(&self, command: &mut Command) {
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"] {
            command.env_remove(name);
        }
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("VCUDA_")) {
            command.env_remove(name);
        }
        command
            .env("VCUDA_SIM", self.machine())
            .env("XDG_RUNTIME_DIR", self.runtime())
            .env("VCUDA_MANAGER", self.manager_socket())
            .stdin(Stdio::null());
    }

    /// The program on the simulated GPU, without the shim.
    pub fn bare(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.vcuda(["sim", "--"]);
        command.arg(program);
        command
    }

    /// The program as a tenant: `vcuda run --sim <quota> -- program`.
    pub fn tenant(&self, quota: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.vcuda(["run", "--sim"]);
        command.args(quota).arg("--").arg(program);
        command
    }
}

/// A test for each row: its name, and what it calls.
#[macro_export]
macro_rules! rows {
    ($($(#[$attribute:meta])* $name:ident: $body:expr,)*) => {
        $($(#[$attribute])* #[test] fn $name() { $body })*
    };
}

/// Polls until `holds` returns true. Fails the test, naming `what`, after `within`.
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let end = SystemTime::now() + within;
    while !holds() {
        assert!(SystemTime::now() < end, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Time limit for what needs no time, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// As [`eventually`], where nothing is promised about the time: a minute at most.
pub fn soon(what: &str, holds: impl FnMut() -> bool) {
    eventually(what, SOON, holds);
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Reports that a test was skipped, with the reason; `scripts/test.sh` counts these lines.
#[expect(clippy::print_stderr, reason = "the reason belongs into the test's output")]
pub fn skip(reason: &str) {
    // Bypasses the test harness's capture, so that it is shown although the test passes.
    use std::io::Write;
    let line = format!("SKIPPED {reason}\n");
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(skip_list()) {
        let _ = file.write_all(line.as_bytes());
    }
    eprint!("{line}");
}

/// The file in which skipped tests are noted; `scripts/test.sh` makes it and prints it at the end.
fn skip_list() -> PathBuf {
    std::env::var_os("VCUDA_TEST_SKIPS").map_or_else(|| "/dev/null".into(), PathBuf::from)
}
