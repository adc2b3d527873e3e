//! Room on a GPU whose quotas exceed its memory (`admission.suspendable_overcommit`): suspendable tenants are suspended for
//! those whose allocation found none, and for those that come back.
//!
//! One tenant is suspended at a time, and the driver's answer to the next attempt tells whether that was enough: no figure of
//! ours has to agree with the driver's. Only a resume is computed, since one without room loses the process.

mod demands;
#[cfg(test)]
mod storm;
mod tenants;
mod victim;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use vcuda_region::GpuUuid;
use vcuda_region::clock::now_ns;
use vcuda_region::room::ASK_AGAIN_NS;
use vcuda_region::suspension::SuspendState;

use super::{Ended, Shared, Wish, fits};
use crate::events::Severity;
use crate::observe::{Snapshot, Tenant};
use demands::{Demand, Demands, Purpose};
use tenants::Tenants;
use victim::{Resident, Wanting};

/// Time after a suspension in which those that wait try again (ns): none is suspended for a request of before.
const SETTLE_NS: u64 = 6 * ASK_AGAIN_NS;
/// Time between two attempts for a demand (ns).
const TRY_AGAIN_NS: u64 = 100_000_000;
/// Time between two attempts to resume a tenant, or to suspend one after a failure (ns).
const REST_NS: u64 = 500_000_000;
const REST_AFTER_FAILURE_NS: u64 = 5_000_000_000;

/// Makes room.
#[derive(Debug, Default)]
pub(super) struct Maker {
    tenants: Tenants,
    demands: Demands,
    evictions: Vec<Eviction>,
    /// Tenants for which nothing is tried before a time (ns).
    rests: HashMap<String, u64>,
    /// Tenants of which a suspension failed: none is tried before a time (ns).
    left_alone: HashMap<String, u64>,
    /// State of each tenant that was not running at the last step.
    away: Vec<String>,
}

/// A suspension that makes room.
#[derive(Debug)]
struct Eviction {
    victim: String,
    /// The tenant that gets the room.
    wanting: String,
    gpus: Vec<GpuUuid>,
    ended: Ended,
    /// Time until which its room is waited for (ns), once it has ended.
    settles_ns: Option<u64>,
}

impl Maker {
    /// One look at the tenants; `waiting` are the suspended ones that ask for their memory.
    pub(super) fn step(&mut self, shared: &Arc<Shared>, waiting: &[String]) {
        let now_ns = now_ns();
        let folder = shared.grants.directories().folder();
        for id in self.tenants.follow(&folder, now_ns) {
            let text = format!(
                "{id}: an allocation within its quota was refused, as its GPU had no room in time; have it wait longer \
                 (--wait-for-memory), or grant less (admission.suspendable_overcommit)"
            );
            shared.say(Severity::Warning, "VcudaNoRoom", text, &id);
        }
        self.follow_states(shared, now_ns);
        self.end_evictions(shared, now_ns);
        self.note_requests(shared, waiting, now_ns);
        self.rests.retain(|_, until_ns| *until_ns > now_ns);
        self.left_alone.retain(|_, until_ns| *until_ns > now_ns);
        for (id, demand) in self.demands.first(now_ns) {
            if !self.rests.contains_key(&id) && !self.is_settling(&demand) {
                self.serve(shared, &id, &demand, now_ns);
            }
        }
    }

    /// Notes since when the tenants that came back are there.
    fn follow_states(&mut self, shared: &Shared, now_ns: u64) {
        let records = shared.records.lock();
        let away: Vec<String> = records.all().map(|record| record.id.clone()).collect();
        drop(records);
        for id in self.away.iter().filter(|id| !away.contains(id)) {
            self.tenants.came(id, now_ns);
        }
        self.away = away;
    }

    fn end_evictions(&mut self, shared: &Shared, now_ns: u64) {
        let (rests, left_alone) = (&mut self.rests, &mut self.left_alone);
        self.evictions.retain_mut(|eviction| {
            if let Some(until_ns) = eviction.settles_ns {
                return now_ns < until_ns;
            }
            let ended = eviction.ended.borrow().clone();
            match ended {
                None => true,
                Some(Ok(())) => {
                    shared.instruments.made_room();
                    rests.remove(&eviction.wanting);
                    eviction.settles_ns = Some(now_ns.saturating_add(SETTLE_NS));
                    true
                }
                Some(Err(error)) => {
                    tracing::info!(container = eviction.victim, "makes no room: {error}");
                    let until_ns = now_ns.saturating_add(REST_AFTER_FAILURE_NS);
                    left_alone.insert(eviction.victim.clone(), until_ns);
                    false
                }
            }
        });
    }

    /// Whether a suspension on one of the demand's GPUs is under way. An allocation is tried again after its end, too, before
    /// another tenant is suspended; whether a resume has room is computed.
    fn is_settling(&self, demand: &Demand) -> bool {
        let matters = |one: &&Eviction| one.settles_ns.is_none() || demand.purpose == Purpose::Allocation;
        let evictions = self.evictions.iter().filter(matters);
        let mut gpus = evictions.flat_map(|one| &one.gpus);
        gpus.any(|gpu| demand.gpus.contains(gpu))
    }

    fn note_requests(&mut self, shared: &Shared, waiting: &[String], now_ns: u64) {
        for (id, gpus) in self.tenants.requests() {
            let is_running = shared.state(&id) == SuspendState::Running;
            if let Some(known) = self.tenants.find(&id).filter(|_| is_running) {
                let is_suspendable = known.is_suspendable;
                self.demands
                    .note(&id, Purpose::Allocation, gpus, is_suspendable, now_ns);
            }
        }
        for id in waiting {
            // One whose quota was given to others while it was suspended by hand is not before them.
            if let Some(known) = self.tenants.find(id).filter(|_| !self.rests.contains_key(id)) {
                let gpus = known.gpus();
                self.demands.note(id, Purpose::Resume, gpus, true, now_ns);
            }
        }
        self.demands.forget_resumed(|id| shared.is_at_rest(id));
        self.demands.forget_old(now_ns);
    }

    fn serve(&mut self, shared: &Arc<Shared>, id: &str, demand: &Demand, now_ns: u64) {
        if demand.purpose == Purpose::Resume && self.is_resumed(shared, id, now_ns) {
            return;
        }
        self.rest(id, now_ns.saturating_add(TRY_AGAIN_NS));
        let snapshot = shared.grants.snapshot_of_now();
        let Some(victim) = self.victim(shared, &snapshot, id, demand, now_ns) else {
            return;
        };
        match shared.begin(&victim, Wish::MakeRoom) {
            Ok(Some(ended)) => {
                tracing::info!(container = victim, "is suspended to make room for {id}");
                self.evictions.push(Eviction {
                    victim,
                    wanting: id.to_owned(),
                    gpus: demand.gpus.clone(),
                    ended,
                    settles_ns: None,
                });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::info!(container = victim, "makes no room: {error}");
                let until_ns = now_ns.saturating_add(REST_AFTER_FAILURE_NS);
                self.left_alone.insert(victim, until_ns);
            }
        }
    }

    /// Resumes a tenant if there is room, or has it rest if it may not come back. Returns `false` if room must be made.
    fn is_resumed(&mut self, shared: &Arc<Shared>, id: &str, now_ns: u64) -> bool {
        let is_given_away = shared.grants.grant_table().suspended.contains(id);
        if !is_given_away && fits::has_room(shared, id).is_err() {
            return false;
        }
        // If it is given away, the ledger decides. It is asked again, as there was no room or the quota is free again.
        if let Err(error) = shared.begin(id, Wish::Resume) {
            tracing::info!(container = id, "not resumed: {error}");
        }
        self.rest(id, now_ns.saturating_add(REST_NS));
        true
    }

    fn rest(&mut self, id: &str, until_ns: u64) {
        self.rests.insert(id.to_owned(), until_ns);
    }

    /// The tenant to suspend for a demand.
    fn victim(
        &self,
        shared: &Shared,
        snapshot: &Snapshot,
        id: &str,
        demand: &Demand,
        now_ns: u64,
    ) -> Option<String> {
        let on_gpus = |device: &&crate::observe::Device| demand.gpus.contains(&device.gpu);
        let own = snapshot.find(id)?.devices.iter().find(on_gpus)?;
        let wanting = Wanting {
            is_suspendable: demand.is_suspendable,
            weight: own.config.weight,
        };
        let may_move = |tenant: &&Tenant| {
            tenant.id != id
                && tenant.is_suspendable
                && !self.left_alone.contains_key(&tenant.id)
                && shared.is_at_rest(&tenant.id)
        };
        let residents = snapshot.tenants.iter().filter(may_move).filter_map(|tenant| {
            let mut devices = tenant.devices.iter().filter(on_gpus);
            let device = devices.find(|device| device.used_bytes > 0)?;
            let known = self.tenants.find(&tenant.id)?;
            Some(Resident {
                id: &tenant.id,
                priority: device.config.priority,
                weight: device.config.weight,
                idle_ns: now_ns.saturating_sub(known.used_ns),
                resident_ns: now_ns.saturating_sub(known.resident_ns),
            })
        });
        let residents: Vec<Resident<'_>> = residents.collect();
        let residence_ns = u64::try_from(shared.residence.as_nanos()).unwrap_or(u64::MAX);
        victim::choose(wanting, residence_ns, &residents).map(str::to_owned)
    }
}

/// Pause between two looks while nothing is suspended.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
