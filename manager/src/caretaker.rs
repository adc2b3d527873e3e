//! Who divides GPU time while no manager runs: a process that a manager leaves behind when it is ended and containers go on.
//!
//! It has the arbiter's post and nothing else: no socket, no ledger, no NVML. It leaves as soon as a manager is there, and
//! when no process of a container is left. Under systemd none is left behind: what a unit has started ends with it, and who
//! stops the unit starts it again. After a SIGKILL there is none either; shims go by themselves then, as without an arbiter.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use vcuda_arbiter::{Arbiter, FIRST, MANAGER, Post};
use vcuda_region::process::Identity;
use vcuda_region::{clock, directory};

/// The flag that makes the program a caretaker.
pub const FLAG: &str = "--caretaker";
/// Set by a service manager that wants to be told (sd_notify(3)).
const SERVICE: &str = "NOTIFY_SOCKET";
/// How often it is asked who is left, and who has come (ns).
const ASK_NS: u64 = 500_000_000;
/// Until the manager has come that is to be relieved of its post, and between two looks (ns, tries).
const TAKE: Duration = Duration::from_millis(10);
const TRIES: u32 = 100;

/// Leaves one behind if containers under `root` are in use. Its process ID.
///
/// # Errors
/// It cannot be started, or the root not be read.
pub fn leave_behind(root: &Path) -> io::Result<Option<u32>> {
    if std::env::var_os(SERVICE).is_some() || !is_any_used(root, &Identity::current()?)? {
        return Ok(None);
    }
    // As it was started: also where the file has been replaced by another release.
    let child = Command::new("/proc/self/exe")
        .args([OsStr::new(FLAG), OsStr::new("--root"), root.as_os_str()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What ends the manager's terminal or group is not meant for it.
        .process_group(0)
        .spawn()?;
    Ok(Some(child.id()))
}

/// Divides GPU time under `root` until there is a manager, or no container is in use.
///
/// # Errors
/// The posts cannot be used, or `/proc` not be read.
pub fn care(root: &Path) -> io::Result<()> {
    let (first, manager) = (Post::open(root, FIRST)?, Post::open(root, MANAGER)?);
    let me = Identity::current()?;
    let mut tries = 0;
    // Somebody else may have been faster: then that one does it.
    while !first.take()? {
        tries += 1;
        if tries == TRIES {
            return Ok(());
        }
        std::thread::sleep(TAKE);
    }
    let mut arbiter = Arbiter::default();
    let mut asked_ns = 0;
    loop {
        let now_ns = clock::now_ns();
        first.beat(now_ns);
        if now_ns >= asked_ns + ASK_NS {
            asked_ns = now_ns;
            // What cannot be removed now is tried again.
            let _ = directory::remove_dead(root, &me);
            if !is_any_used(root, &me)? {
                return Ok(());
            }
        }
        let is_due = arbiter.refresh(root, now_ns).map_err(io::Error::other)?;
        if is_due && manager.holder()?.is_some() {
            return Ok(());
        }
        arbiter.arbitrate(now_ns);
        std::thread::sleep(Duration::from_nanos(arbiter.pause_ns(clock::now_ns())));
    }
}

fn is_any_used(root: &Path, me: &Identity) -> io::Result<bool> {
    let listed = directory::list(root).map_err(io::Error::other)?;
    Ok(listed.iter().any(|(_, path)| directory::is_used(path, me)))
}
