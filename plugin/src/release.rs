//! What containers no longer hold goes back: by what kubelet says, twice, and never while it is away.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info, warn};
use vcuda_manager_api::v1;

use crate::cdi::Store;
use crate::ids::{Kind, Slot};
use crate::manager::{Manager, ManagerError};
use crate::pods::Pods;
use crate::recency::Recency;

/// When what is not held is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Between two looks.
    pub interval: Duration,
    /// Between the first look at which a container was gone and the one at which its grant ends.
    pub grace: Duration,
}

/// Gives back.
#[derive(Debug)]
pub struct Releaser {
    /// When.
    pub pace: Pace,
    /// Kubelet.
    pub pods: Arc<Pods>,
    /// The grants.
    pub manager: Arc<Manager>,
    /// The specifications.
    pub store: Store,
    /// Which shares were used last.
    pub recency: Arc<Recency>,
    /// Whether kubelet reads our list: if it does not, it is away.
    pub is_connected: watch::Receiver<bool>,
}

impl Releaser {
    /// Looks until it is dropped.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.pace.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since: HashMap<Slot, Instant> = HashMap::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = self.is_connected.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // A kubelet that comes back reads its pods first.
                    since.clear();
                    continue;
                }
            }
            if !*self.is_connected.borrow() {
                since.clear();
                continue;
            }
            match self.living().await {
                Some(living) => {
                    if let Err(error) = self.look(&living, &mut since).await {
                        debug!("nothing is given back now: {error}");
                    }
                }
                None => since.clear(),
            }
        }
    }

    /// The slots of all containers of which kubelet speaks. None: it does not say.
    async fn living(&self) -> Option<BTreeSet<Slot>> {
        let told = match self.pods.ask().await {
            Ok(told) => told,
            Err(error) => {
                debug!("nothing is given back now: {error}");
                return None;
            }
        };
        if let Some(problem) = &told.checkpoint_problem {
            warn!("nothing is given back: {problem}");
            return None;
        }
        let shares = told.containers().map(|devices| devices.of(Kind::Gpu));
        Some(shares.filter(|shares| !shares.is_empty()).map(Slot::of).collect())
    }

    async fn look(
        &self,
        living: &BTreeSet<Slot>,
        since: &mut HashMap<Slot, Instant>,
    ) -> Result<(), ManagerError> {
        let grants = self.manager.list().await?;
        let grants: HashMap<Slot, v1::Grant> = grants
            .into_iter()
            .filter_map(|grant| Some((ours(&grant)?, grant)))
            .collect();
        let store = self.store.clone();
        let written = spawn_blocking(move || store.records()).await;
        let written: BTreeSet<Slot> = match written {
            Ok(Ok(records)) => records.into_iter().map(|record| record.slot).collect(),
            _ => BTreeSet::new(),
        };
        let all: BTreeSet<&Slot> = grants.keys().chain(&written).collect();
        since.retain(|slot, _| all.contains(slot) && !living.contains(slot));
        for slot in all.into_iter().filter(|slot| !living.contains(slot)) {
            let now = Instant::now();
            let first = *since.entry(slot.clone()).or_insert(now);
            if now.duration_since(first) < self.pace.grace {
                continue;
            }
            self.give_back(slot, grants.get(slot)).await?;
        }
        Ok(())
    }

    /// Specification, then grant; not while a process of it lives.
    async fn give_back(&self, slot: &Slot, grant: Option<&v1::Grant>) -> Result<(), ManagerError> {
        if let Some(grant) = grant
            && self.manager.is_used(&grant.id).await?
        {
            return Ok(());
        }
        let (store, gone) = (self.store.clone(), slot.clone());
        let removed = spawn_blocking(move || {
            let record = store.records()?.into_iter().find(|record| record.slot == gone);
            store.remove(&gone).map(|_| record)
        });
        match removed.await {
            Ok(Ok(record)) => {
                if let Some(record) = record {
                    self.recency.used(record.held.of(Kind::Gpu));
                }
            }
            Ok(Err(error)) => {
                warn!("{slot} is not given back: {error}");
                return Ok(());
            }
            Err(_) => return Ok(()),
        }
        let Some(grant) = grant else { return Ok(()) };
        match self.manager.release(&grant.id).await {
            Ok(()) => info!(
                grant = grant.id,
                "given back: kubelet knows its container no more"
            ),
            Err(ManagerError::Refused(status)) => debug!(grant = grant.id, "kept: {}", status.message()),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The slot of a grant that we asked for: others' keys are not slots, or name no pod.
fn ours(grant: &v1::Grant) -> Option<Slot> {
    let holder = grant.holder.as_ref()?;
    (!holder.pod.is_empty() || !holder.pod_uid.is_empty()).then_some(())?;
    Slot::named(&grant.key)
}
