//! Requests to change grants, each decided by the writer's thread ([`super::grant_writer`]).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use vcuda_region::GpuUuid;
use vcuda_region::clock::now_ns;

use super::grant_writer::Command;
use super::{Create, GrantError, Grants, Planned, Reconciled, Resize, Returning, decide};
use crate::grant::{Grant, GrantId, Holder};
use crate::grant_table::GrantTable;
use crate::observe::Snapshot;
use crate::users::Owner;

/// Longest wait of a change for a tenant that comes back to the GPU (ns): less than the device plugin waits for an answer.
const RETURN_WAIT_NS: u64 = 4_000_000_000;
const RETURN_PAUSE: Duration = Duration::from_millis(50);

impl Grants {
    /// Admits a tenant. Repeating a request returns the same grant.
    pub async fn create(&self, create: Create) -> Result<Arc<Grant>, GrantError> {
        self.ask_beside_returns(|reply| Command::Create(create.clone(), reply)).await
    }

    /// Changes the amounts of a grant.
    pub async fn resize(&self, resize: Resize) -> Result<Arc<Grant>, GrantError> {
        self.ask_beside_returns(|reply| Command::Resize(resize.clone(), reply)).await
    }

    /// Changes whom a grant is for, within its namespace, whose bounds its amounts keep.
    pub async fn set_holder(&self, id: String, holder: Holder) -> Result<Arc<Grant>, GrantError> {
        self.ask(|reply| Command::SetHolder(id, holder, reply)).await
    }

    /// The refusals of these changes, each after those before it; none is made.
    pub async fn check_changes(&self, changes: Vec<Planned>) -> Result<Vec<Option<GrantError>>, GrantError> {
        let grant_table = self.grant_table();
        let released = changes.iter().filter_map(|change| match change {
            Planned::Release(id) => grant_table.by_id(id).map(|grant| grant.id.clone()),
            Planned::Create(_) | Planned::Resize(_) => None,
        });
        let released: Vec<GrantId> = released.collect();
        let unused = match released.is_empty() {
            true => Vec::new(),
            false => self.unused(released.clone()).await?,
        };
        let used = released.into_iter().filter(|id| !unused.contains(id)).collect();
        self.ask(|reply| Command::Check(changes, used, reply)).await
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
            return Err(GrantError::in_use(id));
        }
        let ids = vec![grant.id.clone()];
        let released = self.ask(|reply| Command::Release(ids, reply)).await?;
        Ok(!released.is_empty())
    }

    /// Ends the transient grants that no process uses any more.
    pub async fn end_unused(&self) -> Result<(), GrantError> {
        let grant_table = self.grant_table();
        let transient = grant_table.grants().filter(|grant| grant.is_transient);
        let ids: Vec<GrantId> = transient.map(|grant| grant.id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let directories = self.directories.clone();
        let unused = tokio::task::spawn_blocking(move || directories.lock_unused(ids)).await;
        let unused =
            unused.map_err(|_| GrantError::Unavailable("the manager is stopping; try again".to_owned()))?;
        if unused.is_empty() {
            return Ok(());
        }
        let ids = unused.iter().map(|(id, _)| id.clone()).collect();
        // Locked until they are removed, so that no process enters one that ends.
        self.ask(|reply| Command::Release(ids, reply)).await.map(drop)
    }

    /// Notes that the GPU memory of a tenant is in the host's: its quota of memory is free for others.
    pub async fn suspend(&self, id: &str) -> Result<(), GrantError> {
        let id = id.to_owned();
        self.ask(|reply| Command::Suspend(id, reply)).await
    }

    /// Keeps the memory of a suspended tenant's quota for it again.
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
    pub async fn cordon(&self, gpu: GpuUuid, cordoned: bool) -> Result<(), GrantError> {
        self.ask(|reply| Command::Cordon(gpu, cordoned, reply)).await
    }

    /// Receives the caller's containers with keys that begin with `prefix`. A grant that it has not named in two calls at
    /// least `grace` apart, and that no process uses, is released.
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
            unknown_keys: living.iter().filter(|key| grant_table.by_key(key).is_none()).cloned().collect(),
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
        let living: HashSet<&str> = living.iter().map(String::as_str).collect();
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
        unused.await.map_err(|_| GrantError::Unavailable("the manager is stopping; try again".to_owned()))
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
