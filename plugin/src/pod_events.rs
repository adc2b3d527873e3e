//! Events of the manager about a container, written on its pod as Kubernetes events, where `kubectl describe pod` shows them.
//! For people alone: nothing waits for it, and nothing else suffers where it cannot be done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt as _;
use tracing::{debug, info, warn};
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::event::Severity;

use crate::manager::{Manager, ManagerError};

/// Reporter of the events (`reportingController`: a qualified name).
const CONTROLLER: &str = "vcuda.io/device-plugin";
/// A pod gets one event of one reason in this time. All of them are in `vcuda events`.
const EVERY: Duration = Duration::from_secs(60);
/// The longest note that the API server takes (bytes; events.k8s.io/v1).
const NOTE_BYTES: usize = 1024;
/// Longest time for one event. Events that come meanwhile wait at the manager.
const DEADLINE: Duration = Duration::from_secs(5);
/// Without the right, it is tried again so seldom.
const FORBIDDEN: Duration = Duration::from_secs(600);
/// Between two tries to hear the manager.
const AGAIN: Duration = Duration::from_secs(1);
/// Pods and reasons that are remembered.
const MOST: usize = 10_000;
/// An event that is older when it arrives is no news (milliseconds).
const OLD_MS: i64 = 60_000;

/// Lets one event of a kind through in [`EVERY`].
#[derive(Debug, Default)]
struct Limiter {
    last: HashMap<(String, String), Instant>,
}

impl Limiter {
    fn lets(&mut self, pod_uid: &str, reason: &str, now: Instant) -> bool {
        self.last
            .retain(|_, last| now.saturating_duration_since(*last) < EVERY);
        let key = (pod_uid.to_owned(), reason.to_owned());
        if self.last.len() >= MOST || self.last.contains_key(&key) {
            return false;
        }
        self.last.insert(key, now);
        true
    }
}

/// Writes events until it is dropped.
pub async fn run(client: Client, node: String, manager: Arc<Manager>) {
    let reporter = Reporter {
        controller: CONTROLLER.to_owned(),
        instance: Some(node),
    };
    let mut writer = Writer {
        recorder: Recorder::new(client, reporter),
        manager,
        holders: HashMap::new(),
        limiter: Limiter::default(),
        told_ms: 0,
        trouble: None,
        closed_until: None,
    };
    loop {
        if let Err(error) = writer.listen().await {
            debug!("the manager's events are not heard: {error}");
        }
        sleep(AGAIN).await;
    }
}

struct Writer {
    recorder: Recorder,
    manager: Arc<Manager>,
    /// Holders of grants, which keep them as long as they are.
    holders: HashMap<String, v1::Holder>,
    limiter: Limiter,
    /// Time of the newest event that arrived (milliseconds since 1970).
    told_ms: i64,
    /// Present failure, so that it is logged once.
    trouble: Option<String>,
    closed_until: Option<Instant>,
}

impl Writer {
    /// Until the manager ends.
    async fn listen(&mut self) -> Result<(), ManagerError> {
        // A manager that was restarted sends all kept events again, with other numbers: their times tell which are
        // known.
        let heard_ms = self.told_ms;
        let mut events = self.manager.events().await?;
        while let Some(Ok(event)) = events.next().await {
            let is_news = is_news(&event, heard_ms, now_ms());
            self.told_ms = self.told_ms.max(event.unix_ms);
            let is_grave = matches!(event.severity(), Severity::Warning | Severity::Error);
            if is_news && is_grave && !event.container_id.is_empty() {
                self.tell(&event).await;
            }
        }
        Ok(())
    }

    async fn tell(&mut self, event: &v1::Event) {
        let Some(holder) = self.holder(&event.container_id).await else {
            return;
        };
        let now = Instant::now();
        if self.closed_until.is_some_and(|until| now < until)
            || !self.limiter.lets(&holder.pod_uid, &event.reason, now)
        {
            return;
        }
        let published = timeout(
            DEADLINE,
            self.recorder.publish(&words(event, &holder), &pod(&holder)),
        )
        .await;
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

    /// The pod's container that the grant is for; `None` for grants that are no pod's.
    async fn holder(&mut self, id: &str) -> Option<v1::Holder> {
        if !self.holders.contains_key(id) {
            let grants = self.manager.list().await.ok()?;
            let of_grant = |grant: v1::Grant| Some((grant.id, grant.holder?));
            self.holders = grants.into_iter().filter_map(of_grant).collect();
        }
        let holder = self.holders.get(id)?;
        (!holder.pod.is_empty() && !holder.namespace.is_empty()).then(|| holder.clone())
    }
}

/// Several of one audit have the same time, so that only what an earlier connection brought is known by it.
fn is_news(event: &v1::Event, heard_ms: i64, now_ms: i64) -> bool {
    event.unix_ms > heard_ms.max(now_ms.saturating_sub(OLD_MS))
}

fn words(event: &v1::Event, holder: &v1::Holder) -> Event {
    let mut note = format!("container {}: {}", holder.container, event.message);
    let end = (0..=NOTE_BYTES.min(note.len()))
        .rev()
        .find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or(0));
    Event {
        type_: EventType::Warning,
        reason: event.reason.clone(),
        note: Some(note),
        action: "Watching".to_owned(),
        secondary: None,
    }
}

fn pod(holder: &v1::Holder) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(holder.pod.clone()),
        namespace: Some(holder.namespace.clone()),
        uid: (!holder.pod_uid.is_empty()).then(|| holder.pod_uid.clone()),
        ..ObjectReference::default()
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
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
    fn what_was_heard_before_or_is_old_is_no_news() {
        let at = |unix_ms| v1::Event {
            unix_ms,
            ..v1::Event::default()
        };
        let now_ms = 1_000_000;
        assert!(is_news(&at(now_ms), 0, now_ms));
        assert!(is_news(&at(now_ms), now_ms - 1, now_ms));
        assert!(!is_news(&at(now_ms - 1), now_ms - 1, now_ms), "heard");
        assert!(!is_news(&at(now_ms - OLD_MS), 0, now_ms), "old");
    }

    #[test]
    fn a_note_is_as_long_as_it_may_be() {
        let event = v1::Event {
            message: "ü".repeat(2000),
            ..v1::Event::default()
        };
        let holder = v1::Holder {
            container: "c".to_owned(),
            ..v1::Holder::default()
        };
        let note = words(&event, &holder).note.unwrap();
        assert!(
            (NOTE_BYTES - 3..=NOTE_BYTES).contains(&note.len()),
            "{}",
            note.len()
        );
        assert_eq!(pod(&holder).uid, None);
    }
}
