//! Standby process that an ending manager starts if tenants run: it divides GPU time until a manager is back.
//!
//! It has only the leader lock: no socket, no ledger, no NVML. It ends when a manager starts or when no process of a tenant
//! is left. Under systemd there is no standby, as it would end with the unit, which systemd restarts anyway. After a
//! SIGKILL there is none either; shims then work as without an arbiter.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use vcuda_arbiter::{Role, Runner};
use vcuda_region::directory;
use vcuda_region::process::Identity;

/// Flag that starts the program as a standby.
pub const FLAG: &str = "--standby";
/// Variable set by a service manager that wants notifications (sd_notify(3)).
const SERVICE: &str = "NOTIFY_SOCKET";

/// Starts a standby if tenants under `root` are in use. Returns its PID.
///
/// # Errors
/// Fails if it cannot be started, or if the root cannot be read.
pub fn leave_behind(root: &Path) -> io::Result<Option<u32>> {
    if std::env::var_os(SERVICE).is_some() || !is_any_used(root)? {
        return Ok(None);
    }
    // The running program, even if a release has replaced its file.
    let child = Command::new("/proc/self/exe")
        .args([OsStr::new(FLAG), OsStr::new("--root"), root.as_os_str()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not ended by signals to the manager's terminal or group.
        .process_group(0)
        .spawn()?;
    Ok(Some(child.id()))
}

/// Divides GPU time under `root` until a manager starts, or no tenant is in use.
///
/// # Errors
/// Fails if the locks cannot be used, or if `/proc` cannot be read.
pub fn run(root: &Path) -> io::Result<()> {
    Runner::new(root, Role::Process)?.run(&mut |_| ControlFlow::Continue(()))
}

fn is_any_used(root: &Path) -> io::Result<bool> {
    let me = Identity::current()?;
    let listed = directory::list(root).map_err(io::Error::other)?;
    Ok(listed.iter().any(|(_, path)| directory::is_used(path, &me)))
}
