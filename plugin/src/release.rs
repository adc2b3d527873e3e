//! Release of grants whose containers are gone: by two answers of kubelet, and never while it is away.
//!
//! Kubelet says it in two places. PodResources lists the containers of living pods, but no plain init containers. The checkpoint
//! has those too, and it has ended pods until it is written again: at the next Allocate, or when a plugin sends a list. So a
//! container that only the checkpoint knows is neither alive nor dead: the list is sent again, and what kubelet then writes tells.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until};
use tracing::{debug, info, warn};
use vcuda_manager_api::v1;

use crate::cdi::Store;
use crate::ids::{Kind, Slot};
use crate::manager::{Manager, ManagerError};
use crate::pods::{Devices, Pods, Told};
use crate::recency::Recency;
use crate::room::Asked;
use crate::serve::Readers;

/// Between the two looks if a container waits for room. Kubelet writes a fresh checkpoint for each.
const HURRIED: Duration = Duration::from_secs(1);
/// Time that kubelet may take to write its checkpoint after it was sent a list.
const WRITES_WITHIN: Duration = Duration::from_secs(2);
/// Between looks whether it has.
const WRITES_LOOK: Duration = Duration::from_millis(20);

/// Times after which unused grants are released.
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
    /// Times of the release.
    pub pace: Pace,
    /// Kubelet.
    pub pods: Arc<Pods>,
    /// The grants.
    pub manager: Arc<Manager>,
    /// The specifications.
    pub store: Store,
    /// Last use of the shares.
    pub recency: Arc<Recency>,
    /// Whether kubelet reads our list: if it does not, it is away.
    pub is_connected: watch::Receiver<bool>,
    /// Kubelet's stream of that list.
    pub readers: Readers,
    /// Containers that wait for room.
    pub asked: Asked,
}

/// Time at which each slot was first seen to be gone.
type Since = HashMap<Slot, Instant>;

/// The earliest time to come at which a slot has been gone for `grace`.
fn due(since: &Since, grace: Duration) -> Option<Instant> {
    let now = Instant::now();
    since
        .values()
        .map(|first| *first + grace)
        .filter(|due| *due > now)
        .min()
}

/// Ends at this time; never, if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Releaser {
    /// Looks until it is dropped.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.pace.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since = Since::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.look(self.pace.grace, &mut since).await;
                }
                // The look that ends a grant comes as soon as it may: the next tick can be a whole interval later.
                () = at(due(&since, self.pace.grace)) => {
                    self.look(self.pace.grace, &mut since).await;
                }
                changed = self.is_connected.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // A kubelet that comes back reads its pods first.
                    since.clear();
                }
                Some(waiting) = self.asked.next() => {
                    let given_back = self.hurry(&mut since).await;
                    for answer in waiting {
                        // A container that waits no longer needs no answer.
                        let _ = answer.send(given_back);
                    }
                }
            }
        }
    }

    /// Two looks at once. Returns how many slots were given back.
    async fn hurry(&self, since: &mut Since) -> usize {
        let grace = self.pace.grace.min(HURRIED);
        let first = self.look(grace, since).await;
        if since.is_empty() {
            return first;
        }
        sleep(grace).await;
        first + self.look(grace, since).await
    }

    /// Releases slots that have been gone for `grace`. Returns how many those were.
    async fn look(&self, grace: Duration, since: &mut Since) -> usize {
        let is_connected = *self.is_connected.borrow();
        let looked = match is_connected {
            true => self.look_at_kubelet(grace, since).await,
            false => None,
        };
        looked.unwrap_or_else(|| {
            since.clear();
            0
        })
    }

    /// `None` if kubelet or the manager does not answer.
    async fn look_at_kubelet(&self, grace: Duration, since: &mut Since) -> Option<usize> {
        let grants = match self.manager.list().await {
            Ok(grants) => grants,
            Err(error) => {
                debug!("nothing is given back now: {error}");
                return None;
            }
        };
        let grants: HashMap<Slot, v1::Grant> = grants
            .into_iter()
            .filter_map(|grant| Some((ours(&grant)?, grant)))
            .collect();
        let store = self.store.clone();
        let written = match spawn_blocking(move || store.records()).await {
            Ok(Ok(records)) => records.into_iter().map(|record| record.slot).collect(),
            _ => BTreeSet::new(),
        };
        let all: BTreeSet<Slot> = grants.keys().cloned().chain(written).collect();
        let gone = self.gone(all).await?;
        since.retain(|slot, _| gone.contains(slot));
        let mut given_back = 0;
        // What is first missed at one look is due at one look.
        let now = Instant::now();
        for slot in gone {
            let first = *since.entry(slot.clone()).or_insert(now);
            if now.duration_since(first) < grace {
                continue;
            }
            match self.give_back(&slot, grants.get(&slot)).await {
                Ok(true) => {
                    since.remove(&slot);
                    given_back += 1;
                }
                Ok(false) => {}
                Err(error) => {
                    debug!("nothing more is given back now: {error}");
                    break;
                }
            }
        }
        Some(given_back)
    }

    /// The slots of `slots` whose container kubelet no longer knows. `None` if it does not answer.
    async fn gone(&self, slots: BTreeSet<Slot>) -> Option<BTreeSet<Slot>> {
        let told = self.told().await?;
        let listed = held(told.listed());
        let unlisted: BTreeSet<Slot> = slots.difference(&listed).cloned().collect();
        let recorded = held(told.recorded());
        if unlisted.is_disjoint(&recorded) {
            return Some(unlisted);
        }
        let told = match self.written_again().await {
            true => self.told().await?,
            // A checkpoint that is not known to be fresh proves no container's end.
            false => told,
        };
        let living: BTreeSet<Slot> = held(told.listed())
            .union(&held(told.recorded()))
            .cloned()
            .collect();
        Some(unlisted.difference(&living).cloned().collect())
    }

    /// Kubelet's complete answers, if it gives them.
    async fn told(&self) -> Option<Arc<Told>> {
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
        Some(told)
    }

    /// Makes kubelet write its checkpoint, after a question to PodResources that made it forget ended pods. Returns whether it
    /// has.
    async fn written_again(&self) -> bool {
        let before = self.pods.written();
        self.readers.repeat();
        let end = Instant::now() + WRITES_WITHIN;
        while Instant::now() < end {
            sleep(WRITES_LOOK).await;
            let now = self.pods.written();
            if now.is_some() && now != before {
                return true;
            }
        }
        debug!("kubelet has not written its checkpoint within {WRITES_WITHIN:?}");
        false
    }

    /// Specification, then grant; not while a process of it lives. Returns whether it is given back.
    async fn give_back(&self, slot: &Slot, grant: Option<&v1::Grant>) -> Result<bool, ManagerError> {
        if let Some(grant) = grant
            && self.manager.is_used(&grant.id).await?
        {
            return Ok(false);
        }
        let (store, gone) = (self.store.clone(), slot.clone());
        let ended = grant.map(|grant| grant.id.clone());
        let removed = spawn_blocking(move || {
            let record = store.records()?.into_iter().find(|record| record.slot == gone);
            // The same shares may be another container's by now.
            if let (Some(record), Some(ended)) = (&record, &ended)
                && record.id != *ended
            {
                return Ok(None);
            }
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
                return Ok(false);
            }
            Err(_) => return Ok(false),
        }
        let Some(grant) = grant else { return Ok(true) };
        match self.manager.release(&grant.id).await {
            Ok(()) => {
                info!(
                    grant = grant.id,
                    "given back: kubelet knows its container no more"
                );
                Ok(true)
            }
            Err(ManagerError::Refused(status)) => {
                debug!(grant = grant.id, "kept: {}", status.message());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The slots of these containers, of those that hold shares.
fn held<'a>(containers: impl Iterator<Item = &'a Devices>) -> BTreeSet<Slot> {
    let shares = containers.map(|devices| devices.of(Kind::Gpu));
    shares.filter(|shares| !shares.is_empty()).map(Slot::of).collect()
}

/// The slot of a grant that we asked for: others' keys are not slots, or name no pod.
fn ours(grant: &v1::Grant) -> Option<Slot> {
    let holder = grant.holder.as_ref()?;
    (!holder.pod.is_empty() || !holder.pod_uid.is_empty()).then_some(())?;
    Slot::named(&grant.key)
}
