//! The connection to a manager, which waits for one that is late, and not again for one that hangs.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;
use tonic::Code;
use tonic::transport::Channel;
use vcuda_manager_api::v1::GetStatusRequest;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::{connect, look};
use vcuda_region::clock;
use vcuda_region::directory::{self, CallersLock};

use super::{DEADLINE, ManagerClient, Unreached, is_late};
use crate::output::warn;

/// Open files that a connection needs.
const FEWEST_DESCRIPTORS: u64 = 12;
/// Time after which a command says that it waits for the manager's first answer: a manager that lacks processor time is late.
const WAITS_IN_SILENCE: Duration = Duration::from_secs(2);
/// Time for which a manager that did not answer is not asked again (ns).
const STAYS_SILENT_NS: u64 = 10_000_000_000;
/// The manager that did not answer this process, and until when it is not asked again (`CLOCK_MONOTONIC`, ns).
static SILENT: Mutex<Option<(PathBuf, u64)>> = Mutex::new(None);

impl ManagerClient {
    /// Connects to the manager of this socket.
    pub(crate) fn at(socket: &Path) -> Result<ManagerClient, Unreached> {
        // A command with several questions waits once.
        let silent = SILENT.lock().clone();
        if silent.is_some_and(|(known, until_ns)| known == socket && clock::now_ns() < until_ns) {
            return Err(Unreached::Silent(socket.to_owned()));
        }
        let reached = ManagerClient::connected(socket);
        if matches!(reached, Err(Unreached::Silent(_))) {
            let until_ns = clock::now_ns().saturating_add(STAYS_SILENT_NS);
            *SILENT.lock() = Some((socket.to_owned(), until_ns));
        }
        reached
    }

    fn connected(socket: &Path) -> Result<ManagerClient, Unreached> {
        enough_descriptors(FEWEST_DESCRIPTORS).map_err(Unreached::Runtime)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Unreached::Runtime)?;
        let (channel, called) = runtime.block_on(async {
            let mut answer = pin!(admitted(socket));
            if let Ok(channel) = tokio::time::timeout(WAITS_IN_SILENCE, &mut answer).await {
                return channel;
            }
            let _ = warn(&format!("{}: the manager has not answered yet", socket.display()));
            let answered = tokio::time::timeout(DEADLINE - WAITS_IN_SILENCE, answer).await;
            answered.unwrap_or_else(|_| Err(Unreached::Silent(socket.to_owned())))
        })?;
        Ok(ManagerClient { runtime, channel, socket: socket.to_owned(), _called: called })
    }
}

/// A channel to the manager at `socket`, which answers this user. A manager that tells its callers apart lets all connect, and
/// refuses the calls of those without any right.
async fn admitted(socket: &Path) -> Result<(Channel, Option<CallersLock>), Unreached> {
    look(socket).await.map_err(Unreached::Socket)?;
    // On another thread, as it may wait for the end of a manager.
    let root = socket.parent().map(Path::to_owned);
    let waiting = tokio::task::spawn_blocking(move || root.and_then(|root| directory::call(&root)));
    let called = waiting.await.unwrap_or_default();
    let channel = connect(socket, DEADLINE).await.map_err(Unreached::Socket)?;
    let mut node = NodeClient::new(channel.clone());
    match node.get_status(GetStatusRequest {}).await {
        Err(status) if status.code() == Code::PermissionDenied => {
            Err(Unreached::Refused(status.message().to_owned()))
        }
        Err(status) if is_late(&status) => Err(Unreached::Silent(socket.to_owned())),
        // Any other failure is that of the call for which this was connected.
        _ => Ok((channel, called)),
    }
}

/// Fails if fewer than `needed` files can be open. Without enough for a connection the runtime panics.
pub(super) fn enough_descriptors(needed: u64) -> io::Result<()> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < needed {
        return Err(io::Error::other(format!(
            "`ulimit -n` allows {soft} open files, and {needed} are needed"
        )));
    }
    Ok(())
}
