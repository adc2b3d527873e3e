//! Kubernetes events about pods and claims, where `kubectl describe` shows them. For people alone: nothing waits for them, and
//! nothing else suffers where they cannot be written.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// An object gets one event of one reason in this time. The manager's are all in `vcuda events`.
const EVERY: Duration = Duration::from_secs(60);
/// The longest note that the API server takes (bytes; events.k8s.io/v1).
const NOTE_BYTES: usize = 1024;
/// Longest time for one event. Events that come meanwhile wait.
const DEADLINE: Duration = Duration::from_secs(5);
/// Without the right, it is tried again so seldom.
const FORBIDDEN: Duration = Duration::from_secs(600);
/// Objects and reasons that are remembered.
const MOST: usize = 10_000;

/// Lets one event of a kind through in [`EVERY`].
#[derive(Debug, Default)]
struct Limiter {
    last: HashMap<(String, String), Instant>,
}

impl Limiter {
    fn lets(&mut self, uid: &str, reason: &str, now: Instant) -> bool {
        self.last
            .retain(|_, last| now.saturating_duration_since(*last) < EVERY);
        let key = (uid.to_owned(), reason.to_owned());
        if self.last.len() >= MOST || self.last.contains_key(&key) {
            return false;
        }
        self.last.insert(key, now);
        true
    }
}

/// Writes warnings.
pub struct EventWriter {
    recorder: Recorder,
    limiter: Limiter,
    /// Present failure, so that it is logged once.
    trouble: Option<String>,
    closed_until: Option<Instant>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

impl EventWriter {
    /// One that reports as `controller` (a qualified name) on `node`.
    #[must_use]
    pub fn new(client: Client, controller: &str, node: &str) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(node.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            limiter: Limiter::default(),
            trouble: None,
            closed_until: None,
        }
    }

    /// Writes one, unless there was one of this reason lately.
    pub async fn write(&mut self, regarding: &ObjectReference, reason: &str, note: String) {
        let now = Instant::now();
        let uid = regarding.uid.as_deref().unwrap_or_default();
        if self.closed_until.is_some_and(|until| now < until) || !self.limiter.lets(uid, reason, now) {
            return;
        }
        let published = timeout(DEADLINE, self.recorder.publish(&warning(reason, note), regarding)).await;
        match published {
            Ok(Ok(())) => {
                self.closed_until = None;
                if self.trouble.take().is_some() {
                    info!("events reach the pods again");
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                self.closed_until = Some(now + FORBIDDEN);
                self.trouble(format!(
                    "{}; the chart gives the right by apiServer.events",
                    status.message
                ));
            }
            Ok(Err(error)) => self.trouble(error.to_string()),
            Err(_) => self.trouble(format!("the API server has not answered in {DEADLINE:?}")),
        }
    }

    fn trouble(&mut self, why: String) {
        if self.trouble.is_none() {
            warn!("events do not reach the pods, `vcuda events` has them: {why}");
        }
        self.trouble = Some(why);
    }
}

fn warning(reason: &str, mut note: String) -> Event {
    let end = (0..=NOTE_BYTES.min(note.len()))
        .rev()
        .find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or(0));
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Watching".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_one_event_of_a_reason_in_a_minute() {
        let mut limiter = Limiter::default();
        let start = Instant::now();
        assert!(limiter.lets("a", "VcudaMemoryDenied", start));
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            assert!(!limiter.lets("a", "VcudaMemoryDenied", now));
        }
        assert!(limiter.lets("b", "VcudaMemoryDenied", start));
        assert!(limiter.lets("a", "VcudaNotAttached", start));
        assert!(limiter.lets("a", "VcudaMemoryDenied", start + EVERY));
    }

    #[test]
    fn it_forgets_no_pod_for_the_sake_of_a_flood() {
        let mut limiter = Limiter::default();
        let start = Instant::now();
        for number in 0..2 * MOST {
            limiter.lets(&number.to_string(), "VcudaNotAttached", start);
        }
        assert_eq!(limiter.last.len(), MOST);
        assert!(!limiter.lets("0", "VcudaNotAttached", start));
        assert!(limiter.lets("0", "VcudaNotAttached", start + EVERY));
        assert_eq!(limiter.last.len(), 1);
    }

    #[test]
    fn a_note_is_as_long_as_it_may_be() {
        let note = warning("VcudaMemoryDenied", "ü".repeat(2000)).note.unwrap();
        assert!(
            (NOTE_BYTES - 3..=NOTE_BYTES).contains(&note.len()),
            "{}",
            note.len()
        );
    }
}
