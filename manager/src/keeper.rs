//! A user's own manager: started by the first `vcuda run`, started again should it be killed or stopped while tenants live, ended with
//! the last of them.
//!
//! The keeper is the manager's parent and has nothing else to do, so that nothing but a signal to itself ends it. If both are killed,
//! limits hold, and the next command starts them again.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, close, setsid};
use tracing::info;
use vcuda_manager_api::OWN_LOG;
use vcuda_region::directory;

use crate::config::{OWN_STATE, Stage};
use crate::state::start;

/// Pause before the manager is started again, and between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(100);
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Starts the keeper with the arguments of this process, and does not wait for it.
pub fn start() -> io::Result<()> {
    // A new session, so that no signal to the command's terminal or group reaches it. It fails for a leader of one, which is no error.
    let _ = setsid();
    close_inherited();
    program(Stage::Keep)?.stderr(Stdio::null()).spawn().map(drop)
}

/// Keeps a manager of `root` running while tenants live.
pub fn keep(root: &Path) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(root.join(OWN_LOG))?;
    loop {
        let mut child = program(Stage::Serve)?.stderr(log.try_clone()?).spawn()?;
        let status = wait(&mut child)?;
        let has_tenants = directory::list(root).is_ok_and(|tenants| !tenants.is_empty());
        // Another manager may have been faster, and one that failed says why in its log.
        if status.success() && !has_tenants {
            // Its presence says that the manager is missed.
            std::fs::remove_file(root.join(OWN_LOG))?;
            return Ok(());
        }
        if status.code().is_some_and(|code| code != 0) || !has_tenants {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the manager's end, and ends it if it is stopped.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    if let WaitStatus::Stopped(..) = waitid(Id::Pid(pid), flags)? {
        child.kill()?;
    }
    child.wait()
}

/// This program with its arguments, as the next stage.
fn program(stage: Stage) -> io::Result<Command> {
    let arguments = std::env::args_os().skip(1).filter(|one| !one.as_encoded_bytes().starts_with(b"--own"));
    // The running program, even if a release has replaced its file.
    let mut program = Command::new("/proc/self/exe");
    program
        .arg0("vcuda-manager")
        .arg(stage.flag())
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(program)
}

/// Ends a user's own manager under `root`, if one runs, so that another one takes over its tenants, and removes what it or one that was
/// killed left.
pub fn displace(root: &Path) -> io::Result<()> {
    if let Some(manager) = start::holder(root).filter(|pid| is_stage(*pid, Stage::Serve)) {
        info!(pid = manager, "takes over from a user's own manager");
        end(manager);
    }
    // The tenants' directories say which grants there are.
    for removed in [std::fs::remove_file(root.join(OWN_LOG)), std::fs::remove_dir_all(root.join(OWN_STATE))] {
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    }
    Ok(())
}

/// Ends a manager and its keeper, and waits for the manager's end.
fn end(manager: u32) {
    if let Some(keeper) = parent(manager).filter(|pid| is_stage(*pid, Stage::Keep)) {
        signal(keeper);
    }
    signal(manager);
    for _ in 0..ENDS_WITHIN.as_millis() / PAUSE.as_millis() {
        if !is_stage(manager, Stage::Serve) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends a process. One that has just ended is no failure.
fn signal(pid: u32) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
}

/// Whether the process is an own manager's, of this stage.
fn is_stage(pid: u32, stage: Stage) -> bool {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    arguments.split(|byte| *byte == 0).any(|argument| argument == stage.flag().as_bytes())
}

/// Parent of a process (proc_pid_stat(5)).
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

/// Closes all inherited descriptors beyond stdin, stdout and stderr: a pipe that the manager held open would never end.
fn close_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect();
    // The listing's own descriptor is among them and already closed; closing it again is harmless.
    for number in numbers.into_iter().filter(|number| *number > 2) {
        let _ = close(number);
    }
}
