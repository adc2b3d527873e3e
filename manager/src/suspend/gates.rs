//! The processes of a tenant, and whether their threads are inside the driver.

use std::thread::sleep;
use std::time::Duration;

use vcuda_region::clock::now_ns;
use vcuda_region::process::{Identity, Liveness, ProcessView};
use vcuda_region::suspension::{ProcessGate, SuspensionWords};
use vcuda_region::usage_reader::UsageReader;

use super::Shared;
use super::records::Process;
use crate::observe::Tenant;
use crate::state::GrantError;

/// Pause between two looks at the gates.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A tenant's processes whose GPU state can be moved.
#[derive(Debug)]
pub(super) struct Gates {
    words: SuspensionWords,
    reader: UsageReader,
    /// Number of the tenant's devices.
    devices: usize,
    view: ProcessView,
}

impl Gates {
    /// Opens the files of a tenant.
    pub(super) fn open(shared: &Shared, tenant: &Tenant) -> Result<Self, GrantError> {
        let id = &tenant.id;
        let failed = |error: String| GrantError::Unavailable(format!("{id}: {error}"));
        let directory = shared.directory(id);
        let limits =
            vcuda_region::limits::Limits::read(&directory).map_err(|error| failed(error.to_string()))?;
        if !limits.is_suspendable() {
            return Err(GrantError::Refused(format!(
                "{id} is not suspendable; make it with --suspendable (`vcuda grant create`, `vcuda run`), a pod with \
                 the annotation vcuda.io/suspendable"
            )));
        }
        Ok(Self {
            words: SuspensionWords::open(&directory).map_err(|error| failed(error.to_string()))?,
            reader: UsageReader::open(&directory).map_err(|error| failed(error.to_string()))?,
            devices: tenant.devices.len(),
            view: Identity::current().map(ProcessView::new).map_err(|error| failed(error.to_string()))?,
        })
    }

    /// The tenant's living processes that use a GPU, each with its PID in this PID namespace.
    pub(super) fn processes(&self, tenant: &Tenant) -> Result<Vec<Process>, GrantError> {
        let id = &tenant.id;
        let mut found = Vec::new();
        for gate in self.living(id)? {
            let pid = gate.identity.pid;
            if !gate.has_gate {
                if self.uses_memory(&gate.identity) {
                    return Err(GrantError::Refused(format!(
                        "{id}: process {pid} takes no part, as it is in its first call of the driver or runs an older shim; try \
                         again, or start it again"
                    )));
                }
                continue;
            }
            found.push(host_process(tenant, &gate.identity).ok_or_else(|| {
                GrantError::Unavailable(format!(
                    "{id}: process {pid} has not registered with the manager, or is not seen from its PID namespace; try again, \
                     or run the manager in the host's"
                ))
            })?);
        }
        if found.is_empty() {
            return Err(GrantError::Refused(format!(
                "{id}: none of its processes uses a GPU, so there is nothing to suspend"
            )));
        }
        Ok(found)
    }

    /// Whether no thread of these processes is inside the driver, and there are no others.
    fn are_quiet(&self, id: &str, processes: &[Process]) -> bool {
        let living = self.living(id).unwrap_or_default();
        let takes_part: Vec<_> =
            living.iter().filter(|gate| gate.has_gate || self.uses_memory(&gate.identity)).collect();
        takes_part.len() <= processes.len() && takes_part.iter().all(|gate| gate.has_gate && gate.inside == 0)
    }

    /// Waits until no thread of these processes is inside the driver, for at most `limit`. Unless it `is_forced`, a thread that
    /// asks to go on ends the wait.
    pub(super) fn become_quiet(
        &self,
        id: &str,
        processes: &[Process],
        is_forced: bool,
        limit: Duration,
    ) -> bool {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns().saturating_add(limit_ns);
        loop {
            let is_wanted = !is_forced && self.words.is_resume_wanted().unwrap_or(true);
            if !is_wanted && self.are_quiet(id, processes) {
                return true;
            }
            if is_wanted || now_ns() >= until_ns {
                return false;
            }
            sleep(LOOK_EVERY);
        }
    }

    fn living(&self, id: &str) -> Result<Vec<ProcessGate>, GrantError> {
        let mut gates =
            self.words.gates().map_err(|error| GrantError::Unavailable(format!("{id}: {error}")))?;
        gates.retain(|gate| self.view.liveness(&gate.identity) != Liveness::Dead);
        Ok(gates)
    }

    fn uses_memory(&self, identity: &Identity) -> bool {
        let all = self.reader.all_processes(self.devices).unwrap_or_default();
        let own = all.iter().filter(|process| process.identity.is_same(identity));
        own.flat_map(|process| &process.devices).any(|device| device.used_bytes > 0)
    }
}

/// The process with its PID on the host, if it has registered. The tenant can write any PID into its files, but the kernel
/// names a process that registers, so no other tenant's process is ever locked (I12).
fn host_process(tenant: &Tenant, identity: &Identity) -> Option<Process> {
    let processes = tenant.processes.iter();
    let known = processes.filter(|known| known.registered && known.pid == identity.pid);
    let host_pids = known.filter_map(|known| known.host_pid);
    let is_it = |pid: &u32| Identity::of(*pid).is_ok_and(|found| found.start_ticks == identity.start_ticks);
    host_pids.into_iter().find(is_it).map(|host_pid| Process { host_pid, start_ticks: identity.start_ticks })
}
