//! The process that a manager leaves behind when it ends while tenants run: it divides GPU time until a manager is
//! back.
//!
//! It has the leader lock and nothing else: no socket, no ledger, no NVML. It ends as soon as a manager is there, and when no
//! process of a tenant is left. Under systemd none is left behind: what a unit has started ends with it, and systemd starts
//! the unit again. After a SIGKILL there is none either; shims go by themselves then, as without an arbiter.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use vcuda_arbiter::{Role, Runner};
use vcuda_region::directory;
use vcuda_region::process::Identity;

/// The flag that makes the program a standby.
pub const FLAG: &str = "--standby";
/// Set by a service manager that wants to be told (sd_notify(3)).
const SERVICE: &str = "NOTIFY_SOCKET";

/// Leaves a standby if tenants under `root` are in use. Returns its process ID.
///
/// # Errors
/// It cannot be started, or the root not be read.
pub fn leave_behind(root: &Path) -> io::Result<Option<u32>> {
    if std::env::var_os(SERVICE).is_some() || !is_any_used(root)? {
        return Ok(None);
    }
    // The program that was started, even if its file has been replaced by another release.
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

/// Divides GPU time under `root` until there is a manager, or no tenant is in use.
///
/// # Errors
/// The locks cannot be used, or `/proc` not be read.
pub fn run(root: &Path) -> io::Result<()> {
    Runner::new(root, Role::Process)?.run(&mut |_| ControlFlow::Continue(()))
}

fn is_any_used(root: &Path) -> io::Result<bool> {
    let me = Identity::current()?;
    let listed = directory::list(root).map_err(io::Error::other)?;
    Ok(listed.iter().any(|(_, path)| directory::is_used(path, &me)))
}
