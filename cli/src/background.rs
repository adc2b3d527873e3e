//! Start of the arbiter, the one helper that outlives a command. It divides GPU time between this user's tenants.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::config::{ENV_LIBRARY_PATH, ENV_PRELOAD, ENV_TENANT, ENV_VISIBLE, Environment};
use crate::failure::Failure;
use crate::installation;

/// Starts an arbiter if none runs.
///
/// A middle process starts it and ends at once. Otherwise the arbiter would be a child of the command that this process
/// becomes, which may confuse a command that waits for its children.
pub(crate) fn ensure_arbiter(environment: &Environment) -> Result<(), Failure> {
    let root = environment.runtime_root()?;
    if vcuda_arbiter::is_running(&root) {
        return Ok(());
    }
    let executable = installation::executable()?;
    let started = Command::new(&executable)
        .args(["arbiter", "--detach"])
        // The arbiter must see the driver without the tenant's environment.
        .env_remove(ENV_PRELOAD)
        .env_remove(ENV_TENANT)
        .env_remove(ENV_LIBRARY_PATH)
        .env_remove(ENV_VISIBLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!(
            "the arbiter did not start ({status}); try `vcuda arbiter` to see why"
        ))),
        Err(error) => Err(Failure::access("start", &executable, &error)),
    }
}

/// The middle process: starts the arbiter in a session of its own, without inherited descriptors.
pub(crate) fn detach() -> Result<(), Failure> {
    nix::unistd::setsid().ok();
    close_inherited();
    let executable = installation::executable()?;
    Command::new(&executable)
        .arg("arbiter")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
        .map_err(|error| Failure::access("start", &executable, &error))
}

/// Closes all inherited descriptors beyond stdin, stdout and stderr: a pipe that the arbiter held open would never end.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir(Path::new("/proc/self/fd")) else {
        return;
    };
    let numbers: io::Result<Vec<i32>> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().parse().unwrap_or(-1))).collect();
    // The listing's own descriptor is among them and already closed; closing it again is harmless.
    for number in numbers.unwrap_or_default().into_iter().filter(|number| *number > 2) {
        let _ = nix::unistd::close(number);
    }
}
