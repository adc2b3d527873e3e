//! Files of the machine for the archive: configuration, logs, and the tenants' limits.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vcuda_region::directory;

use super::Part;
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;

const PART_MAX: u64 = 8 << 20;
/// Maximum number of tenants whose limits are in the archive.
const TENANTS_MAX: usize = 1000;
const CONFIGURATION: &str = "/etc/vcuda";
/// First bytes of `limits`, as no other file has them.
const LIMITS_BEGIN: &[u8] = b"vculimit";
const LOG_LINES: &str = "2000";

pub(super) fn configuration() -> Vec<PathBuf> {
    let entries = fs::read_dir(CONFIGURATION).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    files
}

pub(super) fn text(path: &Path) -> Result<String, Failure> {
    // /etc/os-release is a link on most systems.
    let file = fs::canonicalize(path).map_err(|error| Failure::access("read", path, &error))?;
    Ok(String::from_utf8_lossy(&read(&file)?).into_owned())
}

/// The beginning of a regular file. No link is followed, and no pipe is waited for.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::access("read", path, &error);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Failure::Failed(format!("{} is no file", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(PART_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

pub(super) fn log(unit: &str) -> Result<String, Failure> {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--quiet", "--output", "short-iso", "--lines", LOG_LINES, "--unit", unit]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::Failed(format!("journalctl: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && !text.trim().is_empty() {
        return Ok(text);
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = if why.is_empty() { "the journal has no line that this user may read" } else { &why };
    Err(Failure::Failed(why.to_owned()))
}

/// A tenant's `limits`. Its processes may have put another file there, so it has to begin like one (I12).
fn limits_in(directory: &Path) -> Result<Vec<u8>, Failure> {
    let path = directory.join("limits");
    let bytes = read(&path)?;
    if bytes.starts_with(LIMITS_BEGIN) {
        Ok(bytes)
    } else {
        Err(Failure::Failed(format!("{} has no limits", path.display())))
    }
}

/// Limits of the tenants that this user may read: those of its own, and of the manager.
pub(super) fn limits(environment: &Environment) -> Vec<Part> {
    let manager = match ManagerClient::find_or_files(environment) {
        Ok(Ok(node)) => node.status().ok().map(|status| PathBuf::from(status.root)),
        Ok(Err(down)) => down.map(|down| down.root().to_owned()),
        Err(_) => None,
    };
    let mut roots: Vec<PathBuf> = environment.runtime_root().ok().into_iter().chain(manager).collect();
    roots.dedup();
    let tenants = roots.iter().flat_map(|root| directory::list(root).unwrap_or_default());
    let part = |(name, path): (String, PathBuf)| Part {
        name: format!("limits/{name}"),
        content: limits_in(&path).map_err(|failure| failure.to_string()),
    };
    tenants.take(TENANTS_MAX).map(part).collect()
}
