//! Events of the manager about a container, written on its pod as Kubernetes events, where `kubectl describe pod` shows them.
//! For people alone: nothing waits for it, and nothing else suffers where it cannot be done.

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

/// Between two tries to hear the manager.
const AGAIN: Duration = Duration::from_secs(1);
/// An event that is older when it arrives is no news (milliseconds).
const OLD_MS: i64 = 60_000;

/// Writes events until it is dropped.
pub async fn run(events: EventWriter, manager: Arc<Manager>) {
    let mut writer = Writer {
        events,
        manager,
        holders: HashMap::new(),
        told_ms: 0,
    };
    loop {
        if let Err(error) = writer.listen().await {
            debug!("the manager's events are not heard: {error}");
        }
        sleep(AGAIN).await;
    }
}

struct Writer {
    events: EventWriter,
    manager: Arc<Manager>,
    /// Holders of grants, which keep them as long as they are.
    holders: HashMap<String, v1::Holder>,
    /// Time of the newest event that arrived (milliseconds since 1970).
    told_ms: i64,
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
        let note = format!("container {}: {}", holder.container, event.message);
        self.events.write(&pod(&holder), &event.reason, note).await;
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

/// The pod of a grant.
pub(crate) fn pod(holder: &v1::Holder) -> ObjectReference {
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
}
