//! Kubernetes events about pods and claims, which `kubectl describe` shows. No part of the daemons waits for them or depends on
//! them.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::ids::digest;

/// Shortest interval of equal events, see [`Interval`]. `vcuda events` has all of the manager's events.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// Longest note that the API server accepts (bytes; events.k8s.io/v1).
const NOTE_BYTES: usize = 1024;
/// Longest time for an event. Later events wait meanwhile.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause after the API server has refused events for lack of the right.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(600);
/// Most events that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// What an event's object has one of in [`MIN_INTERVAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interval {
    /// One event of each reason: notes name processes, of which a container may start many.
    PerReason,
    /// One event of each note: each change of the object may have a fault of its own.
    PerNote,
}

/// Limits events to one for each object, reason and, if asked, note in [`MIN_INTERVAL`].
#[derive(Debug, Default)]
struct EventLimiter {
    /// Time of the last event by object, reason and the note's digest, which is empty for [`Interval::PerReason`].
    last: HashMap<[String; 3], Instant>,
}

impl EventLimiter {
    fn allows(&mut self, uid: &str, reason: &str, note: &str, now: Instant) -> bool {
        self.last.retain(|_, last| now.saturating_duration_since(*last) < MIN_INTERVAL);
        let key = [uid, reason, note].map(str::to_owned);
        if self.last.len() >= REMEMBERED_MAX || self.last.contains_key(&key) {
            return false;
        }
        self.last.insert(key, now);
        true
    }
}

pub(crate) struct EventWriter {
    recorder: Recorder,
    limiter: EventLimiter,
    interval: Interval,
    /// Present failure, so that it is logged once.
    failure: Option<String>,
    forbidden_until: Option<Instant>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Creates a writer that reports as `controller` (a qualified name) on `node`.
    pub(crate) fn new(client: Client, controller: &str, node: &str, interval: Interval) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(node.to_owned()) };
        Self {
            recorder: Recorder::new(client, reporter),
            limiter: EventLimiter::default(),
            interval,
            failure: None,
            forbidden_until: None,
        }
    }

    /// Writes an event, unless `regarding` has had an equal one lately, see [`Interval`]. A failure is logged once.
    pub(crate) async fn write(&mut self, regarding: &ObjectReference, reason: &str, note: String) {
        let now = Instant::now();
        let uid = regarding.uid.as_deref().unwrap_or_default();
        // A note may be as long as an annotation.
        let note_digest = match self.interval {
            Interval::PerReason => String::new(),
            Interval::PerNote => digest(&note, 4),
        };
        let is_forbidden = self.forbidden_until.is_some_and(|until| now < until);
        if is_forbidden || !self.limiter.allows(uid, reason, &note_digest, now) {
            return;
        }
        let published =
            timeout(DEADLINE, self.recorder.publish(&warning(reason, note, &note_digest), regarding)).await;
        match published {
            Ok(Ok(())) => {
                self.forbidden_until = None;
                if self.failure.take().is_some() {
                    info!("events reach the pods again");
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                self.forbidden_until = Some(now + FORBIDDEN_RETRY);
                self.note_failure(format!(
                    "{}; the chart gives the right by apiServer.events",
                    status.message
                ));
            }
            Ok(Err(error)) => self.note_failure(error.to_string()),
            Err(_) => self.note_failure(format!("the API server has not answered in {DEADLINE:?}")),
        }
    }

    fn note_failure(&mut self, why: String) {
        if self.failure.is_none() {
            warn!("events do not reach the pods, `vcuda events` has them: {why}");
        }
        self.failure = Some(why);
    }
}

/// A warning with the note, cut to the longest allowed.
///
/// The recorder takes an event of equal object, reason and action for a repetition, and keeps the note of the first. The API server
/// lets no note change. So the action has the digest of a note that matters, and an event of another note is a new one.
fn warning(reason: &str, mut note: String, note_digest: &str) -> Event {
    let end = (0..=NOTE_BYTES.min(note.len())).rev().find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or(0));
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        action: ["Watching", note_digest].join("-").trim_end_matches('-').to_owned(),
        note: Some(note),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_one_event_of_a_reason_in_a_minute() {
        let mut limiter = EventLimiter::default();
        let start = Instant::now();
        assert!(limiter.allows("a", "VcudaMemoryDenied", "", start));
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            assert!(!limiter.allows("a", "VcudaMemoryDenied", "", now));
        }
        assert!(limiter.allows("b", "VcudaMemoryDenied", "", start));
        assert!(limiter.allows("a", "VcudaNotAttached", "", start));
        assert!(limiter.allows("a", "VcudaMemoryDenied", "", start + MIN_INTERVAL));
    }

    #[test]
    fn each_note_is_told_once_in_a_minute_and_is_an_event_of_its_own() {
        let mut limiter = EventLimiter::default();
        let start = Instant::now();
        let [first, second] = ["policy brust", "memory 9Gi"];
        for note in [first, second] {
            assert!(limiter.allows("a", "VcudaAnnotationRefused", note, start));
            assert!(!limiter.allows("a", "VcudaAnnotationRefused", note, start));
        }
        let action = |note: &str| warning("VcudaAnnotationRefused", note.to_owned(), &digest(note, 4)).action;
        assert_eq!(warning("VcudaMemoryDenied", first.to_owned(), "").action, "Watching");
        assert_ne!(action(first), action(second), "the recorder would keep the first note");
        assert_eq!(action(first), action(first), "the recorder counts it up");
    }

    #[test]
    fn many_new_pods_do_not_displace_a_remembered_one() {
        let mut limiter = EventLimiter::default();
        let start = Instant::now();
        for number in 0..2 * REMEMBERED_MAX {
            limiter.allows(&number.to_string(), "VcudaNotAttached", "", start);
        }
        assert_eq!(limiter.last.len(), REMEMBERED_MAX);
        assert!(!limiter.allows("0", "VcudaNotAttached", "", start));
        assert!(limiter.allows("0", "VcudaNotAttached", "", start + MIN_INTERVAL));
        assert_eq!(limiter.last.len(), 1);
    }

    #[test]
    fn a_note_is_cut_to_the_longest_allowed() {
        let note = warning("VcudaMemoryDenied", "ü".repeat(2000), "").note.unwrap();
        assert!((NOTE_BYTES - 3..=NOTE_BYTES).contains(&note.len()), "{}", note.len());
    }
}
