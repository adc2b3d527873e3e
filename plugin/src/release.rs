//! Release of grants whose containers are gone. Two answers of kubelet must agree, and nothing is released while kubelet is away.
//!
//! PodResources lists the containers of living pods without their plain init containers. The checkpoint has those too, but it
//! keeps ended pods until kubelet writes it again: at the next Allocate, or when a plugin sends a list. So if only the checkpoint
//! has a container, the plugin sends the list again, and the new checkpoint decides.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until};
use tracing::{debug, info, warn};
use vcuda_manager_api::v1;

use crate::cdi::{SlotRecord, Store, StoreError};
use crate::ids::{Kind, Slot};
use crate::manager::{Manager, ManagerError};
use crate::pods::{Devices, Pods, PodsSnapshot};
use crate::reclaim::ReclaimReceiver;
use crate::serve::Readers;
use crate::share_lru::ShareLru;

/// Grace period while a container waits for free amounts. Kubelet writes a fresh checkpoint for each check.
const RECLAIM_GRACE: Duration = Duration::from_secs(1);
/// Longest wait for kubelet's new checkpoint after a list was sent.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checks for the new checkpoint.
const CHECKPOINT_POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReleaseTimes {
    pub(crate) interval: Duration,
    /// Time from the first check without the container to the release of its grant.
    pub(crate) grace: Duration,
}

/// Releases the grants of containers that are gone.
#[derive(Debug)]
pub(crate) struct Releaser {
    pub(crate) times: ReleaseTimes,
    pub(crate) pods: Arc<Pods>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) store: Store,
    pub(crate) share_lru: Arc<ShareLru>,
    /// Whether kubelet reads the list of shares. If not, kubelet is away.
    pub(crate) is_connected: watch::Receiver<bool>,
    /// Kubelet's streams of that list.
    pub(crate) readers: Readers,
    /// Requests of starting containers that found no free amounts.
    pub(crate) reclaim_requests: ReclaimReceiver,
}

/// Time of the first check without the slot's container, by slot.
type GoneSince = HashMap<Slot, Instant>;

/// The earliest future time at which a slot will have been gone for `grace`.
fn next_due(since: &GoneSince, grace: Duration) -> Option<Instant> {
    let now = Instant::now();
    since.values().map(|first| *first + grace).filter(|due| *due > now).min()
}

/// Sleeps until `time`; forever if it is `None`.
async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Releaser {
    pub(crate) async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.times.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since = GoneSince::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.release_due(self.times.grace, &mut since).await;
                }
                // A due release does not wait for the next tick, which can be a whole interval later.
                () = sleep_until_some(next_due(&since, self.times.grace)) => {
                    self.release_due(self.times.grace, &mut since).await;
                }
                changed = self.is_connected.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // After its restart kubelet knows no pods until it has read them.
                    since.clear();
                }
                Some(waiting) = self.reclaim_requests.next() => {
                    let given_back = self.release_now(&mut since).await;
                    for answer in waiting {
                        // The container's start may have timed out; then the reply is dropped.
                        let _ = answer.send(given_back);
                    }
                }
            }
        }
    }

    /// Checks twice with a short grace period. Returns the number of released slots.
    async fn release_now(&self, since: &mut GoneSince) -> usize {
        let grace = self.times.grace.min(RECLAIM_GRACE);
        let first = self.release_due(grace, since).await;
        if since.is_empty() {
            return first;
        }
        sleep(grace).await;
        first + self.release_due(grace, since).await
    }

    /// Releases the slots that have been gone for `grace`. Returns their number; 0 while kubelet is away.
    async fn release_due(&self, grace: Duration, since: &mut GoneSince) -> usize {
        let is_connected = *self.is_connected.borrow();
        let released = match is_connected {
            true => self.try_release_due(grace, since).await,
            false => None,
        };
        released.unwrap_or_else(|| {
            since.clear();
            0
        })
    }

    /// Releases as [`Releaser::release_due`]. Returns `None` if kubelet or the manager does not answer.
    async fn try_release_due(&self, grace: Duration, since: &mut GoneSince) -> Option<usize> {
        let grants = match self.manager.list().await {
            Ok(grants) => grants,
            Err(error) => {
                debug!("nothing is given back now: {error}");
                return None;
            }
        };
        let grants: HashMap<Slot, v1::Grant> =
            grants.into_iter().filter_map(|grant| Some((plugin_slot(&grant)?, grant))).collect();
        let written = self.store.records::<SlotRecord>().unwrap_or_default();
        let written = written.iter().map(SlotRecord::slot);
        let all: BTreeSet<Slot> = grants.keys().cloned().chain(written).collect();
        let gone = self.gone_slots(all).await?;
        since.retain(|slot, _| gone.contains(slot));
        let mut given_back = 0;
        // One time for all slots of this check, so that they are also due together.
        let now = Instant::now();
        for slot in gone {
            let first = *since.entry(slot.clone()).or_insert(now);
            if now.duration_since(first) < grace {
                continue;
            }
            match self.release_slot(&slot, grants.get(&slot)).await {
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

    /// Those of `slots` whose container kubelet no longer knows. Returns `None` if kubelet does not answer.
    async fn gone_slots(&self, slots: BTreeSet<Slot>) -> Option<BTreeSet<Slot>> {
        let snapshot = self.snapshot().await?;
        let listed = slots_of(snapshot.listed());
        let unlisted: BTreeSet<Slot> = slots.difference(&listed).cloned().collect();
        let recorded = slots_of(snapshot.recorded());
        if unlisted.is_disjoint(&recorded) {
            return Some(unlisted);
        }
        let snapshot = match self.refresh_checkpoint().await {
            true => self.snapshot().await?,
            // Without a fresh checkpoint its containers count as alive.
            false => snapshot,
        };
        let living: BTreeSet<Slot> =
            slots_of(snapshot.listed()).union(&slots_of(snapshot.recorded())).cloned().collect();
        Some(unlisted.difference(&living).cloned().collect())
    }

    /// Kubelet's answers; `None` if PodResources or the checkpoint is missing.
    async fn snapshot(&self) -> Option<Arc<PodsSnapshot>> {
        let snapshot = match self.pods.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                debug!("nothing is given back now: {error}");
                return None;
            }
        };
        if let Some(problem) = &snapshot.checkpoint_problem {
            warn!("nothing is given back: {problem}");
            return None;
        }
        Some(snapshot)
    }

    /// Makes kubelet write its checkpoint. A question to PodResources comes before: it makes kubelet forget ended pods. Returns
    /// whether kubelet has written.
    async fn refresh_checkpoint(&self) -> bool {
        let before = self.pods.checkpoint_version();
        self.readers.repeat();
        let end = Instant::now() + CHECKPOINT_TIMEOUT;
        while Instant::now() < end {
            sleep(CHECKPOINT_POLL).await;
            let now = self.pods.checkpoint_version();
            if now.is_some() && now != before {
                return true;
            }
        }
        debug!("kubelet has not written its checkpoint within {CHECKPOINT_TIMEOUT:?}");
        false
    }

    /// Removes the specification, then releases the grant. Returns false, and leaves both, while a process of the grant lives.
    async fn release_slot(&self, slot: &Slot, grant: Option<&v1::Grant>) -> Result<bool, ManagerError> {
        if let Some(grant) = grant
            && self.manager.is_used(&grant.id).await?
        {
            return Ok(false);
        }
        match self.remove_files(slot, grant) {
            Ok(Some(record)) => self.share_lru.record_use(record.held.ids_of(Kind::Gpu)),
            Ok(None) => {}
            Err(error) => {
                warn!("{slot} is not given back: {error}");
                return Ok(false);
            }
        }
        let Some(grant) = grant else { return Ok(true) };
        match self.manager.release(&grant.id).await {
            Ok(()) => {
                info!(grant = grant.id, "given back: kubelet knows its container no more");
                Ok(true)
            }
            Err(ManagerError::Refused(status)) => {
                debug!(grant = grant.id, "kept: {}", status.message());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the files of a slot, unless its shares are another container's by now. Returns the removed record.
    fn remove_files(&self, slot: &Slot, grant: Option<&v1::Grant>) -> Result<Option<SlotRecord>, StoreError> {
        let record: Option<SlotRecord> = self.store.read(slot.as_str())?;
        if let (Some(record), Some(ended)) = (&record, grant)
            && record.grant != ended.id
        {
            return Ok(None);
        }
        self.store.remove::<SlotRecord>(slot.as_str())?;
        Ok(record)
    }
}

/// The slots of these containers. Containers without shares have none.
fn slots_of<'a>(containers: impl Iterator<Item = &'a Devices>) -> BTreeSet<Slot> {
    let shares = containers.map(|devices| devices.ids_of(Kind::Gpu));
    shares.filter(|shares| !shares.is_empty()).map(Slot::from_shares).collect()
}

/// The slot of a grant that the plugin created; `None` for other grants, whose keys are not slots or which have no pod.
fn plugin_slot(grant: &v1::Grant) -> Option<Slot> {
    let holder = grant.holder.as_ref()?;
    (!holder.pod.is_empty() || !holder.pod_uid.is_empty()).then_some(())?;
    Slot::named(&grant.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;

    /// Other programs create grants too: a grant that is not the plugin's own must outlive every check.
    #[test]
    fn only_a_pods_grant_whose_key_is_a_slot_is_the_plugins() {
        let slot = Slot::from_shares(&Ids::from([3]));
        let grant = |key: &str, holder: Option<[&str; 2]>| v1::Grant {
            key: key.to_owned(),
            holder: holder.map(|[pod, pod_uid]| v1::Holder {
                pod: pod.to_owned(),
                pod_uid: pod_uid.to_owned(),
                container: "c".to_owned(),
                ..v1::Holder::default()
            }),
            ..v1::Grant::default()
        };
        for holder in [["p", ""], ["", "uid"], ["p", "uid"]] {
            assert_eq!(plugin_slot(&grant(slot.as_str(), Some(holder))), Some(slot.clone()));
        }
        for other in [
            grant(slot.as_str(), None),
            grant(slot.as_str(), Some(["", ""])),
            grant("", Some(["p", "uid"])),
            grant("claim-8825099ea4904796", Some(["p", "uid"])),
            grant(&slot.as_str()[1..], Some(["p", "uid"])),
        ] {
            assert_eq!(plugin_slot(&other), None, "{other:?}");
        }
    }

    #[test]
    fn containers_without_shares_have_no_slot() {
        let devices = |shares: &[u32], chunks: u32| Devices {
            ids: [shares.iter().copied().collect(), (0..chunks).collect(), Ids::new(), Ids::new()],
            ..Devices::default()
        };
        let containers = [devices(&[3], 2), devices(&[], 2), devices(&[3], 4)];
        let slot = Slot::from_shares(&Ids::from([3]));
        assert_eq!(slots_of(containers.iter()), BTreeSet::from([slot]));
    }
}
