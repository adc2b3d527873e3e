//! The node's pods as the API server has them, for their annotations. Without an API server every pod competes as the node's
//! default says; when one answers, running pods follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;
use vcuda_quota::pods::annotations::{AnnotationError, choice};

use crate::pod_choices::PodChoices;

/// Time that a container that starts waits for its pod to be seen: kubelet and this plugin are told of it at the same
/// time.
const POD_SEEN_WITHIN: Duration = Duration::from_secs(2);

/// Names, on the mirror of a static pod, the UID under which kubelet runs it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The API server cannot be asked, as it is configured.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The file that names it.
    #[error("kubeconfig {0}: {1}")]
    Kubeconfig(String, String),
    /// The service account that kubelet puts into every pod is missing, or wrong.
    #[error("this pod's service account: {0}; set automountServiceAccountToken, or [cluster] api = \"off\"")]
    ServiceAccount(String),
    /// No client can be made of it.
    #[error("API server: {0}")]
    Client(String),
}

/// The pods of this node.
#[derive(Debug, Clone)]
pub struct Cluster {
    pods: Store<PartialObjectMeta<Pod>>,
    /// Counts the pods that were seen.
    seen: watch::Receiver<u64>,
}

/// Client of the API server: by a file, or as in any pod. None where this is no pod.
///
/// # Errors
/// It is configured, and cannot work.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Option<Client>, ClusterError> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                ClusterError::Kubeconfig(path.display().to_string(), error.to_string())
            };
            let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| wrong(&error))?
        }
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => return Ok(None),
        None => Config::incluster().map_err(|error| ClusterError::ServiceAccount(error.to_string()))?,
    };
    let client = Client::try_from(config).map_err(|error| ClusterError::Client(error.to_string()))?;
    Ok(Some(client))
}

impl Cluster {
    /// Watches the metadata of the pods that are bound to `node`, until the runtime ends. An API server that is away is
    /// asked again, ever more slowly, and what it said last holds.
    #[must_use]
    pub fn start(client: Client, node: &str) -> Self {
        let api: Api<PartialObjectMeta<Pod>> = Api::all(client);
        let ours = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let (reader, writer) = store();
        let (tell, seen) = watch::channel(0);
        tokio::spawn(async move {
            let mut events = watcher(api, ours).reflect(writer).default_backoff().boxed();
            let mut is_away = false;
            while let Some(event) = events.next().await {
                match event {
                    Ok(_) if is_away => {
                        is_away = false;
                        info!("the API server answers again");
                    }
                    Ok(_) => {}
                    Err(error) if !is_away => {
                        is_away = true;
                        warn!(
                            "{error}: annotations are taken as they were seen last, for unknown pods as if there were none"
                        );
                    }
                    Err(_) => {}
                }
                tell.send_modify(|count| *count += 1);
            }
        });
        Self { pods: reader, seen }
    }

    /// Choices of the pod's annotations for its container; nothing, for a pod that the API server does not show in time.
    /// `names` are those that [`choice`] takes.
    ///
    /// # Errors
    /// The annotation that is wrong.
    pub async fn choice(
        &self,
        holder: &v1::Holder,
        names: &BTreeSet<String>,
    ) -> Result<QuotaChange, AnnotationError> {
        let mut seen = self.seen.clone();
        let found = async {
            loop {
                if let Some(annotations) = self.annotations(holder) {
                    return Some(annotations);
                }
                if seen.changed().await.is_err() {
                    return None;
                }
            }
        };
        match timeout(POD_SEEN_WITHIN, found).await {
            Ok(Some(annotations)) => choice(&annotations, &holder.container, names),
            Ok(None) | Err(_) => Ok(QuotaChange::default()),
        }
    }

    /// As far as it is known now.
    ///
    /// # Errors
    /// The annotation that is wrong.
    pub fn known(&self, holder: &v1::Holder) -> Option<Result<QuotaChange, AnnotationError>> {
        let annotations = self.annotations(holder)?;
        // A wrong name was refused at the start, where the names are known.
        Some(choice(&annotations, &holder.container, &BTreeSet::new()))
    }

    /// Waits until something of a pod has changed.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The annotations of a grant's pod, as far as they are known now.
    #[must_use]
    pub fn annotations(&self, holder: &v1::Holder) -> Option<BTreeMap<String, String>> {
        let pod = ObjectRef::new(&holder.pod).within(&holder.namespace);
        let pod: Arc<PartialObjectMeta<Pod>> = self.pods.get(&pod)?;
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        // Of a static pod the API server shows a mirror with a UID of its own; kubelet's UID is in its annotation.
        let uid = annotations.get(MIRROR).or(pod.metadata.uid.as_ref());
        // Another pod of this name, before or after this one.
        let is_other = match (uid, holder.pod_uid.as_str()) {
            (_, "") | (None, _) => false,
            (Some(uid), held) => uid != held,
        };
        (!is_other).then_some(annotations)
    }
}

#[tonic::async_trait]
impl PodChoices for Cluster {
    async fn quota_change(
        &self,
        holder: &v1::Holder,
        names: &BTreeSet<String>,
    ) -> Result<QuotaChange, String> {
        let choice = self.choice(holder, names).await;
        choice.map_err(|error| error.to_string())
    }
}
