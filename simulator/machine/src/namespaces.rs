//! PID namespaces: the PIDs by which processes see each other.
//!
//! The *host's* namespace is that of the process that made the machine's state, the first to use the machine since the
//! computer was started. The kernel gives a process's PID in the caller's namespace as the holder of a lock, by fcntl(2) (0
//! if it has none there).

use crate::commit::{CannotCommit, Change};
use crate::core::{ClientRow, Core};
use crate::layout::HEADER_NAMESPACE;
use crate::report::SeenAs;
use crate::shared::{Local, Shared};
use std::os::unix::fs::MetadataExt;

/// Start of numbers above every PID of Linux (`PID_MAX_LIMIT`), for processes whose host PID is not yet known.
const UNKNOWN: u64 = 1 << 22;

/// This process's PID namespace (inode); 0 if `/proc` does not tell.
pub(crate) fn own() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

impl Shared {
    /// This process's namespace; if `/proc` is gone meanwhile (`chroot`), the one at the opening of the machine.
    pub(crate) fn own_namespace(&self) -> u64 {
        match own() {
            0 => self.namespace,
            namespace => namespace,
        }
    }

    /// Whether this process is in the host's PID namespace.
    pub(crate) fn is_on_host(&self) -> bool {
        self.own_namespace() == self.map.load(HEADER_NAMESPACE)
    }

    /// PIDs of a client as this process sees it.
    pub(crate) fn seen_as(&self, core: &Core, client: u64) -> SeenAs {
        let Some(row) = core.clients.iter().find(|row| row.id == client) else {
            return SeenAs::default();
        };
        let host = match row.host_pid {
            0 => UNKNOWN + row.id,
            pid => pid,
        };
        SeenAs { here: self.pid_here(row), on_host: u32::try_from(host).unwrap_or(u32::MAX) }
    }

    /// The client's PID in this process's namespace, if it has one there.
    fn pid_here(&self, row: &ClientRow) -> Option<u32> {
        if row.namespace == self.own_namespace() {
            return u32::try_from(row.pid).ok();
        }
        self.liveness.holder(row.slot)
    }

    /// Host PID of a client that joins, if this process is in the host's namespace.
    pub(crate) fn own_host_pid(&self, pid: u64) -> u64 {
        if self.is_on_host() { pid } else { 0 }
    }

    /// Records the host PIDs of clients that joined from other namespaces.
    pub(crate) fn record_host_pids(&self, local: &mut Local) -> Result<(), CannotCommit> {
        let is_stranger = |row: &&ClientRow| row.host_pid == 0;
        if !local.base.clients.iter().any(|row| is_stranger(&row)) || !self.is_on_host() {
            return Ok(());
        }
        let strangers = local.base.clients.iter().filter(is_stranger);
        let named: Vec<(u64, u32)> =
            strangers.filter_map(|row| Some((row.id, self.liveness.holder(row.slot)?))).collect();
        self.transact(local, None, |core| {
            for (id, pid) in &named {
                if let Some(row) = core.clients.iter_mut().find(|row| row.id == *id) {
                    row.host_pid = u64::from(*pid);
                }
            }
            Change::Made(())
        })
    }
}
