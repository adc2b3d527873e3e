//! Suspended tenants whose memory came back to the GPU without the manager: by another program (`cuda-checkpoint --toggle`), or by a
//! tenant that calls the driver past the shim. A process whose state is away is in none of NVML's lists (docs/evidence.md,
//! "Checkpoints of a process"), so each of its bytes there is one that the manager does not know of.

use std::collections::HashMap;
use std::sync::Arc;

use vcuda_quota::MemorySize;
use vcuda_region::clock::now_ns;

use super::records::{Phase, Record};
use super::{Shared, Wish};
use crate::events::Severity;

/// Time between two looks at NVML's lists (ns).
const LOOK_NS: u64 = 1_000_000_000;

/// The looks so far.
#[derive(Debug, Default)]
pub(super) struct Returned {
    due_ns: u64,
}

impl Returned {
    /// Looks, if that is due, whether processes of suspended tenants are on a GPU, and suspends those tenants anew.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, records: &[Record]) {
        let now_ns = now_ns();
        let is_away = |record: &&Record| record.phase == Phase::Suspended && !record.comes_back;
        if now_ns < self.due_ns || !records.iter().any(|record| is_away(&record)) {
            return;
        }
        self.due_ns = now_ns.saturating_add(LOOK_NS);
        let bytes_of = listed(shared);
        for record in records.iter().filter(is_away) {
            let own = record.processes.iter();
            let found: Vec<(u32, u64)> = own
                .filter_map(|process| Some((process.host_pid, *bytes_of.get(&process.host_pid)?)))
                .collect();
            if let Some((pid, _)) = found.first()
                && !shared.tasks.lock().contains_key(&record.id)
                && shared.state(&record.id) == record.phase.state()
            {
                suspend_anew(shared, &record.id, *pid, found.iter().map(|(_, bytes)| bytes).sum());
            }
        }
    }
}

/// Memory of each process that NVML lists on any GPU, by host PID (bytes; 0 where NVML does not tell them).
fn listed(shared: &Shared) -> HashMap<u32, u64> {
    let mut bytes_of = HashMap::new();
    for gpu in &shared.grants.inventory().gpus {
        // A GPU that does not answer proves nothing; the next look asks it again.
        for (pid, bytes) in shared.node.processes(&gpu.uuid).unwrap_or_default() {
            let sum: &mut u64 = bytes_of.entry(pid).or_default();
            *sum = sum.saturating_add(bytes.unwrap_or(0));
        }
    }
    bytes_of
}

fn suspend_anew(shared: &Arc<Shared>, id: &str, pid: u32, bytes: u64) {
    let text = format!(
        "{id} is suspended, and process {pid} has memory on the GPU again ({} in all) that the manager did not bring back: it is \
         suspended anew; find what restores it (cuda-checkpoint, cuCheckpointProcessRestore)",
        MemorySize(bytes)
    );
    shared.say(Severity::Warning, "VcudaReturned", text, id);
    if let Err(error) = shared.begin(id, Wish::SuspendAnew, None) {
        tracing::warn!(container = id, "not suspended anew: {error}");
    }
}
