//! A tenant's directory on a real file system: made, entered, refused, removed, with living and with killed processes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contents;
mod lifetime;
mod refusals;
mod room;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use vcuda_quota::DeviceConfig;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{Directory, Tenant};
use vcuda_region::limits::{Limits, LimitsWriter};
use vcuda_region::process::Identity;
use vcuda_region::{DeviceIndex, GpuUuid};

const GIB: u64 = 1 << 30;

fn uuid(byte: u8) -> GpuUuid {
    GpuUuid::from_bytes([byte; 16])
}

fn tenant(name: &str) -> Tenant {
    let devices =
        vec![(uuid(1), DeviceConfig::new(4 * GIB, 300)), (uuid(2), DeviceConfig::new(8 * GIB, 1000))];
    Tenant::new(name, devices)
}

fn root() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn make(root: &Path, name: &str) -> Directory {
    Directory::create(root, &tenant(name), b"", None, now_ns()).unwrap()
}

fn device(index: usize) -> DeviceIndex {
    DeviceIndex::new(index).unwrap()
}

/// Held where a process is started, and where a closed lock must be free at once: a process that another test starts
/// has copies of all descriptors, and with them of the locks, until it runs its program.
static STARTS: Mutex<()> = Mutex::new(());

/// Starts a process. Returns once it runs its program.
fn start(command: &mut Command) -> Child {
    let _alone = STARTS.lock();
    command.spawn().unwrap()
}

/// Waits for what a closed lock gives back. Not asserted at once: a process that another test of this binary starts at that
/// moment holds a copy of the descriptor, and so the lock, until it runs its program.
fn soon(mut done: impl FnMut() -> bool) {
    let in_time = (0..500).any(|_| {
        let done = done();
        if !done {
            std::thread::sleep(Duration::from_millis(10));
        }
        done
    });
    assert!(in_time, "not within 5 s");
}

/// A living process, and its identity.
struct Sleeper {
    child: Child,
    identity: Identity,
}

impl Sleeper {
    fn new() -> Self {
        let child = start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()));
        let identity = Identity::of(child.id()).unwrap();
        Self { child, identity }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
