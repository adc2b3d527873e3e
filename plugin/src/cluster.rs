//! The annotations of the node's pods, watched at the API server. Without an API server every pod has the node's default policy
//! and priority. When the server answers again, the annotations of running pods are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::timeout;
use vcuda_daemon::api_server::read_watch;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;
use vcuda_quota::pods::annotations::{AnnotationError, quota_change};

/// Longest wait of a starting container for its pod to appear in the watch: the API server notifies kubelet and this plugin
/// at the same time.
const POD_TIMEOUT: Duration = Duration::from_secs(2);

/// Annotation of a static pod's mirror pod: the UID under which kubelet runs the static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pods: Store<PartialObjectMeta<Pod>>,
    /// Number of watch events so far.
    updates: watch::Receiver<u64>,
}

impl Cluster {
    /// Watches the metadata of the pods that are bound to `node`, until the runtime ends. If the API server does not answer, it
    /// is asked again with growing pauses, and its last answer stays in use.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let api: Api<PartialObjectMeta<Pod>> = Api::all(client);
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let (reader, writer) = store();
        let (update_tx, updates) = watch::channel(0);
        tokio::spawn(async move {
            let events = watcher(api, of_node).reflect(writer).default_backoff();
            let consequence =
                "annotations are taken as they were seen last, for unknown pods as if there were none";
            read_watch(events, consequence, || update_tx.send_modify(|count| *count += 1)).await;
        });
        Self { pods: reader, updates }
    }

    /// The quota change of the pod's annotations for its container. It waits for the pod to appear in the watch; the change is
    /// empty if it does not appear in time. `names` is as in [`quota_change`].
    pub(crate) async fn quota_change_at_start(
        &self,
        holder: &v1::Holder,
        names: &BTreeSet<String>,
    ) -> Result<QuotaChange, AnnotationError> {
        let mut updates = self.updates.clone();
        let found = async {
            loop {
                if let Some(annotations) = self.annotations(holder) {
                    return Some(annotations);
                }
                if updates.changed().await.is_err() {
                    return None;
                }
            }
        };
        match timeout(POD_TIMEOUT, found).await {
            Ok(Some(annotations)) => quota_change(&annotations, &holder.container, names),
            Ok(None) | Err(_) => Ok(QuotaChange::default()),
        }
    }

    /// The quota change of the pod's present annotations; `None` if the pod is not in the watch.
    pub(crate) fn current_quota_change(
        &self,
        holder: &v1::Holder,
    ) -> Option<Result<QuotaChange, AnnotationError>> {
        let annotations = self.annotations(holder)?;
        // A wrong container name was refused at the start, where the names are known.
        Some(quota_change(&annotations, &holder.container, &BTreeSet::new()))
    }

    /// Waits until a pod of the node has changed.
    pub(crate) async fn changed(&mut self) {
        if self.updates.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The present annotations of a grant's pod; `None` if the pod is not in the watch.
    pub(crate) fn annotations(&self, holder: &v1::Holder) -> Option<BTreeMap<String, String>> {
        let pod = ObjectRef::new(&holder.pod).within(&holder.namespace);
        let pod: Arc<PartialObjectMeta<Pod>> = self.pods.get(&pod)?;
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        // A mirror pod of a static pod has a UID of its own; kubelet's UID is in its annotation.
        let uid = annotations.get(MIRROR).or(pod.metadata.uid.as_ref());
        // An earlier or later pod of the same name.
        let is_other = match (uid, holder.pod_uid.as_str()) {
            (_, "") | (None, _) => false,
            (Some(uid), held) => uid != held,
        };
        (!is_other).then_some(annotations)
    }
}
