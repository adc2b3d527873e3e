//! State of the grants, and requests to change it.
//!
//! Changes are sent through [`Grants`] to one thread ([`grant_writer`]). It takes all that wait, decides them one after the
//! other, writes the ledger once, then the directories, and answers. Readers see only what is on the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use vcuda_cdi::ContainerEdits;
use vcuda_quota::pods::bounds::Bounds;
use vcuda_region::GpuUuid;
use vcuda_region::clock::now_ns;

use crate::admission::{Candidate, Refusal, Rules};
use crate::gpu::Inventory;
use crate::grant::{Grant, GrantId};
use crate::grant_devices::GrantDevices;
use crate::grant_table::GrantTable;
use crate::observe::{Snapshot, SnapshotCache};
use crate::tenant_directories::TenantDirectories;
use crate::users::{LiveLimits, Owner};

mod decide;
mod grant_writer;
mod request;
mod returns;
pub mod start;

pub use decide::{DecisionInputs, Held, candidates};
pub use request::{Asked, Create, Reconciled, Resize};
pub use returns::Returning;

use grant_writer::Command;
use returns::Returns;

/// Capacity of the queue of changes.
const WAITING: usize = 1024;
/// Number of changes that a listener may lag behind.
const BEHIND: usize = 4096;
/// Interval of the check that all directories exist.
const TICK: Duration = Duration::from_secs(2);
/// Longest wait of a change for a tenant that comes back to the GPU (ns): less than the device plugin waits for an answer.
const RETURN_WAIT_NS: u64 = 4_000_000_000;
/// Pause between two attempts.
const RETURN_PAUSE: Duration = Duration::from_millis(50);

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
    /// A grant with other amounts.
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

/// State that every thread may read.
#[derive(Debug)]
struct Shared {
    grant_table: Mutex<Arc<GrantTable>>,
    rules: Mutex<Rules>,
    bounds: Mutex<Arc<Bounds>>,
    returns: Returns,
    users: LiveLimits,
    changes: broadcast::Sender<Change>,
    problem: watch::Sender<Option<String>>,
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
    /// First times at which callers did not name a grant (`CLOCK_MONOTONIC`, ns), by grant number.
    missing: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Grants {
    /// The grants that are on the disk.
    #[must_use]
    pub fn grant_table(&self) -> Arc<GrantTable> {
        Arc::clone(&self.shared.grant_table.lock())
    }

    /// The grants, and a receiver of every later change.
    #[must_use]
    pub fn listen(&self) -> (Arc<GrantTable>, broadcast::Receiver<Change>) {
        let shown = self.shared.grant_table.lock();
        (Arc::clone(&shown), self.shared.changes.subscribe())
    }

    /// A receiver of the reason why nothing can be changed now.
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.shared.problem.subscribe()
    }

    /// Reasons why no GPU can be granted now, a line each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let gpus = self.inventory().outage().map(str::to_owned);
        let ledger = self.problem().borrow().clone();
        [("GPUs", gpus), ("ledger", ledger)]
            .into_iter()
            .filter_map(|(part, why)| Some(format!("{part}: {}", why?)))
            .collect()
    }

    /// The tenants' directories.
    #[must_use]
    pub fn directories(&self) -> &TenantDirectories {
        &self.directories
    }

    /// The grants' devices for container engines.
    #[must_use]
    pub fn devices(&self) -> &Arc<GrantDevices> {
        &self.devices
    }

    /// The changes of a container that runs in the grant.
    ///
    /// # Errors
    /// Shim, driver or a GPU's device node are not found.
    pub async fn edits(&self, grant: &Arc<Grant>) -> Result<ContainerEdits, GrantError> {
        let (devices, grant, inventory) = (Arc::clone(&self.devices), Arc::clone(grant), self.inventory());
        let edits = tokio::task::spawn_blocking(move || devices.edits(&grant, &inventory));
        match edits.await {
            Ok(edits) => edits.map_err(|error| GrantError::Refused(error.to_string())),
            Err(_) => Err(GrantError::Unavailable(
                "the manager is stopping; try again".to_owned(),
            )),
        }
    }

    /// The current GPUs.
    #[must_use]
    pub fn inventory(&self) -> Arc<Inventory> {
        Arc::clone(&self.inventory.borrow())
    }

    /// A current snapshot of the tenants, made anew if the last one is too old.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        let snapshots = Arc::clone(&self.snapshots);
        let snapshot = tokio::task::spawn_blocking(move || snapshots.fresh());
        snapshot.await.unwrap_or_else(|_| self.snapshots.last())
    }

    /// A snapshot of the tenants as they are now. Blocks for some milliseconds: not for a task of tokio's.
    #[must_use]
    pub fn snapshot_of_now(&self) -> Arc<Snapshot> {
        self.snapshots.begun_after(now_ns())
    }

    /// The last snapshot of the tenants, up to some seconds old.
    #[must_use]
    pub fn last_snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.last()
    }

    /// Each GPU of `inventory` with its load by grants and by the tenants of `snapshot`.
    #[must_use]
    pub fn candidates<'i>(&self, inventory: &'i Inventory, snapshot: &Snapshot) -> Vec<Candidate<'i>> {
        candidates(
            &self.grant_table(),
            inventory,
            snapshot,
            &decide::NONE_PENDING,
            None,
        )
    }

    /// Bounds on the amounts that may be given.
    #[must_use]
    pub fn rules(&self) -> Rules {
        *self.shared.rules.lock()
    }

    /// Replaces rules and bounds for all later decisions. Existing grants stay.
    pub fn set_rules(&self, rules: Rules, bounds: Bounds) {
        *self.shared.rules.lock() = rules;
        *self.shared.bounds.lock() = Arc::new(bounds);
    }

    /// Limits of users.
    #[must_use]
    pub fn users(&self) -> &LiveLimits {
        &self.shared.users
    }

    /// Admits a tenant. Repeating a request returns the same grant.
    ///
    /// # Errors
    /// See [`GrantError`].
    pub async fn create(&self, create: Create) -> Result<Arc<Grant>, GrantError> {
        self.ask_beside_returns(|reply| Command::Create(create.clone(), reply))
            .await
    }

    /// Changes the amounts of a grant.
    ///
    /// # Errors
    /// See [`GrantError`].
    pub async fn resize(&self, resize: Resize) -> Result<Arc<Grant>, GrantError> {
        self.ask_beside_returns(|reply| Command::Resize(resize.clone(), reply))
            .await
    }

    /// Ends a grant. Returns whether there was one. `caller` is set if it may end its own grants only.
    ///
    /// # Errors
    /// Fails if a process of it is alive and `even_if_used` is not set, if it is not the caller's, or if the ledger cannot be
    /// written.
    pub async fn release(
        &self,
        id: &str,
        even_if_used: bool,
        caller: Option<&Owner>,
    ) -> Result<bool, GrantError> {
        let Some(grant) = self.grant_table().by_id(id).cloned() else {
            return Ok(false);
        };
        if let Some(caller) = caller {
            decide::check_own(&grant, caller)?;
        }
        let is_suspended = self.grant_table().suspended.contains(id);
        if is_suspended && even_if_used && !self.unused(vec![grant.id.clone()]).await?.contains(&grant.id) {
            return Err(GrantError::Refused(format!(
                "{id} is suspended, and its processes would wait for ever: end them, or resume it first"
            )));
        }
        if !even_if_used && !self.unused(vec![grant.id.clone()]).await?.contains(&grant.id) {
            return Err(GrantError::Refused(format!(
                "{id} is in use: end its processes first, or release it with --force (in the API: even_if_used)"
            )));
        }
        let ids = vec![grant.id.clone()];
        let released = self.ask(|reply| Command::Release(ids, reply)).await?;
        Ok(!released.is_empty())
    }

    /// Notes that the GPU memory of a tenant is in the host's: its quota of memory is free for others.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub async fn suspend(&self, id: &str) -> Result<(), GrantError> {
        let id = id.to_owned();
        self.ask(|reply| Command::Suspend(id, reply)).await
    }

    /// Keeps the memory of a suspended tenant's quota for it again.
    ///
    /// # Errors
    /// There is no room, or the ledger cannot be written.
    pub async fn reserve(&self, id: &str) -> Result<(), GrantError> {
        let id = id.to_owned();
        self.ask(|reply| Command::Reserve(id, reply)).await
    }

    /// Begins the return of a tenant's memory to its GPUs. Where quotas may exceed a GPU, no grant is created or enlarged there
    /// until the result is dropped. Changes that were decided before are done once a later request, such as
    /// [`Grants::reserve`], is answered.
    pub fn begin_return(&self, id: &str) -> Returning {
        self.shared.returns.begin(id)
    }

    /// Cordons a GPU (excludes it from placement), or uncordons it.
    ///
    /// # Errors
    /// Fails if there is no such GPU, or if the ledger cannot be written.
    pub async fn cordon(&self, gpu: GpuUuid, cordoned: bool) -> Result<(), GrantError> {
        self.ask(|reply| Command::Cordon(gpu, cordoned, reply)).await
    }

    /// Receives the caller's containers with keys that begin with `prefix`. A grant that it has not named in two calls at
    /// least `grace` apart, and that no process uses, is released.
    ///
    /// # Errors
    /// Fails if the ledger cannot be written.
    pub async fn reconcile(
        &self,
        prefix: &str,
        living: &[String],
        grace: Duration,
    ) -> Result<Reconciled, GrantError> {
        let grant_table = self.grant_table();
        let (gone, missing) = self.note_missing(&grant_table, prefix, living, grace);
        let gone = self.unused(gone).await?;
        let released = if gone.is_empty() {
            Vec::new()
        } else {
            self.ask(|reply| Command::Release(gone, reply)).await?
        };
        let missing = missing.into_iter().filter(|id| !released.contains(id));
        Ok(Reconciled {
            unknown_keys: living
                .iter()
                .filter(|key| grant_table.by_key(key).is_none())
                .cloned()
                .collect(),
            missing: missing.collect(),
            released,
        })
    }

    /// Records unnamed grants. Returns those unnamed for at least `grace`, and all unnamed ones.
    fn note_missing(
        &self,
        grant_table: &GrantTable,
        prefix: &str,
        living: &[String],
        grace: Duration,
    ) -> (Vec<GrantId>, Vec<GrantId>) {
        let living: std::collections::HashSet<&str> = living.iter().map(String::as_str).collect();
        let now = now_ns();
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        let mut since = self.missing.lock();
        since.retain(|number, _| grant_table.by_number(*number).is_some());
        let (mut gone, mut missing) = (Vec::new(), Vec::new());
        for grant in grant_table.grants().filter(|grant| grant.key.starts_with(prefix)) {
            if living.contains(grant.key.as_str()) {
                since.remove(&grant.number);
                continue;
            }
            missing.push(grant.id.clone());
            match since.get(&grant.number) {
                Some(first) if now.saturating_sub(*first) >= grace_ns => gone.push(grant.id.clone()),
                Some(_) => {}
                None => {
                    since.insert(grant.number, now);
                }
            }
        }
        (gone, missing)
    }

    /// Grants of `ids` that no process uses. It reads files that tenants can write, so it does not run on the writer's
    /// thread.
    async fn unused(&self, ids: Vec<GrantId>) -> Result<Vec<GrantId>, GrantError> {
        let directories = self.directories.clone();
        let snapshots = Arc::clone(&self.snapshots);
        let unused = tokio::task::spawn_blocking(move || {
            let free = |snapshot: &Snapshot| -> Vec<GrantId> {
                let is_registered = |id: &GrantId| {
                    let tenant = snapshot.find(id.as_str());
                    tenant.is_some_and(|tenant| tenant.processes.iter().any(|process| process.registered))
                };
                let is_free = |id: &&GrantId| !directories.is_used(id) && !is_registered(id);
                ids.iter().filter(is_free).cloned().collect()
            };
            let found = free(&snapshots.fresh());
            if found.len() == ids.len() {
                return found;
            }
            // In a snapshot that is some milliseconds old, a process that has just ended still lives.
            free(&snapshots.begun_after(now_ns()))
        });
        unused
            .await
            .map_err(|_| GrantError::Unavailable("the manager is stopping; try again".to_owned()))
    }

    /// Asks for more memory, and for some seconds again while a tenant comes back to the GPU.
    async fn ask_beside_returns<T>(
        &self,
        command: impl Fn(oneshot::Sender<Result<T, GrantError>>) -> Command,
    ) -> Result<T, GrantError> {
        let until_ns = now_ns().saturating_add(RETURN_WAIT_NS);
        loop {
            match self.ask(&command).await {
                Err(GrantError::Returning(_)) if now_ns() < until_ns => {
                    tokio::time::sleep(RETURN_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, GrantError>>) -> Command,
    ) -> Result<T, GrantError> {
        let gone = || GrantError::Unavailable("the manager is stopping; try again".to_owned());
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
