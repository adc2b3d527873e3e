//! Apportions GPU time between the tenants of one root: what drives the arithmetic of [`vcuda_limiter::controller`]. Run by the
//! manager ([`Runner`]).
//!
//! Tenants share no memory: each one's `usage` is read, whose every word is the tenant's own claim, and each one's
//! `limits` are written. What a claim does to other tenants is bounded by [`Evidence`] (I12).

mod changes;
mod debts;
mod evidence;
mod rounds;
mod runner;
mod state;
mod tenant;
mod tenants;
mod unsettled;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use vcuda_limiter::controller::{self, Busy, Contender, LOOK_BACK_WORDS, Overlap, word_at};
use vcuda_region::directory::{self, DirectoryError};
use vcuda_region::{DeviceIndex, GpuUuid};

use changes::ChangeWatch;
pub use changes::Waker;
pub use evidence::{Evidence, Proof, Use};
use rounds::Rounds;
pub use runner::{Runner, Step};
use tenants::Tenants;

/// Time between two looks for a tenant that begins or was changed (ns): if it may begin beside a busy tenant, if there are
/// several tenants, and if there is only one.
const WATCH_NS: u64 = 5_000_000;
const SEVERAL_NS: u64 = 20_000_000;
const ALONE_NS: u64 = 40_000_000;
/// Interval of looks at the tenants' use while they compete, and the time for which the rates must not have changed
/// (ns).
const STEADY_NS: (u64, u64) = (20_000_000, 500_000_000);
/// Age below which reports of the tenants are not complete and not read (ns): they enter running work every half
/// millisecond.
const REPORT_LAG_NS: u64 = 3_000_000;
/// Interval of rounds while all tenants are dormant (ns). Such a round renews the beat of the leader lock, nothing else.
const DORMANT_ROUND_NS: u64 = 600_000_000;
/// Interval at which the tenants' directories are listed, whether their folder has changed or not (ns). The second holds if
/// changes of the folder are reported.
const RELIST_NS: u64 = 1_000_000_000;
const RELIST_WATCHED_NS: u64 = 10_000_000_000;
/// Tenants count as competing for this long after they last did (ns).
const CALM_NS: u64 = 500_000_000;

/// An arbiter's knowledge of the tenants under its root.
///
/// While a tenant works, waits or competes, rounds come by the clock. A tenant that has done nothing for two seconds is
/// *dormant*: its files are not read, nor its beat written, until its `usage` was touched or ten seconds are over.
#[derive(Debug, Default)]
pub struct Arbiter {
    tenants: Tenants,
    changes: ChangeWatch,
    /// Changes of the folder are reported.
    watches_folder: bool,
    rounds: Rounds,
    evidence: Evidence,
    listed_ns: u64,
    /// When the directories were last listed with nothing to come (ns), and when their folder had last changed.
    read_ns: u64,
    changed: Option<SystemTime>,
    due_ns: u64,
    /// When a rate last changed (ns).
    changed_ns: u64,
}

impl Arbiter {
    /// An arbiter that bounds tenants' claims by this evidence.
    pub fn new(evidence: Evidence) -> Self {
        Self { evidence, ..Self::default() }
    }

    /// Lists the tenants' directories if that is due, and returns whether it was.
    pub fn refresh(&mut self, root: &Path, now_ns: u64) -> Result<bool, DirectoryError> {
        if now_ns < self.listed_ns.saturating_add(controller::QUIET_NS) && self.listed_ns != 0 {
            return Ok(false);
        }
        self.listed_ns = now_ns;
        // The same time of change at two looks: it is of before the first of them, so that one has seen the change.
        let changed = directory::changed(root);
        let is_known = changed.is_some() && changed == self.changed && self.tenants.are_complete();
        let relist_ns = if self.watches_folder { RELIST_WATCHED_NS } else { RELIST_NS };
        if is_known && now_ns < self.read_ns.saturating_add(relist_ns) {
            return Ok(true);
        }
        self.watches_folder = self.changes.watch_folder(root);
        // Twice after each change.
        self.read_ns = if changed == self.changed { now_ns } else { 0 };
        self.changed = changed;
        self.tenants.refresh(directory::list(root)?, &self.changes, now_ns);
        Ok(true)
    }

    /// Whether the debt of a tenant that is gone is remembered, should its name come back.
    pub fn remembers_debts(&self) -> bool {
        self.tenants.remembers_debts()
    }

    /// Notes the changes that were reported since the last time, and returns whether there were any. Comes before
    /// [`Arbiter::refresh`].
    pub fn note_changes(&mut self, now_ns: u64) -> bool {
        let changes = self.changes.drain();
        if changes.folder || changes.lost {
            self.listed_ns = 0;
        }
        if self.tenants.note_changes(&changes, now_ns) {
            self.due_ns = 0;
        }
        changes.are_any()
    }

    /// Sleeps for `pause`, until a change is reported, or until `waker` ends it.
    pub(crate) fn sleep(&self, waker: &Waker, pause: Duration) {
        self.changes.sleep(waker, pause);
    }

    /// Writes what has changed in who may use how much, when that is due or something has begun.
    pub fn arbitrate(&mut self, now_ns: u64) {
        if now_ns >= self.due_ns || self.tenants.any_has_begun(now_ns) {
            let found = arbitrate(&mut self.tenants, &mut self.rounds, &self.evidence, now_ns);
            self.tenants.note_who_may_meet();
            if found.has_changed {
                self.changed_ns = now_ns;
            }
            let (steady_ns, after_ns) = STEADY_NS;
            let pause_ns = match found.is_contended {
                _ if found.is_watched => controller::CONTENDED_NS,
                false if self.tenants.are_dormant() => DORMANT_ROUND_NS,
                false => controller::QUIET_NS,
                true if now_ns >= self.changed_ns + after_ns => steady_ns,
                true => controller::CONTENDED_NS,
            };
            self.due_ns = now_ns + pause_ns;
        }
    }

    /// Time after `now_ns` until the next look is due (ns).
    pub fn pause_ns(&self, now_ns: u64) -> u64 {
        let watch_ns = if self.tenants.are_dormant() {
            // A change is listed twice.
            if self.read_ns == 0 { controller::QUIET_NS } else { DORMANT_ROUND_NS }
        } else if self.tenants.may_meet() {
            WATCH_NS
        } else if self.tenants.are_several() {
            SEVERAL_NS
        } else {
            ALONE_NS
        };
        self.due_ns.saturating_sub(now_ns).min(watch_ns)
    }
}

/// Result of a look, at one tenant or at all.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    /// Tenants compete.
    is_contended: bool,
    /// A rate is another than before.
    has_changed: bool,
    /// A process may have stopped with work in flight.
    is_watched: bool,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self {
            is_contended: self.is_contended || other.is_contended,
            has_changed: self.has_changed || other.has_changed,
            is_watched: self.is_watched || other.is_watched,
        }
    }
}

/// Looks at every GPU once and writes what has changed.
fn arbitrate(tenants: &mut Tenants, rounds: &mut Rounds, evidence: &Evidence, now_ns: u64) -> Found {
    // Where all are dormant, nothing changes but the beat.
    let awake = tenants.gpus_awake();
    let mut on_gpu: BTreeMap<GpuUuid, Vec<(usize, DeviceIndex)>> = BTreeMap::new();
    for (at, tenant) in tenants.iter_mut().enumerate() {
        if !tenant.beat(now_ns) || awake.is_empty() {
            continue;
        }
        for (device, uuid) in tenant.devices() {
            if awake.contains(&uuid) {
                on_gpu.entry(uuid).or_default().push((at, device));
            }
        }
    }
    let mut found = Found::default();
    for (uuid, users) in &on_gpu {
        for (at, device) in users {
            if let Some(tenant) = tenants.get_mut(*at) {
                tenant.note_proof(*device, evidence);
            }
        }
        rounds.settle(tenants, *uuid, users, now_ns);
        found = found.and(arbitrate_gpu(tenants, *uuid, users, now_ns));
    }
    found
}

fn arbitrate_gpu(tenants: &mut Tenants, uuid: GpuUuid, users: &[(usize, DeviceIndex)], now_ns: u64) -> Found {
    let may_begin = tenants.may_meet_on(uuid);
    let last = word_at(now_ns.saturating_sub(REPORT_LAG_NS));
    let first = last.saturating_sub(LOOK_BACK_WORDS);
    let mut busy = Vec::with_capacity(users.len());
    let mut contenders: Vec<Contender> = Vec::with_capacity(users.len());
    for &(at, device) in users {
        let seen =
            tenants.get_mut(at).and_then(|tenant| tenant.look(device, (first, last), may_begin, now_ns));
        let (own, contender) = seen.unwrap_or_else(|| (Busy::default(), tenant::ABSENT));
        busy.push(own);
        contenders.push(contender);
    }
    // One that has long wanted all the time it can get waits for its share anyhow: no request of it is late.
    let calm = users.iter().zip(&contenders).filter(|((at, device), one)| {
        tenants.get_mut(*at).is_some_and(|tenant| tenant.was_calm(*device, one.demand_permille, now_ns))
    });
    let first = calm.map(|(_, one)| one.priority).max();
    let yields: Vec<bool> = contenders.iter().map(|one| Some(one.priority) < first).collect();
    let compete = contenders.iter().filter(|one| one.demand_permille > 0).count() > 1;
    let overlaps = controller::overlaps(&busy);
    let rates = controller::rates(&contenders);
    let has_neighbours = users.len() > 1;
    let mut found = Found::default();
    for ((((at, device), overlap), rate), yields) in users.iter().zip(overlaps).zip(rates).zip(yields) {
        if let Some(tenant) = tenants.get_mut(*at) {
            let finding = Finding { overlap, rate, compete, has_neighbours, yields };
            found = found.and(tenant.pace(*device, &finding, now_ns));
        }
    }
    found
}

/// Result of one look at one tenant on one GPU.
#[derive(Debug)]
struct Finding {
    overlap: Overlap,
    rate: u32,
    /// Two or more demand the GPU.
    compete: bool,
    /// Other tenants were given the GPU as well.
    has_neighbours: bool,
    /// A tenant of higher priority is at work, or was a moment ago.
    yields: bool,
}
