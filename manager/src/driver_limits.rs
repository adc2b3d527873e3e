//! The driver's own memory limits (driver 615 on; docs/hardware.md, "memory limits of cgroups") behind the tenants' quotas: they
//! stop what no preloaded library can.
//!
//! The cgroup of a tenant's process is limited to the tenant's quota if it is the tenant's own: each process in it belongs to the
//! tenant. Nothing is reserved (soft limit 0), so nothing leaks with a removed cgroup. What is set is first recorded in a file, so
//! that it is taken back after the tenant has ended, by a later manager, too. A refusal by NVML is an event; the library's quota
//! holds without the driver's.
//!
//! | module | what |
//! |---|---|
//! | `cgroups` | the cgroup of a process, the processes of a cgroup |
//! | `owners` | which tenant a cgroup belongs to |
//! | `record` | the file |
//! | `setting` | one limit: read, set, taken back |
//! | `pass` | all tenants of a snapshot |
//! | `starting` | containers whose runtime waits |

mod cgroups;
mod owners;
mod pass;
mod record;
mod setting;
mod starting;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vcuda_quota::NO_MEMORY_LIMIT;
use vcuda_region::{GpuUuid, clock};

use crate::background::Background;
use crate::events::Events;
use crate::observe::{DriverLimits, Snapshot, SnapshotCache};
use pass::Pass;
use setting::{Ask, Rest};
pub use starting::StartingContainers;

/// NVML refuses to limit a tenant's cgroup.
pub(crate) const DRIVER_LIMIT_REFUSED: &str = "VcudaDriverLimitRefused";

/// Time between two looks at tenants that have not changed, as other programs may set limits and processes move.
const AGAIN_NS: u64 = 5_000_000_000;
/// Pause after which a driver without such limits, or one that refuses them to this manager, is asked again.
const REST: Duration = Duration::from_secs(60);
/// Pause after a look, so that many registrations are few looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for a snapshot.
const WAIT: Duration = Duration::from_secs(2);

pub(crate) struct Sources {
    pub(crate) root: PathBuf,
    /// Folder of the record.
    pub(crate) state: PathBuf,
    /// Whether this is a user's own manager, which need not be allowed to set limits.
    pub(crate) is_own: bool,
    pub(crate) snapshots: Arc<SnapshotCache>,
    /// What the next snapshot shows.
    pub(crate) shown: Arc<DriverLimits>,
    pub(crate) events: Arc<Events>,
    pub(crate) starting: Arc<StartingContainers>,
    pub(crate) ask: Box<Ask>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Starts the thread that limits the tenants' cgroups until it is dropped. The limits of living tenants stay.
pub(crate) fn start(sources: Sources) -> io::Result<Background> {
    let woken = Arc::clone(&sources.snapshots);
    let wake = Box::new(move || woken.end_waits());
    Background::with_wake("driver-limits", wake, move |stop| {
        let Sources { root, state, is_own, snapshots, shown, events, starting, ask } = sources;
        let mut pass = Pass::new(&root, &state, is_own, events, ask);
        let (mut number, mut due_ns) = (0, 0);
        let mut known = Vec::new();
        while !stop.is_asked() {
            let mut containers = starting.take();
            let mut snapshot = None;
            if containers.is_empty() {
                snapshot = snapshots.newer(number, WAIT);
                containers = starting.take();
            }
            let snapshot = match snapshot {
                // The grant of a container that starts may be younger than the last snapshot.
                _ if !containers.is_empty() => snapshots.begun_after(clock::now_ns()),
                newer => newer.unwrap_or_else(|| snapshots.last()),
            };
            number = snapshot.number;
            let now_ns = clock::now_ns();
            let seen = seen(&snapshot);
            if now_ns < due_ns && seen == known && containers.is_empty() {
                continue;
            }
            let limits = pass.run(&snapshot, &containers);
            for container in containers {
                let outcome = pass.outcome_of(&container, &limits);
                // Its runtime may have given up.
                let _ = container.answer.send(outcome);
            }
            known = seen;
            due_ns = now_ns.saturating_add(AGAIN_NS);
            let (limits, pause) = match limits {
                Ok(limits) => (limits, PAUSE),
                Err(Rest::Long(limit)) => {
                    due_ns = 0;
                    let ids = snapshot.tenants.iter().map(|tenant| tenant.id.clone());
                    (ids.map(|id| (id, limit.clone())).collect(), REST)
                }
                // What was set before holds.
                Err(Rest::Short) => {
                    due_ns = 0;
                    continue;
                }
            };
            let before = std::mem::replace(&mut *shown.lock(), limits.clone());
            if before != limits {
                snapshots.wake();
            }
            std::thread::park_timeout(pause);
        }
        if pass.has_set() {
            // The next manager tries again what fails here.
            let _ = pass.run(&snapshots.begun_after(clock::now_ns()), &[]);
        }
    })
}

/// What the limits depend on: of each tenant its name, its quotas and its processes.
type Seen = Vec<(String, Vec<(GpuUuid, u64)>, Vec<Option<u32>>)>;

fn seen(snapshot: &Snapshot) -> Seen {
    let tenants = snapshot.tenants.iter();
    tenants
        .map(|tenant| {
            let quotas = tenant.devices.iter().map(|one| (one.gpu, one.config.memory_limit_bytes));
            let quotas = quotas.filter(|(_, bytes)| *bytes != NO_MEMORY_LIMIT);
            let processes = tenant.processes.iter().map(|process| process.host_pid);
            (tenant.id.clone(), quotas.collect(), processes.collect())
        })
        .collect()
}
