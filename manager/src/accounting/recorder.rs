//! The thread that adds up what snapshots tell and writes it, and the handle that reports it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vcuda_region::clock;

use super::day_file::{Folder, Record};
use super::history::{HOUR_S, History, day_of};
use super::tenants::Meters;
use super::{By, Figures, Sources};
use crate::background::Background;
use crate::events::{Severity, unix_ms};
use crate::inventory::boot;
use crate::observe::Snapshot;

/// Interval of writes (ns). So much is lost at most with a power cut.
const WRITE_NS: u64 = 20_000_000_000;
/// Interval of writes while tenants end (ns), of which only the meters know: so much of one is lost at most if the manager is killed.
const WRITE_ENDED_NS: u64 = 1_000_000_000;
/// Longest wait for a snapshot, and so for the thread's end.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// From the beginning of this hour (s since 1970-01-01 UTC).
    pub from_s: u64,
    /// To this moment (s since 1970-01-01 UTC).
    pub to_s: u64,
    /// Figures by key.
    pub rows: BTreeMap<String, Figures>,
}

/// Records usage until it is dropped.
#[derive(Debug)]
pub struct Accounting {
    usage: Arc<Usage>,
    _thread: Background,
}

impl Accounting {
    /// Takes up what the last manager wrote, and starts the thread.
    pub fn start(sources: Sources) -> io::Result<Self> {
        let usage = Arc::new(Usage::restore(sources));
        let (working, woken) = (Arc::clone(&usage), Arc::clone(&usage.sources.tenants));
        let wake = Box::new(move || woken.end_waits());
        let thread = Background::with_wake("accounting", wake, move |stop| {
            // Written at once, so that after a kill it is known which tenants are new.
            working.wait_and_add();
            working.write_anyway();
            let mut written_ns = clock::now_ns();
            while !stop.is_asked() {
                working.wait_and_add();
                let interval_ns = if working.sums.lock().has_ended { WRITE_ENDED_NS } else { WRITE_NS };
                if clock::now_ns().saturating_sub(written_ns) >= interval_ns {
                    working.write();
                    written_ns = clock::now_ns();
                }
            }
            working.write();
        })?;
        Ok(Self { usage, _thread: thread })
    }

    /// Usage of the last `since_s` seconds, beginning with a whole hour. It blocks until a fresh snapshot was taken.
    pub fn report(&self, by: By, since_s: u64) -> Report {
        // Begun now, so that what was granted just before is in it.
        let snapshot = self.usage.sources.tenants.begun_after(clock::now_ns());
        let mut sums = self.usage.sums.lock();
        self.usage.add(&mut sums, &snapshot);
        let to_s = unix_s();
        let (from_s, rows) = sums.history.report(by, to_s.saturating_sub(since_s));
        Report { from_s: from_s.min(to_s), to_s, rows }
    }
}

#[derive(Debug)]
struct Usage {
    sources: Sources,
    folder: Folder,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    meters: Meters,
    history: History,
    number: u64,
    writes: u64,
    /// Whether a tenant has ended since the last write.
    has_ended: bool,
}

impl Usage {
    fn restore(sources: Sources) -> Self {
        let folder = Folder::new(&sources.state);
        let found = folder.read();
        for problem in found.problems {
            let text = format!("{problem}: the usage of that day is forgotten");
            sources.events.say(Severity::Warning, "VcudaUsageForgotten", text, None);
        }
        let last = found.records.iter().max_by_key(|record| record.write);
        let meters = match last {
            Some(last) if last.boot == boot() => last.meters.clone().after_restart(),
            Some(_) => Meters::after_boot(),
            None => Meters::default(),
        };
        let writes = last.map_or(0, |last| last.write);
        let mut history = History::default();
        for record in found.records {
            history.restore(record.hours);
        }
        Self {
            sources,
            folder,
            sums: Mutex::new(Sums { meters, history, number: 0, writes, has_ended: false }),
        }
    }

    fn wait_and_add(&self) {
        let number = self.sums.lock().number;
        if let Some(snapshot) = self.sources.tenants.newer(number, WAIT) {
            self.add(&mut self.sums.lock(), &snapshot);
        }
    }

    /// Adds what was used up to this snapshot, unless it was added.
    fn add(&self, sums: &mut Sums, snapshot: &Snapshot) {
        if snapshot.number <= sums.number {
            return;
        }
        let after = core::mem::replace(&mut sums.number, snapshot.number);
        sums.has_ended |= snapshot.ended.iter().any(|(at, _)| *at > after);
        let used = sums.meters.advance(snapshot, after, &self.sources);
        sums.history.add(unix_s(), &used);
    }

    /// Writes the meters, whether or not a figure has changed.
    fn write_anyway(&self) {
        self.sums.lock().history.mark_changed(day_of(unix_s() / HOUR_S));
        self.write();
    }

    /// Writes the days that have changed. What cannot be written is tried again.
    fn write(&self) {
        let mut sums = self.sums.lock();
        sums.has_ended = false;
        let days = sums.history.take_changed();
        let records: Vec<(u64, Record)> = days
            .into_iter()
            .map(|(day, hours)| {
                sums.writes += 1;
                let record = Record { write: sums.writes, boot: boot(), meters: sums.meters.clone(), hours };
                (day, record)
            })
            .collect();
        let oldest = sums.history.oldest_day();
        drop(sums);
        if records.is_empty() {
            return;
        }
        for (day, record) in records {
            if let Err(why) = self.folder.write(day, &record) {
                self.sums.lock().history.mark_changed(day);
                let text =
                    format!("cannot write {why}; usage would be forgotten at a restart: make room there");
                self.sources.events.say(Severity::Warning, "VcudaUsageForgotten", text, None);
            }
        }
        if let Some(oldest) = oldest {
            self.folder.remove_before(oldest);
        }
    }
}

fn unix_s() -> u64 {
    u64::try_from(unix_ms().div_euclid(1000)).unwrap_or(0)
}
