//! State of the grants, and requests to change it.
//!
//! Changes are sent through [`Grants`] to one thread ([`grant_writer`]). It takes all that wait, decides them one after the
//! other, writes the ledger once, then the directories, and answers. Readers see only what is on the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, watch};
use vcuda_cdi::ContainerEdits;
use vcuda_manager_api::v1::Problem;
use vcuda_manager_api::v1::problem::Part;
use vcuda_quota::pods::bounds::Bounds;
use vcuda_region::clock::now_ns;

use crate::admission::{Candidate, Refusal, Rules};
use crate::events::Events;
use crate::gpu::Inventory;
use crate::grant::Grant;
use crate::grant_devices::GrantDevices;
use crate::grant_table::GrantTable;
use crate::observe::{Snapshot, SnapshotCache};
use crate::problems::problem;
use crate::tenant_directories::TenantDirectories;
use crate::users::LiveLimits;

mod changes;
mod decide;
mod grant_writer;
mod request;
mod returns;
pub mod start;

pub use decide::{DecisionInputs, Held, candidates};
pub use request::{Asked, Create, Planned, Reconciled, Resize};
pub use returns::Returning;

use grant_writer::Command;
use returns::Returns;

/// Capacity of the queue of changes.
const WAITING: usize = 1024;
/// Number of changes that a listener may lag behind.
const BEHIND: usize = 4096;
/// Interval of the check that all directories exist.
const TICK: Duration = Duration::from_secs(2);
/// Reason why a grant was not created, changed or ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GrantError {
    /// There is no such grant or GPU.
    #[error("{0}")]
    NotFound(String),
    /// The request id or key was used for something else.
    #[error("{0}")]
    Conflict(String),
    /// The grant has changed since the caller read it.
    #[error("{0}")]
    Changed(String),
    /// Too little is free.
    #[error("{0}")]
    NoRoom(String),
    /// A GPU cannot be used, or the tenant is still in use.
    #[error("{0}")]
    Refused(String),
    /// The namespace's bounds forbid it.
    #[error("{0}")]
    Denied(String),
    /// A tenant comes back to the GPU: not until that has ended.
    #[error("{0}")]
    Returning(String),
    /// Not possible at present.
    #[error("{0}")]
    Unavailable(String),
}

impl GrantError {
    /// The refusal to release a grant whose processes live.
    fn in_use(id: &str) -> Self {
        Self::Refused(format!(
            "{id} is in use: end its processes first, or release it with --force (in the API: even_if_used)"
        ))
    }
}

impl From<Refusal> for GrantError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown(text) => Self::NotFound(text),
            Refusal::Unusable(text) => Self::Refused(text),
            Refusal::NoRoom(text) => Self::NoRoom(text),
        }
    }
}

/// Kind of a change of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A new grant.
    Created,
    /// A grant with other amounts, or for another holder.
    Resized,
    /// A grant that has ended.
    Released,
}

/// A change of a grant, published once it is on the disk.
#[derive(Debug, Clone)]
pub struct Change {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The grant after the change; a released one before it.
    pub grant: Arc<Grant>,
}

#[derive(Debug)]
struct Shared {
    grant_table: Mutex<Arc<GrantTable>>,
    rules: Mutex<Rules>,
    bounds: Mutex<Arc<Bounds>>,
    returns: Returns,
    users: LiveLimits,
    changes: broadcast::Sender<Change>,
    problem: watch::Sender<Option<String>>,
    /// What was lost as the ledger was rebuilt, until a cordon is set.
    lost_cordons: Mutex<Option<String>>,
}

impl Shared {
    /// Publishes the table and the changes in one step, so that listeners miss and repeat none.
    fn publish(&self, grant_table: &Arc<GrantTable>, changes: Vec<Change>) {
        let mut shown = self.grant_table.lock();
        *shown = Arc::clone(grant_table);
        for change in changes {
            // Having no listener is no failure.
            let _ = self.changes.send(change);
        }
    }
}

/// Handle for reading and changing grants. Clones share the state.
#[derive(Debug, Clone)]
pub struct Grants {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
    directories: TenantDirectories,
    devices: Arc<GrantDevices>,
    inventory: watch::Receiver<Arc<Inventory>>,
    snapshots: Arc<SnapshotCache>,
    events: Arc<Events>,
    /// First times at which callers did not name a grant (`CLOCK_MONOTONIC`, ns), by grant number.
    missing: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Grants {
    /// The grants that are on the disk.
    pub fn grant_table(&self) -> Arc<GrantTable> {
        Arc::clone(&self.shared.grant_table.lock())
    }

    /// The grants, and a receiver of every later change.
    pub fn listen(&self) -> (Arc<GrantTable>, broadcast::Receiver<Change>) {
        let shown = self.shared.grant_table.lock();
        (Arc::clone(&shown), self.shared.changes.subscribe())
    }

    /// A receiver of the reason why nothing can be changed now.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.shared.problem.subscribe()
    }

    /// What does not work now.
    pub fn problems(&self) -> Vec<Problem> {
        [
            (Part::Gpus, self.inventory().problem.clone()),
            (Part::Ledger, self.problem().borrow().clone()),
            (Part::Shim, self.devices.shim_problem()),
            (Part::Cordons, self.shared.lost_cordons.lock().clone()),
        ]
        .into_iter()
        .filter_map(|(part, why)| Some(problem(part, &why?)))
        .collect()
    }

    /// Reasons why no container can be given a GPU now, a line each.
    pub fn outages(&self) -> Vec<String> {
        let has_gpu = self.inventory().outage().is_none();
        let is_outage = |problem: &Problem| match problem.part() {
            Part::Gpus => !has_gpu,
            Part::Shim => !self.devices.has_shim(),
            part => part == Part::Ledger,
        };
        self.problems().into_iter().filter(is_outage).map(|problem| problem.text).collect()
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The tenants' directories.
    pub fn directories(&self) -> &TenantDirectories {
        &self.directories
    }

    /// The grants' devices for container engines.
    pub fn devices(&self) -> &Arc<GrantDevices> {
        &self.devices
    }

    /// The changes of a container that runs in the grant.
    pub async fn edits(&self, grant: &Arc<Grant>) -> Result<ContainerEdits, GrantError> {
        let (devices, grant, inventory) = (Arc::clone(&self.devices), Arc::clone(grant), self.inventory());
        let edits = tokio::task::spawn_blocking(move || devices.edits(&grant, &inventory));
        match edits.await {
            Ok(edits) => edits.map_err(|error| GrantError::Refused(error.to_string())),
            Err(_) => Err(GrantError::Unavailable("the manager is stopping; try again".to_owned())),
        }
    }

    /// The current GPUs.
    pub fn inventory(&self) -> Arc<Inventory> {
        Arc::clone(&self.inventory.borrow())
    }

    /// A snapshot of the tenants as they are now, for a caller who is shown it.
    pub async fn snapshot_now(&self) -> Arc<Snapshot> {
        let grants = self.clone();
        let snapshot = tokio::task::spawn_blocking(move || grants.snapshot_of_now()).await;
        snapshot.unwrap_or_else(|_| self.snapshots.last())
    }

    /// A snapshot of the tenants as they are now. Blocks for some milliseconds: not for a task of tokio's.
    pub fn snapshot_of_now(&self) -> Arc<Snapshot> {
        self.snapshots.begun_after(now_ns())
    }

    /// Each GPU of `inventory` with its load by grants.
    pub fn candidates<'i>(&self, inventory: &'i Inventory) -> Vec<Candidate<'i>> {
        candidates(&self.grant_table(), inventory, &decide::NONE_PENDING, None)
    }

    /// Bounds on the amounts that may be given.
    pub fn rules(&self) -> Rules {
        *self.shared.rules.lock()
    }

    /// Replaces rules and bounds for all later decisions. Existing grants stay.
    pub fn set_rules(&self, rules: Rules, bounds: Bounds) {
        *self.shared.rules.lock() = rules;
        *self.shared.bounds.lock() = Arc::new(bounds);
    }

    /// Limits of users.
    pub fn users(&self) -> &LiveLimits {
        &self.shared.users
    }
}
