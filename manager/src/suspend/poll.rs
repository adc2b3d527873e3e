//! The thread that resumes suspended tenants: those of which a process asks, and those whose processes have all ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::Duration;

use vcuda_region::clock::now_ns;
use vcuda_region::process::Identity;
use vcuda_region::suspension::SuspensionWords;

use super::records::{Phase, Process, Record};
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

/// Looks until it is asked to stop.
pub(super) fn watch(shared: &Arc<Shared>, stop: &Stop) {
    let mut watched: HashMap<String, Watched> = HashMap::new();
    while let Some(all) = next_records(shared, stop) {
        watched.retain(|id, _| all.iter().any(|record| record.id == *id));
        for record in &all {
            let one = watched.entry(record.id.clone()).or_insert_with(|| Watched {
                words: SuspensionWords::open(&shared.directory(&record.id)).ok(),
                rests_until_ns: 0,
            });
            look(shared, record, one);
        }
        park_timeout(PAUSE);
    }
}

/// The records, once there are any; `None` if the thread is asked to stop.
fn next_records(shared: &Shared, stop: &Stop) -> Option<Vec<Record>> {
    let mut records = shared.records.lock();
    while !stop.is_asked() {
        let all: Vec<Record> = records.all().cloned().collect();
        if !all.is_empty() {
            return Some(all);
        }
        shared.written.wait(&mut records);
    }
    None
}

fn look(shared: &Arc<Shared>, record: &Record, watched: &mut Watched) {
    let now_ns = now_ns();
    let is_busy = shared.tasks.lock().contains_key(&record.id);
    if is_busy || !matches!(record.phase, Phase::Suspended | Phase::Failed) || now_ns < watched.rests_until_ns
    {
        return;
    }
    let is_wanted = record.phase == Phase::Suspended
        && watched
            .words
            .as_ref()
            .is_some_and(|words| words.is_resume_wanted().unwrap_or(false));
    if is_wanted {
        watched.rests_until_ns = now_ns.saturating_add(REST_NS);
        resume(shared, &record.id);
    } else if !record.processes.iter().any(lives) {
        watched.rests_until_ns = now_ns.saturating_add(REST_NS);
        resume_empty(shared, &record.id);
    }
}

fn resume(shared: &Arc<Shared>, id: &str) {
    if let Err(error) = shared.begin(id, Wish::Resume) {
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
