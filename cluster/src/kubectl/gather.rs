//! What the API server tells of a pod: the pod, its events, its claims, and what nodes have.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use vcuda_daemon::life::RunError;

use super::controller::{self, Found, Subject};
use super::explain::{self, Evidence, Told};
use super::refused;
use super::too_large::Largest;

/// Gathers what is known of a pod, or of that pod of a controller that most needs an explanation.
///
/// # Errors
/// There is none of this name, or it may not be read. What else may not be read is told in the evidence.
pub(super) async fn evidence(
    client: &Client,
    namespace: &str,
    asked: &Subject,
) -> Result<Evidence, RunError> {
    if asked.is_pod() {
        return of_pod(client, namespace, &asked.name).await;
    }
    let controller = match controller::find(client, namespace, asked).await? {
        Found::Pod(name) => return of_pod(client, namespace, &name).await,
        Found::None(controller) => controller,
    };
    let mut unread = Vec::new();
    let mut events = events(client, namespace, &asked.name, &mut unread).await;
    events.retain(controller::is_warning);
    let events = told(events, controller.metadata.uid.as_ref());
    Ok(controller::without_pods(asked, &controller, events, unread))
}

async fn of_pod(client: &Client, namespace: &str, name: &str) -> Result<Evidence, RunError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get(name).await.map_err(|error| refused(&format!("pod {namespace}/{name}"), &error))?;
    let mut unread = Vec::new();
    let events = told(events(client, namespace, name, &mut unread).await, pod.metadata.uid.as_ref());
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    let (mut claims, mut missing_claims) = (Vec::new(), Vec::new());
    for claim in claim_names(&pod) {
        match api.get(&claim).await {
            Ok(claim) => claims.push(claim),
            Err(kube::Error::Api(status)) if status.code == 404 => missing_claims.push(claim),
            Err(error) => unread.push(refused(&format!("claim {claim}"), &error).to_string()),
        }
    }
    let mut sharers = Vec::new();
    for sharer in sharer_names(&claims, name) {
        match pods.get_opt(&sharer).await {
            Ok(found) => sharers.extend(found),
            Err(error) => unread.push(refused(&format!("pod {sharer}"), &error).to_string()),
        }
    }
    let largest = match explain::phase(&pod).as_str() {
        "Pending" => largest(client, &mut unread).await,
        _ => Largest::default(),
    };
    Ok(Evidence { pod, events, claims, sharers, largest, missing_claims, unread })
}

/// Events about objects of this name.
async fn events(client: &Client, namespace: &str, name: &str, unread: &mut Vec<String>) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let of_name = ListParams::default().fields(&format!("involvedObject.name={name}"));
    match events.list(&of_name).await {
        Ok(events) => events.items,
        Err(error) => {
            unread.push(refused("events", &error).to_string());
            Vec::new()
        }
    }
}

/// What the cluster has at most. A user may not be allowed to list nodes or slices.
async fn largest(client: &Client, unread: &mut Vec<String>) -> Largest {
    let all = ListParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let mut largest = Largest::default();
    match tokio::try_join!(nodes.list(&all), slices.list(&all)) {
        Ok((nodes, slices)) => {
            nodes.items.iter().for_each(|node| largest.add_node(node));
            slices.items.iter().for_each(|slice| largest.add_slice(slice));
        }
        Err(error) => {
            unread.push(refused("nodes and slices, so whether it can ever start", &error).to_string())
        }
    }
    largest
}

/// Events of the object with this UID and not of a former one of its name, the newest first.
fn told(events: Vec<Event>, of: Option<&String>) -> Vec<Told> {
    let is_of_object = |event: &Event| {
        let uid = event.involved_object.uid.as_ref();
        uid.is_none() || of.is_none() || uid == of
    };
    let mut events: Vec<(Option<String>, Told)> = events
        .into_iter()
        .filter(is_of_object)
        .map(|event| {
            let series = event.series.as_ref().and_then(|series| series.last_observed_time.clone());
            let time = event.last_timestamp.map(|time| time.0.to_string());
            let time = series.or(event.event_time).map(|time| time.0.to_string()).or(time);
            let told =
                Told { reason: event.reason.unwrap_or_default(), message: event.message.unwrap_or_default() };
            (time, told)
        })
        .collect();
    events.sort_by(|one, other| other.0.cmp(&one.0));
    events.into_iter().map(|(_, told)| told).collect()
}

/// Names of the pod's claims, as far as they were made.
fn claim_names(pod: &Pod) -> Vec<String> {
    let own = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let own = own.filter_map(|claim| claim.resource_claim_name.clone());
    own.chain(made.filter_map(|claim| claim.resource_claim_name.clone())).collect()
}

/// Names of other pods than `name` for which the claims are reserved.
fn sharer_names(claims: &[ResourceClaim], name: &str) -> BTreeSet<String> {
    let statuses = claims.iter().filter_map(|claim| claim.status.as_ref());
    let users = statuses.flat_map(|status| status.reserved_for.iter().flatten());
    users.filter(|user| user.resource == "pods" && user.name != name).map(|user| user.name.clone()).collect()
}
