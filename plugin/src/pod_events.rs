//! Copies the manager's events about a container to its pod, or to the claim that pods share, as Kubernetes events, which `kubectl
//! describe` shows. No part of the daemons waits for them or depends on them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::sleep;
use tokio_stream::StreamExt as _;
use tracing::debug;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::event::Severity;

use crate::event_writer::EventWriter;
use crate::manager::{Manager, ManagerError};

/// Pause between tries to read the manager's events.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Greatest age of an event that is copied (ms).
const MAX_AGE_MS: i64 = 60_000;

/// Finds the objects for events about grants that are not a single pod's.
pub(crate) trait OtherObjects: Send + Sync {
    /// The objects for events about a grant; `None` if its pod alone uses it.
    fn of_grant(&self, grant: &v1::Grant) -> Option<Vec<ObjectReference>>;
}

/// Copies events until the task is dropped. Without `others` each grant is a pod's.
pub(crate) async fn run(events: EventWriter, manager: Arc<Manager>, others: Option<Box<dyn OtherObjects>>) {
    let mut writer = Writer { events, manager, others, grants: HashMap::new(), newest_ms: 0 };
    loop {
        if let Err(error) = writer.stream_events().await {
            debug!("the manager's events are not heard: {error}");
        }
        sleep(RETRY_INTERVAL).await;
    }
}

struct Writer {
    events: EventWriter,
    manager: Arc<Manager>,
    others: Option<Box<dyn OtherObjects>>,
    /// Grants by id, of which key and holder are used. A grant never changes those.
    grants: HashMap<String, v1::Grant>,
    /// Time of the newest event that was read (ms since 1970).
    newest_ms: i64,
}

impl Writer {
    /// Reads the manager's events until the stream ends.
    async fn stream_events(&mut self) -> Result<(), ManagerError> {
        // A restarted manager sends all kept events again, with other numbers. Their times tell which ones were read before.
        let known_ms = self.newest_ms;
        let mut events = self.manager.events().await?;
        while let Some(Ok(event)) = events.next().await {
            let is_new = is_new(&event, known_ms, now_ms());
            self.newest_ms = self.newest_ms.max(event.unix_ms);
            let is_serious = matches!(event.severity(), Severity::Warning | Severity::Error);
            if is_new && is_serious && !event.container_id.is_empty() {
                self.write_event(&event).await;
            }
        }
        Ok(())
    }

    async fn write_event(&mut self, event: &v1::Event) {
        let Some((objects, note)) = self.objects(event).await else {
            return;
        };
        for object in &objects {
            self.events.write(object, &event.reason, note.clone()).await;
        }
    }

    /// The objects of an event and the note; `None` if neither a pod nor a claim has the grant.
    async fn objects(&mut self, event: &v1::Event) -> Option<(Vec<ObjectReference>, String)> {
        let id = &event.container_id;
        if !self.grants.contains_key(id) {
            let grants = self.manager.list().await.ok()?;
            self.grants = grants.into_iter().map(|grant| (grant.id.clone(), grant)).collect();
        }
        let grant = self.grants.get(id)?;
        if let Some(objects) = self.others.as_ref().and_then(|others| others.of_grant(grant)) {
            // The event does not say of which pod the container is.
            return Some((objects, format!("a container of the shared claim: {}", event.message)));
        }
        let holder = grant.holder.as_ref()?;
        let is_pods = !holder.pod.is_empty() && !holder.namespace.is_empty();
        let note = format!("container {}: {}", holder.container, event.message);
        is_pods.then(|| (vec![pod_reference(holder)], note))
    }
}

/// Whether the event is recent and was not read by an earlier connection. Several events of an audit have the same time, so the
/// time does not tell events of one connection apart.
fn is_new(event: &v1::Event, known_ms: i64, now_ms: i64) -> bool {
    event.unix_ms > known_ms.max(now_ms.saturating_sub(MAX_AGE_MS))
}

/// Reference to the pod of a grant, for events.
pub(crate) fn pod_reference(holder: &v1::Holder) -> ObjectReference {
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
    fn known_and_old_events_are_not_new() {
        let at = |unix_ms| v1::Event { unix_ms, ..v1::Event::default() };
        let now_ms = 1_000_000;
        assert!(is_new(&at(now_ms), 0, now_ms));
        assert!(is_new(&at(now_ms), now_ms - 1, now_ms));
        assert!(!is_new(&at(now_ms - 1), now_ms - 1, now_ms), "heard");
        assert!(!is_new(&at(now_ms - MAX_AGE_MS), 0, now_ms), "old");
    }
}
