//! ResourceClaimTemplates of pods, made at the API server once it has the pod. A review makes none: whoever reaches the
//! webhook's port can send one, and by it would make objects with the webhook's rights.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tracing::warn;
use vcuda_daemon::api_server::read_watch;

use crate::admit::claims::{Template, template_of};

/// Pods that have no node: one whose claim has no template waits so.
const WAITING: &str = "spec.nodeName=";
/// Waits before attempts to make a template (s). A pod whose template is not made by then gets it at its next change.
const WAITS_S: [u64; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

/// Namespaces and names of templates that are being made.
type InProgress = Arc<RwLock<HashSet<(String, String)>>>;

/// Makes the templates of all pods that wait for one, until the runtime ends.
pub(crate) fn follow(client: Client) {
    let api: Api<Pod> = Api::all(client.clone());
    let in_progress = InProgress::default();
    tokio::spawn(async move {
        let events =
            watcher(api, watcher::Config::default().fields(WAITING)).default_backoff().inspect_ok(|event| {
                if let Event::InitApply(pod) | Event::Apply(pod) = event
                    && let Some(template) = template_of(pod)
                {
                    start(&client, template, &in_progress);
                }
            });
        read_watch(events, "new pods wait for their claims", || ()).await;
    });
}

/// Starts to make a template, unless that is in progress.
fn start(client: &Client, template: Template, in_progress: &InProgress) {
    let key = (template.namespace.clone(), template.name.clone());
    let mut started = in_progress.write().unwrap_or_else(PoisonError::into_inner);
    if !started.insert(key.clone()) {
        return;
    }
    drop(started);
    let (client, in_progress) = (client.clone(), Arc::clone(in_progress));
    tokio::spawn(async move {
        make(client, &template).await;
        in_progress.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    });
}

/// Sees that a template is there. One of its name is it: the name is a hash of the content.
async fn make(client: Client, template: &Template) {
    let Template { namespace, name, object } = template;
    let Ok(object) = serde_json::from_value::<ResourceClaimTemplate>(object.clone()) else {
        return;
    };
    let api: Api<ResourceClaimTemplate> = Api::namespaced(client, namespace);
    for wait_s in WAITS_S {
        tokio::time::sleep(Duration::from_secs(wait_s)).await;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => return,
            Err(error) => warn!("ResourceClaimTemplate {namespace}/{name}: {error}: its pods wait"),
        }
    }
}
