//! The pod of a Job, a Deployment or the like that most needs an explanation, and why a controller has no pod.

use std::cmp::Reverse;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{Event, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta};
use kube::core::Selector;
use kube::{Api, Client};
use serde_json::Value;
use vcuda_daemon::life::RunError;

use super::explain::{Evidence, Told, phase};
use super::refused;

/// Words for a kind, its API group and its name.
const KINDS: [(&str, &str, &str); 6] = [
    ("pod pods po", "", "Pod"),
    ("job jobs", "batch", "Job"),
    ("deployment deployments deploy", "apps", "Deployment"),
    ("statefulset statefulsets sts", "apps", "StatefulSet"),
    ("replicaset replicasets rs", "apps", "ReplicaSet"),
    ("daemonset daemonsets ds", "apps", "DaemonSet"),
];
/// Conditions of controllers that make no pods.
const CONDITIONS: [&str; 3] = ["ReplicaFailure", "Failed", "Suspended"];

/// What the user asks about: a pod, or a controller as `job/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    group: &'static str,
    kind: &'static str,
    pub(super) name: String,
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, name) = text.split_once('/').unwrap_or(("pod", text));
        let mut kinds = KINDS.iter();
        let (_, group, kind) = kinds.find(|(words, ..)| words.split(' ').any(|one| one == word)).ok_or(
            "write the name of a pod, or job/NAME, deployment/NAME, statefulset/NAME, replicaset/NAME or daemonset/NAME",
        )?;
        Ok(Self { group, kind, name: name.to_owned() })
    }
}

impl Subject {
    pub(super) fn is_pod(&self) -> bool {
        self.kind == "Pod"
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// The pod to explain, or the controller that has none.
pub(super) enum Found {
    Pod(String),
    None(Box<DynamicObject>),
}

/// Finds the controller's pod that most needs an explanation.
///
/// # Errors
/// There is no such controller, or it or its pods may not be read.
pub(super) async fn find(client: &Client, namespace: &str, asked: &Subject) -> Result<Found, RunError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(asked.group, "v1", asked.kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let what = asked.shown();
    let controller = api.get(&asked.name).await.map_err(|error| refused(&what, &error))?;
    let selector = controller.data.pointer("/spec/selector").cloned().unwrap_or_default();
    let selector = serde_json::from_value(selector)
        .ok()
        .and_then(|labels: LabelSelector| Selector::try_from(labels).ok());
    let selector = selector
        .ok_or_else(|| RunError::Failed(format!("{what} has no spec.selector: ask about one of its pods")))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = pods.list(&ListParams::default().labels_from(&selector)).await;
    let listed = listed.map_err(|error| refused(&format!("pods of {what}"), &error))?;
    let name = most_telling(listed.items).and_then(|pod| pod.metadata.name);
    Ok(name.map_or_else(|| Found::None(Box::new(controller)), Found::Pod))
}

/// The newest pod that waits, else that does not run, else the newest.
fn most_telling(pods: Vec<Pod>) -> Option<Pod> {
    pods.into_iter().min_by_key(|pod| {
        let conditions = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let rank = match phase(pod).as_str() {
            "Pending" => 0,
            "Running" if is_ready => 2,
            "Succeeded" => 2,
            _ => 1,
        };
        (rank, Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)))
    })
}

/// What a controller without a pod and its `events` tell, in the place of a pod.
pub(super) fn without_pods(
    asked: &Subject,
    controller: &DynamicObject,
    events: Vec<Told>,
    unread: Vec<String>,
) -> Evidence {
    let conditions = controller.data.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten();
    let told = conditions.filter_map(|condition| {
        let Condition { type_, status, message, .. } = serde_json::from_value(condition.clone()).ok()?;
        (status == "True" && CONDITIONS.contains(&type_.as_str())).then_some(Told { reason: type_, message })
    });
    let metadata = ObjectMeta {
        namespace: controller.metadata.namespace.clone(),
        name: Some(asked.shown()),
        ..ObjectMeta::default()
    };
    let status = PodStatus { phase: Some("no pod".to_owned()), ..PodStatus::default() };
    Evidence {
        pod: Pod { metadata, status: Some(status), ..Pod::default() },
        events: events.into_iter().chain(told).collect(),
        unread,
        ..Evidence::default()
    }
}

/// Whether an event says that something went wrong.
pub(super) fn is_warning(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subject_is_a_pod_or_a_controller() {
        let asked = |text: &str| text.parse::<Subject>().map(|subject| (subject.is_pod(), subject.shown()));
        assert_eq!(asked("web-0"), Ok((true, "pod/web-0".to_owned())));
        assert_eq!(asked("deploy/web"), Ok((false, "deployment/web".to_owned())));
        assert!(asked("service/web").unwrap_err().contains("job/NAME"));
    }

    #[test]
    fn the_newest_pod_that_waits_is_told_first() {
        let pod = |name: &str, second: u32, phase: &str| -> Pod {
            let ready =
                json!([{"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }}]);
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "status": {"phase": phase, "conditions": ready},
            }))
            .unwrap()
        };
        let all = [
            pod("runs", 5, "Running"),
            pod("failed", 4, "Failed"),
            pod("waits", 2, "Pending"),
            pod("newer", 3, "Pending"),
        ];
        let told = |pods: &[Pod]| most_telling(pods.to_vec()).and_then(|pod| pod.metadata.name);
        assert_eq!(told(&all).as_deref(), Some("newer"));
        assert_eq!(told(&all[..2]).as_deref(), Some("failed"));
        assert_eq!((told(&all[..1]).as_deref(), told(&[])), (Some("runs"), None));
    }
}
