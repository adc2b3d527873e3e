//! Events for operators. The last ones are kept, and each listener gets new ones.
//!
//! An event that repeats (same reason, tenant, GPU and process) within [`REPEAT`] is counted on the first one and not sent
//! again. A tenant that is refused a million times writes one line.

mod journal;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use journal::Journal;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// Number of events kept.
pub const KEPT: usize = 4096;
/// Number of events that a listener may lag behind.
const BEHIND: usize = 1024;
/// Time within which a repeated event is only counted.
pub const REPEAT: Duration = Duration::from_secs(30);

/// Urgency of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Nothing is wrong.
    Info,
    /// A person should look into it.
    Warning,
    /// Something does not work.
    Error,
}

/// An event as it is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Urgency.
    pub severity: Severity,
    /// Reason in one word, such as `VcudaMemoryDenied` (docs/generated/events.md lists them).
    pub reason: Cow<'static, str>,
    /// Sentence that says what happened, to which object, and what to do.
    pub message: String,
    /// The tenant's id, if the event is about one.
    pub tenant: Option<String>,
    /// UUID of the GPU, if the event is about one.
    pub gpu: Option<String>,
    /// Host PID, if the event is about a process.
    pub host_pid: Option<u32>,
}

/// A kept event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Sequence number, from 1 and without gaps.
    pub number: u64,
    /// Time of its first occurrence (milliseconds since 1970-01-01 UTC).
    pub unix_ms: i64,
    /// Number of occurrences within [`REPEAT`], or for as long as a finding of the audit holds (in looks).
    pub count: u64,
    /// The reported event.
    pub report: Report,
}

/// The node's events.
#[derive(Debug)]
pub struct Events {
    kept: Mutex<Kept>,
    told: broadcast::Sender<Event>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    last_number: u64,
    journal: Option<Journal>,
}

impl Default for Events {
    fn default() -> Self {
        Self { kept: Mutex::default(), told: broadcast::Sender::new(BEHIND) }
    }
}

impl Events {
    /// Keeps the events in a file of `folder` from now on. Those in it come before the present ones.
    pub fn keep_in(&self, folder: &Path) {
        let (journal, before) = match Journal::open(folder) {
            Ok(opened) => opened,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("{folder}: {error}: the next start of the manager will not know the events");
                return;
            }
        };
        let mut kept = self.kept.lock();
        kept.journal = Some(journal);
        kept.last_number = before.back().map_or(0, |event| event.number);
        let present = std::mem::replace(&mut kept.events, before);
        for event in present {
            kept.push(event);
        }
    }

    /// Reports an event and logs it, unless the same was reported just now.
    pub fn report(&self, report: Report) {
        let _ = self.report_at(report, unix_ms());
    }

    /// Counts an event that goes on, on the last one of its kind. Without one, as it is not kept any more, nothing happens.
    pub fn count(&self, report: &Report) {
        let mut kept = self.kept.lock();
        if let Some(event) = kept.events.iter_mut().rev().find(|event| event.report.is_same(report)) {
            event.count = event.count.saturating_add(1);
        }
    }

    /// Returns whether it is none that was reported just now.
    fn report_at(&self, report: Report, now_ms: i64) -> bool {
        let mut kept = self.kept.lock();
        let repeat_ms = i64::try_from(REPEAT.as_millis()).unwrap_or(i64::MAX);
        let same = kept
            .events
            .iter_mut()
            .rev()
            // After the clock was set back an event looks new and is reported twice, which does no harm.
            .take_while(|event| (0..repeat_ms).contains(&now_ms.saturating_sub(event.unix_ms)))
            .find(|event| event.report.is_same(&report));
        if let Some(event) = same {
            event.count = event.count.saturating_add(1);
            return false;
        }
        match report.severity {
            Severity::Info => {
                tracing::info!(reason = &*report.reason, container = report.tenant, "{}", report.message)
            }
            Severity::Warning => {
                tracing::warn!(reason = &*report.reason, container = report.tenant, "{}", report.message)
            }
            Severity::Error => {
                tracing::error!(reason = &*report.reason, container = report.tenant, "{}", report.message)
            }
        }
        let event = kept.push(Event { number: 0, unix_ms: now_ms, count: 1, report });
        // Under the lock, so that listeners get events in order. Having no listener is no failure.
        let _ = self.told.send(event);
        true
    }

    /// Reports an event about a tenant, or about none. The log has each that is no fault, also of what happens again and again.
    pub fn say(&self, severity: Severity, reason: &'static str, message: String, tenant: Option<&str>) {
        let report = Report {
            severity,
            reason: reason.into(),
            message: message.clone(),
            tenant: tenant.map(str::to_owned),
            gpu: None,
            host_pid: None,
        };
        if !self.report_at(report, unix_ms()) && severity == Severity::Info {
            tracing::info!(reason, container = tenant, "{message}");
        }
    }

    /// The kept events with numbers above `after`, and a receiver for new ones.
    pub fn listen(&self, after: u64) -> (Vec<Event>, broadcast::Receiver<Event>) {
        let kept = self.kept.lock();
        let known = kept.events.iter().filter(|event| event.number > after).cloned().collect();
        (known, self.told.subscribe())
    }
}

impl Kept {
    /// Adds an event under the next number, and returns it.
    fn push(&mut self, event: Event) -> Event {
        self.last_number += 1;
        let event = Event { number: self.last_number, ..event };
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event.clone());
        let journal = self.journal.as_mut();
        if let Some(Err(error)) = journal.map(|journal| journal.add(&self.events)) {
            tracing::warn!("the next start of the manager will not know events from now on: {error}");
            self.journal = None;
        }
        event
    }
}

impl Report {
    fn is_same(&self, other: &Report) -> bool {
        self.reason == other.reason
            && self.tenant == other.tenant
            && self.gpu == other.gpu
            && self.host_pid == other.host_pid
            // A GPU that fails in another way is no repetition. Of a tenant or a process, texts differ by amounts.
            // An operator's next change is none either.
            && (self.gpu.is_none() && self.severity != Severity::Info
                || self.gpu.is_some() && self.tenant.is_some()
                || self.host_pid.is_some()
                || self.message == other.message)
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(tenant: &str) -> Report {
        Report {
            severity: Severity::Warning,
            reason: "VcudaMemoryDenied".into(),
            message: "denied".to_owned(),
            tenant: Some(tenant.to_owned()),
            gpu: None,
            host_pid: None,
        }
    }

    #[test]
    fn a_gpu_that_fails_in_another_way_is_told_anew() {
        let events = Events::default();
        for message in ["XID 79", "fell off the bus", "fell off the bus"] {
            events.report(Report {
                reason: "VcudaGpuUnhealthy".into(),
                message: message.to_owned(),
                tenant: None,
                gpu: Some("GPU-1".to_owned()),
                ..denied("")
            });
        }
        let told = events.listen(0).0;
        let told: Vec<_> = told.iter().map(|event| event.report.message.as_str()).collect();
        assert_eq!(told, ["XID 79", "fell off the bus"]);
    }

    #[test]
    fn the_same_is_told_once_and_counted() {
        let events = Events::default();
        let (_, mut told) = events.listen(0);
        for now_ms in [0, 1, 29_999, 30_000] {
            events.report_at(denied("a"), now_ms);
        }
        events.report_at(denied("b"), 30_001);
        let (kept, _) = events.listen(0);
        let counts: Vec<_> = kept.iter().map(|event| (event.number, event.count)).collect();
        assert_eq!(counts, [(1, 3), (2, 1), (3, 1)]);
        let numbers: Vec<u64> =
            std::iter::from_fn(|| told.try_recv().ok()).map(|event| event.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(events.listen(2).0.len(), 1);
    }

    #[test]
    fn what_goes_on_is_counted_and_not_told_again() {
        let events = Events::default();
        events.count(&denied("a"));
        events.report_at(denied("a"), 0);
        for _ in 0..1000 {
            events.count(&denied("a"));
        }
        let (kept, _) = events.listen(0);
        assert_eq!((kept.len(), kept[0].count), (1, 1001));
    }

    #[test]
    fn only_the_last_are_kept() {
        let events = Events::default();
        for number in 0..KEPT + 10 {
            events.report(denied(&number.to_string()));
        }
        let (kept, _) = events.listen(0);
        assert_eq!((kept.len(), kept[0].number), (KEPT, 11));
    }
}
