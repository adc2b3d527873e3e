//! The nodes' annotations, followed for schedulers that name nodes and do not send them.

use k8s_openapi::api::core::v1::Node;
use kube::api::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use vcuda_daemon::api_server::read_watch;
use vcuda_quota::pods::node_gpus::{ANNOTATION, NodeGpus};

#[derive(Debug, Clone)]
pub(crate) struct Nodes(Option<Store<PartialObjectMeta<Node>>>);

impl Nodes {
    /// None: whoever names nodes learns nothing of them.
    pub(crate) fn unknown() -> Self {
        Self(None)
    }

    /// Follows the metadata of all nodes, until the runtime ends. While the API server is away, what it said last holds.
    pub(crate) fn follow(client: Client) -> Self {
        let api: Api<PartialObjectMeta<Node>> = Api::all(client);
        let (reader, writer) = store();
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default()).reflect(writer).default_backoff();
            read_watch(events, "nodes are taken as they were seen last", || ()).await;
        });
        Self(Some(reader))
    }

    /// GPUs of a node; nothing if it is not known, or publishes none.
    pub(crate) fn gpus(&self, name: &str) -> Option<NodeGpus> {
        let node = self.0.as_ref()?.get(&ObjectRef::new(name))?;
        serde_json::from_str(node.metadata.annotations.as_ref()?.get(ANNOTATION)?).ok()
    }
}
