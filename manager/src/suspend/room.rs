//! Room on a GPU whose quotas exceed its memory (`admission.suspendable_overcommit`): suspendable tenants are suspended for
//! those whose allocation found none, and for those that come back.
//!
//! One tenant is suspended at a time, and the driver's answer to the next attempt tells whether that was enough. A tenant only says
//! that it wants room, so NVML's figures decide whether that can be true ([`figures`]), and one that does not use what was made
//! for it rests ([`trust`]). A resume is computed, since one without room loses the process.

mod demands;
mod evictions;
mod figures;
mod tenants;
#[cfg(test)]
mod tests;
mod trust;
mod victim;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use vcuda_region::clock::now_ns;
use vcuda_region::room::ASK_AGAIN_NS;
use vcuda_region::suspension::SuspendState;

use super::{Shared, Wish, fits};
use crate::events::Severity;
use crate::observe::{Snapshot, Tenant};
use crate::state::GrantError;
use demands::{Demand, Demands, Purpose};
use evictions::{Eviction, Evictions};
use figures::{Before, Figures};
use tenants::Tenants;
use trust::Trust;
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
    trust: Trust,
    evictions: Evictions,
    /// Tenants for which nothing is tried before a time (ns).
    rests: HashMap<String, u64>,
    /// Tenants of which a suspension failed: none is tried before a time (ns).
    left_alone: HashMap<String, u64>,
    /// State of each tenant that was not running at the last step.
    away: Vec<String>,
}

impl Maker {
    /// One look at the tenants; `waiting` are the suspended ones that ask for their memory.
    pub(super) fn step(&mut self, shared: &Arc<Shared>, waiting: &[String]) {
        let now_ns = now_ns();
        for id in self.tenants.follow(shared.grants.directories(), now_ns) {
            let text = format!(
                "{id}: an allocation within its quota was refused, as its GPU had no room in time; have it wait longer \
                 (--wait-for-memory), or grant less (admission.suspendable_overcommit)"
            );
            shared.say(Severity::Warning, "VcudaGpuMemoryFull", text, &id);
        }
        self.follow_states(shared, now_ns);
        self.end_evictions(shared, now_ns);
        self.trust.forget_old(now_ns);
        self.note_requests(shared, waiting, now_ns);
        self.rests.retain(|_, until_ns| *until_ns > now_ns);
        self.left_alone.retain(|_, until_ns| *until_ns > now_ns);
        for (id, demand) in self.demands.first(now_ns) {
            if !self.rests.contains_key(&id) && !self.is_settling(&demand, now_ns) {
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
        self.evictions.note_ends(now_ns, |eviction, ended| match ended {
            Ok(()) => {
                shared.instruments.made_room();
                rests.remove(&eviction.wanting);
            }
            Err(error) => {
                tracing::info!(container = eviction.victim, "makes no room: {error}");
                let until_ns = now_ns.saturating_add(REST_AFTER_FAILURE_NS);
                left_alone.insert(eviction.victim.clone(), until_ns);
            }
        });
        for (id, before) in self.evictions.take_old(now_ns) {
            self.judge(shared, &id, &before, now_ns);
        }
    }

    /// Has a tenant rest if it has not used the room that was made for it.
    fn judge(&mut self, shared: &Shared, id: &str, before: &Before, now_ns: u64) {
        if before.is_used_now(shared, &shared.grants.snapshot_of_now(), id) {
            self.trust.used(id);
            return;
        }
        tracing::info!(container = id, "has not used the room that was made for it, and rests");
        self.trust.not_used(id, now_ns);
        self.demands.forget(id);
    }

    /// Forgets a demand that cannot be true, or for which no tenant is left to be suspended. If some were suspended for it, that
    /// was in vain unless the room is used by now.
    fn give_up(&mut self, shared: &Shared, id: &str, now_ns: u64) {
        self.demands.forget(id);
        match self.evictions.take_ended(id) {
            Some(before) => self.judge(shared, id, &before, now_ns),
            None => self.trust.pause(id, now_ns),
        }
    }

    /// Whether a tenant waits for memory that it does not get: its attempts are calls, and no use of the GPU.
    fn waits_in_vain(&self, id: &str, now_ns: u64) -> bool {
        self.trust.rests(id, now_ns) || (self.trust.doubts(id) && self.demands.wants_more(id))
    }

    /// Whether a suspension on one of the demand's GPUs is under way. An allocation is tried again after its end, too, before
    /// another tenant is suspended; whether a resume has room is computed.
    fn is_settling(&self, demand: &Demand, now_ns: u64) -> bool {
        let settle_ns = match demand.purpose {
            Purpose::Allocation => SETTLE_NS,
            Purpose::Resume => 0,
        };
        self.evictions.are_on(&demand.gpus, settle_ns, now_ns)
    }

    fn note_requests(&mut self, shared: &Shared, waiting: &[String], now_ns: u64) {
        for (id, gpus) in self.tenants.requests() {
            let is_running = shared.state(&id) == SuspendState::Running && !self.trust.rests(&id, now_ns);
            if let Some(known) = self.tenants.find(&id).filter(|_| is_running) {
                let is_suspendable = known.is_suspendable;
                self.demands.note(&id, Purpose::Allocation, gpus, is_suspendable, now_ns);
            }
        }
        for id in waiting {
            // One that rests, as its quota was given to others while it was suspended by hand, is not before them.
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
        let figures = Figures::of_all(shared, &snapshot, &demand.gpus);
        let is_wrong = |tenant| !figures.may_lack_room(tenant);
        if demand.purpose == Purpose::Allocation && snapshot.find(id).is_none_or(is_wrong) {
            self.give_up(shared, id, now_ns);
            return;
        }
        let Some(victim) = self.victim(shared, (&snapshot, &figures), id, demand, now_ns) else {
            let is_exhausted = !may_any_make_room(shared, &figures, id, demand);
            if demand.purpose == Purpose::Allocation && is_exhausted {
                self.give_up(shared, id, now_ns);
            }
            return;
        };
        match shared.begin(&victim, Wish::MakeRoom, None) {
            Ok(Some(ended)) => {
                tracing::info!(container = victim, "is suspended to make room for {id}");
                let first = self.evictions.before(id).cloned();
                let before = first.unwrap_or_else(|| figures.before(id));
                self.evictions.add(Eviction {
                    victim,
                    wanting: id.to_owned(),
                    gpus: demand.gpus.clone(),
                    purpose: demand.purpose,
                    before,
                    ended,
                    ended_ns: None,
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

    /// Resumes a tenant if there is room, or has it rest if its quota is given to others. Returns `false` if room must be made.
    fn is_resumed(&mut self, shared: &Arc<Shared>, id: &str, now_ns: u64) -> bool {
        // If its quota was given away, the ledger decides whether it comes back. Then it keeps that, and waits like any other.
        let is_given_away = shared.grants.grant_table().suspended.contains(id);
        if is_given_away && let Err(error) = shared.runtime.block_on(shared.grants.reserve(id)) {
            tracing::info!(container = id, "not resumed: {error}");
            self.demands.forget(id);
            self.rest(id, now_ns.saturating_add(REST_NS));
            return true;
        }
        match fits::has_room(shared, id) {
            Ok(()) => {}
            Err(GrantError::NoRoom(_)) => return false,
            // No other tenant is suspended for a GPU of which nothing is known.
            Err(error) => {
                tracing::info!(container = id, "not resumed: {error}");
                self.demands.forget(id);
                self.rest(id, now_ns.saturating_add(REST_AFTER_FAILURE_NS));
                return true;
            }
        }
        if let Err(error) = shared.begin(id, Wish::Resume, None) {
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
        (snapshot, figures): (&Snapshot, &Figures<'_>),
        id: &str,
        demand: &Demand,
        now_ns: u64,
    ) -> Option<String> {
        let on_gpus = |device: &&crate::observe::Device| demand.gpus.contains(&device.gpu);
        let own = snapshot.find(id)?.devices.iter().find(on_gpus)?;
        let wanting = Wanting { is_suspendable: demand.is_suspendable, weight: own.config.weight };
        let may_move = |tenant: &&Tenant| {
            tenant.id != id
                && tenant.is_suspendable
                && !self.left_alone.contains_key(&tenant.id)
                && shared.is_at_rest(&tenant.id)
                && figures.may_come_back(tenant)
        };
        let residents = snapshot.tenants.iter().filter(may_move).filter_map(|tenant| {
            let mut devices = tenant.devices.iter().filter(on_gpus);
            let device = devices.find(|device| device.used_bytes > 0)?;
            let known = self.tenants.find(&tenant.id)?;
            Some(Resident {
                id: &tenant.id,
                priority: device.config.priority,
                weight: device.config.weight,
                idle_ns: match self.waits_in_vain(&tenant.id, now_ns) {
                    true => u64::MAX,
                    false => now_ns.saturating_sub(known.used_ns),
                },
                resident_ns: now_ns.saturating_sub(known.resident_ns),
            })
        });
        let residents: Vec<Resident<'_>> = residents.collect();
        let residence_ns = u64::try_from(shared.residence.as_nanos()).unwrap_or(u64::MAX);
        victim::choose(wanting, residence_ns, &residents).map(str::to_owned)
    }
}

/// Whether a tenant may be suspended for a demand now or later.
fn may_any_make_room(shared: &Shared, figures: &Figures<'_>, id: &str, demand: &Demand) -> bool {
    let has_memory = |tenant: &Tenant| {
        let mut devices = tenant.devices.iter();
        devices.any(|device| demand.gpus.contains(&device.gpu) && device.used_bytes > 0)
    };
    figures.tenants().iter().any(|tenant| {
        tenant.id != id
            && tenant.is_suspendable
            && has_memory(tenant)
            && !matches!(shared.state(&tenant.id), SuspendState::Suspended | SuspendState::Failed)
            && figures.may_come_back(tenant)
    })
}

/// Pause between two looks while nothing is suspended.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
