//! The thread that resumes suspended tenants: those of which a process asks, and those whose processes have all ended. Where
//! quotas may exceed a GPU, it makes room too.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::Duration;

use vcuda_region::clock::now_ns;
use vcuda_region::process::Identity;
use vcuda_region::suspension::SuspensionWords;

use super::records::{Phase, Process, Record};
use super::returned::Returned;
use super::room::{self, Maker};
use super::{Shared, Wish, task};
use crate::background::Stop;

/// Pause between two looks while a tenant is suspended. While none is, the thread sleeps.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two attempts to resume a tenant (ns): the first may be refused.
const REST_NS: u64 = 500_000_000;

/// What is known of a suspended tenant.
struct Watched {
    words: Option<SuspensionWords>,
    /// Time of the next attempt to resume it (`CLOCK_MONOTONIC`, ns).
    rests_until_ns: u64,
}

impl Watched {
    /// Whether it may be resumed now. The next time is after a rest.
    fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.rests_until_ns;
        if is_due {
            self.rests_until_ns = now_ns.saturating_add(REST_NS);
        }
        is_due
    }
}

/// Looks until it is asked to stop.
pub(super) fn watch(shared: &Arc<Shared>, stop: &Stop) {
    let mut watched: HashMap<String, Watched> = HashMap::new();
    let (mut maker, mut returned) = (Maker::default(), Returned::default());
    while let Some(all) = next_records(shared, stop, &mut watched) {
        returned.look(shared, &all);
        let mut waiting = Vec::new();
        // Each suspension is watched anew: the tenant may be another one of the same name.
        watched.retain(|id, _| all.iter().any(|record| record.id == *id && is_away(record)));
        for record in all.iter().filter(|record| is_away(record)) {
            let one = watched.entry(record.id.clone()).or_insert_with(|| Watched {
                words: SuspensionWords::open(&shared.directory(&record.id)).ok(),
                rests_until_ns: 0,
            });
            if look(shared, record, one) {
                waiting.push(record.id.clone());
            }
        }
        if shared.is_overcommitted() {
            maker.step(shared, &waiting);
        } else {
            for id in &waiting {
                if watched.get_mut(id).is_some_and(|one| one.is_due(now_ns())) {
                    resume(shared, id);
                }
            }
        }
        park_timeout(if all.is_empty() { room::PAUSE } else { PAUSE });
    }
}

fn is_away(record: &Record) -> bool {
    matches!(record.phase, Phase::Suspended | Phase::Failed)
}

/// The records, once there are any, or room may be wanted; `None` if the thread is asked to stop. While there are none, nothing
/// is watched.
fn next_records(shared: &Shared, stop: &Stop, watched: &mut HashMap<String, Watched>) -> Option<Vec<Record>> {
    let mut records = shared.records.lock();
    while !stop.is_asked() {
        let all: Vec<Record> = records.all().cloned().collect();
        if !all.is_empty() || shared.is_overcommitted() {
            return Some(all);
        }
        watched.clear();
        shared.written.wait(&mut records);
    }
    None
}

/// Looks at a suspended tenant. Returns whether a process asks for its memory.
fn look(shared: &Arc<Shared>, record: &Record, watched: &mut Watched) -> bool {
    if shared.tasks.lock().contains_key(&record.id) {
        return false;
    }
    let is_asked = |words: &SuspensionWords| words.is_resume_wanted().unwrap_or(false);
    let is_wanted = record.phase == Phase::Suspended
        && (record.comes_back || watched.words.as_ref().is_some_and(is_asked));
    let lives = record.processes.iter().any(lives);
    if !lives && watched.is_due(now_ns()) {
        resume_empty(shared, &record.id);
    }
    is_wanted && lives
}

fn resume(shared: &Arc<Shared>, id: &str) {
    if let Err(error) = shared.begin(id, Wish::Resume, None) {
        tracing::warn!(container = id, "not resumed: {error}");
    }
}

/// Ends the suspension of a tenant whose processes have ended. One that is gone needs no room.
fn resume_empty(shared: &Arc<Shared>, id: &str) {
    if shared.directory(id).symlink_metadata().is_ok() {
        resume(shared, id);
        return;
    }
    if let Err(error) = shared.runtime.block_on(shared.grants.reserve(id)) {
        tracing::warn!(container = id, "its suspension is not forgotten: {error}");
        return;
    }
    task::forget(shared, id);
}

fn lives(process: &Process) -> bool {
    Identity::of(process.host_pid).is_ok_and(|found| found.start_ticks == process.start_ticks)
}
