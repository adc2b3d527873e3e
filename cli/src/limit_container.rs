//! `vcuda limit-container`: the hook of containers on nodes whose driver limits memory by itself (615 on). The runtime runs it on the
//! host before the container's first program, whatever that is, and gives it the container's state.

use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use vcuda_manager_api::SOCKET_NAME;

use crate::args::LimitContainerArgs;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::output::warn;

/// Longest state that is read (bytes); a runtime's has some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// What is needed of the container's state (OCI runtime specification, "State").
#[derive(Debug, Deserialize)]
struct State {
    /// PID of its first process, on the host.
    pid: u32,
}

/// Without `--strict` the container starts wherever this program can run, with a line in the runtime's log: the library holds the quota.
pub(crate) fn limit_container(args: &LimitContainerArgs) -> Result<(), Failure> {
    match limit(&args.directory) {
        Ok(()) => Ok(()),
        Err(failure) if args.strict => Err(failure),
        Err(failure) => {
            let _ = warn(&failure.to_string());
            Ok(())
        }
    }
}

fn limit(directory: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    std::io::stdin().take(MOST_BYTES).read_to_string(&mut text)?;
    let state: State = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("stdin is no state of a container: {error}")))?;
    // DIRECTORY is `containers/ID` below the manager's root.
    let (Some(root), Some(id)) =
        (directory.ancestors().nth(2), directory.file_name().and_then(std::ffi::OsStr::to_str))
    else {
        return Err(Failure::Usage(format!("{}: no grant has this directory", directory.display())));
    };
    let missing = ManagerClient::at_socket(&root.join(SOCKET_NAME))?.limit_container(id, state.pid)?;
    match missing {
        None => Ok(()),
        Some(why) => Err(Failure::Failed(format!("the driver does not limit the container: {why}"))),
    }
}
