//! What the node's GPUs have left, as an annotation of the node: the scheduler's own sums do not say whether one GPU has it
//! all. Written only if it changes; the manager decides all the same when a container starts.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;
use tracing::{debug, warn};
use vcuda_manager_api::v1;
use vcuda_quota::pods::node_gpus::{ANNOTATION, FreeGpu, NodeGpus, container_key};

use crate::cdi::Store;
use crate::manager::{Manager, ManagerError};
use crate::node::Chunks;
use crate::resources::SHARES_PER_GPU;

mod parts;

use parts::Taken;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Between two tries of a write that failed.
const AGAIN: Duration = Duration::from_secs(10);
/// Time after which the annotation is written again: another hand may have removed it.
const REWRITE: u32 = 300;

#[derive(Clone)]
pub(crate) struct Publisher {
    nodes: Api<Node>,
    node: String,
    chunks: Chunks,
    store: Store,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Publisher")
    }
}

impl Publisher {
    pub(crate) fn new(client: Client, node: &str, chunks: Chunks, store: Store) -> Self {
        Self { nodes: Api::all(client), node: node.to_owned(), chunks, store }
    }

    pub(crate) async fn run(self, manager: Arc<Manager>) {
        let mut written: Option<String> = None;
        let mut looks = 0;
        loop {
            let pause = match look(&manager).await {
                Ok((grants, gpus)) => {
                    let taken = self.taken(&grants, &gpus);
                    let text = text(&gpus, &grants, self.chunks.bytes, taken.as_ref());
                    looks += 1;
                    if written.as_ref() == Some(&text) && looks < REWRITE {
                        LOOK
                    } else {
                        looks = 0;
                        self.write(text, &mut written).await
                    }
                }
                // What was true last stands until the manager is back.
                Err(_) => LOOK,
            };
            sleep(pause).await;
        }
    }

    async fn write(&self, text: String, written: &mut Option<String>) -> Duration {
        let patch = json!({"metadata": {"annotations": {ANNOTATION: text}}});
        let done = self.nodes.patch_metadata(&self.node, &PatchParams::default(), &Patch::Merge(patch)).await;
        match done {
            Ok(_) => {
                debug!(gpus = text, "published");
                *written = Some(text);
                LOOK
            }
            Err(error) => {
                warn!("node {}: annotation {ANNOTATION}: {error}", self.node);
                *written = None;
                AGAIN
            }
        }
    }
}

/// The grants, and then the GPUs: a grant made between the two is counted twice until the next look. In the other order it would
/// not be counted at all.
async fn look(manager: &Manager) -> Result<(Vec<v1::Grant>, Vec<v1::Gpu>), ManagerError> {
    let grants = manager.list().await?;
    Ok((grants, manager.gpus().await?.gpus))
}

/// What the GPUs have left, as the annotation's text. `taken` is of the parts of overcommitted GPUs.
fn text(gpus: &[v1::Gpu], grants: &[v1::Grant], chunk_bytes: u64, taken: Option<&Taken>) -> String {
    let usable: Vec<&v1::Gpu> = gpus.iter().filter(|gpu| gpu.healthy && !gpu.cordoned).collect();
    let free = |gpu: &&v1::Gpu| {
        let free = free(gpu, &usable, chunk_bytes);
        match taken {
            Some(taken) if gpu.memory_suspendable_bytes > 0 => taken.free_of_parts(gpu, free, chunk_bytes),
            _ => free,
        }
    };
    let gpus = usable.iter().map(free).collect();
    let holders = grants.iter().filter_map(|grant| grant.holder.as_ref());
    let mut held: Vec<u32> =
        holders.map(|holder| container_key(&holder.namespace, &holder.pod, &holder.container)).collect();
    held.sort_unstable();
    serde_json::to_string(&NodeGpus { gpus, held }).unwrap_or_default()
}

fn free(gpu: &v1::Gpu, usable: &[&v1::Gpu], chunk_bytes: u64) -> FreeGpu {
    // Each tenant lowers what can be granted, by what is kept free for its context.
    let places = u64::from(gpu.sharers_max.saturating_sub(1)).max(1);
    let alone = gpu.memory_alone_bytes;
    let reserve = alone.saturating_sub(gpu.memory_shared_bytes) / places;
    let bytes = alone
        .saturating_sub(reserve.saturating_mul(gpu.sharers.into()))
        .saturating_sub(gpu.memory_granted_bytes);
    let chunks = |bytes: u64| u32::try_from(bytes / chunk_bytes.max(1)).unwrap_or(u32::MAX);
    let linked = |other: &&v1::Gpu| gpu.nvlink_uuids.contains(&other.uuid);
    let places = usable.iter().enumerate().filter(|(_, other)| linked(other));
    FreeGpu {
        id: gpu.uuid.clone(),
        mem: chunks(bytes),
        turns: None,
        of: chunks(alone),
        cores: gpu.cores_grantable_permille.saturating_sub(gpu.cores_granted_permille) / 10,
        shares: gpu.sharers_max.min(SHARES_PER_GPU).saturating_sub(gpu.sharers),
        numa: u32::try_from(gpu.numa_node).ok(),
        links: places.filter_map(|(place, _)| u32::try_from(place).ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gpu(uuid: &str) -> v1::Gpu {
        v1::Gpu {
            uuid: uuid.to_owned(),
            memory_alone_bytes: 79 * GIB,
            memory_grantable_bytes: 78 * GIB,
            memory_shared_bytes: 64 * GIB,
            memory_granted_bytes: 20 * GIB,
            cores_granted_permille: 305,
            cores_grantable_permille: 1000,
            sharers: 2,
            sharers_max: 16,
            numa_node: -1,
            healthy: true,
            ..v1::Gpu::default()
        }
    }

    #[test]
    fn what_one_more_container_could_have_is_published() {
        let ill = v1::Gpu { healthy: false, ..gpu("ill") };
        let cordoned = v1::Gpu { cordoned: true, ..gpu("cordoned") };
        let linked = v1::Gpu {
            nvlink_uuids: vec!["a".to_owned(), "ill".to_owned()],
            numa_node: 1,
            sharers: 40,
            memory_granted_bytes: 79 * GIB,
            ..gpu("b")
        };
        let holder = |pod: &str| v1::Grant {
            holder: Some(v1::Holder {
                namespace: "default".to_owned(),
                pod: pod.to_owned(),
                container: "main".to_owned(),
                ..v1::Holder::default()
            }),
            ..v1::Grant::default()
        };
        let grants = [holder("a"), v1::Grant::default(), holder("b")];
        let mut keys = ["a", "b"].map(|pod| container_key("default", pod, "main"));
        keys.sort_unstable();
        // 79 GiB alone, 1 GiB kept for each of two contexts, 20 GiB granted.
        assert_eq!(
            text(&[ill, gpu("a"), cordoned, linked], &grants, 256 << 20, None),
            format!(
                "{{\"gpus\":[{{\"id\":\"a\",\"mem\":228,\"of\":316,\"cores\":69,\"shares\":14}},\
             {{\"id\":\"b\",\"mem\":0,\"of\":316,\"cores\":69,\"shares\":0,\"numa\":1,\"links\":[0]}}],\"held\":[{},{}]}}",
                keys[0], keys[1]
            )
        );
        assert_eq!(text(&[], &[], 1, None), "{\"gpus\":[],\"held\":[]}");
    }
}
