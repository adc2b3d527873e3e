//! Latency of the API over its socket by number of grants: `cargo bench -p vcuda-manager --bench api`.
//!
//! Only `list` may grow with the grants. The ledger is on the disk of the temporary directory, so `create_release` takes at
//! least two fsyncs. `create_release_64` runs 64 of them at once, which share fsyncs.
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod timed;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tonic::transport::Channel;
use vcuda_manager::admission::{Placement, Rules};
use vcuda_manager::events::Events;
use vcuda_manager::gpu::{Gpu, Inventory};
use vcuda_manager::ledger::RealDisk;
use vcuda_manager::observe::SnapshotCache;
use vcuda_manager::serve;
use vcuda_manager::service::{About, GrantsService, NodeService};
use vcuda_manager::settings::{Api, Settings};
use vcuda_manager::state::Grants;
use vcuda_manager::state::start::start;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_quota::pods::bounds::Bounds;
use vcuda_region::GpuUuid;

fn gpu(number: u8) -> Gpu {
    Gpu::new(GpuUuid::from_bytes([number; 16]), "simulated", 80 << 30)
}

/// Serves the API of a manager with 64 GPUs until the process ends.
fn serve_in(scratch: &Path) -> Grants {
    let inventory = Inventory { gpus: (0..64).map(gpu).collect(), ..Inventory::default() };
    let settings = Settings {
        root: scratch.join("run"),
        state: scratch.join("lib"),
        rules: Rules { sharers_max: 32, placement: Placement::Spread, ..Rules::default() },
        bounds: Bounds::default(),
        api: Api::default(),
        devices: Default::default(),
        shim: Default::default(),
    };
    let events = Arc::new(Events::default());
    // The receivers live until the benchmark's process ends.
    let (gpus, inventory) = watch::channel(Arc::new(inventory));
    let snapshots = Arc::<SnapshotCache>::default();
    let (stop, stopped) = watch::channel(false);
    let (grants, keeping) = start(&settings, Box::new(RealDisk), &events, inventory, snapshots).unwrap();
    std::mem::forget((gpus, stop, keeping));
    let deadline = settings.api.deadline;
    let service = GrantsService::new(grants.clone(), deadline, stopped.clone());
    let about = About {
        version: String::new(),
        build: String::new(),
        node: String::new(),
        root: String::new(),
        started_unix_ms: 0,
        simulated_machine: String::new(),
        shim: std::sync::Arc::default(),
    };
    let problems = Arc::default();
    let node = NodeService::new(grants.clone(), events, problems, about, deadline, stopped.clone());
    let listener = serve::listen(&settings.root, &settings.api).unwrap();
    let told = Arc::default();
    tokio::spawn(async move { serve::serve(listener, &settings.api, service, node, told, stopped).await });
    grants
}

fn ask(key: &str) -> v1::CreateGrantRequest {
    v1::CreateGrantRequest {
        request_id: format!("r-{key}"),
        key: key.to_owned(),
        holder: Some(v1::Holder {
            namespace: "default".to_owned(),
            pod: format!("inference-{key}"),
            container: "main".to_owned(),
            pod_uid: "3f9a2b1c-0d1e-4f5a-8b6c-7d8e9f0a1b2c".to_owned(),
        }),
        amounts: Some(v1::Amounts { memory_bytes: 1 << 30, cores_permille: 10, ..v1::Amounts::default() }),
        gpu_count: 1,
        ..v1::CreateGrantRequest::default()
    }
}

async fn create_release(client: &mut GrantsClient<Channel>, key: &str) {
    let id = client.create(ask(key)).await.unwrap().into_inner().id;
    let release = v1::ReleaseGrantRequest { id, even_if_used: false };
    client.release(release).await.unwrap();
}

async fn create_release_64(client: &GrantsClient<Channel>, turn: u64) {
    let asking: Vec<_> = (0..64)
        .map(|place| {
            let (mut client, key) = (client.clone(), format!("all-{turn}-{place}"));
            tokio::spawn(async move { create_release(&mut client, &key).await })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap();
    }
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let scratch = tempfile::tempdir().unwrap();
    let grants = serve_in(scratch.path());
    let socket = scratch.path().join("run").join(vcuda_manager_api::SOCKET_NAME);
    let channel = runtime.block_on(vcuda_manager_api::connect(&socket, Duration::from_secs(60))).unwrap();
    let mut client = GrantsClient::new(channel.clone());
    let mut node = NodeClient::new(channel);
    let mut turn = 0_u64;
    for count in [1, 10, 100, 1000] {
        runtime.block_on(async {
            for number in grants.grant_table().len()..count {
                client.create(ask(&format!("held-{number}"))).await.unwrap();
            }
        });
        timed::report(&format!("create_release/{count}"), || {
            turn += 1;
            runtime.block_on(create_release(&mut client, &format!("new-{turn}")));
        });
        timed::report(&format!("create_release_64/{count}"), || {
            turn += 1;
            runtime.block_on(create_release_64(&client, turn));
        });
        timed::report(&format!("get/{count}"), || {
            let request =
                v1::GetGrantRequest { grant: Some(v1::get_grant_request::Grant::Id("held-0-1".to_owned())) };
            runtime.block_on(client.get(request)).unwrap();
        });
        timed::report(&format!("list/{count}"), || {
            runtime.block_on(client.list(v1::ListGrantsRequest {})).unwrap();
        });
        timed::report(&format!("list_gpus/{count}"), || {
            runtime.block_on(node.list_gpus(v1::ListGpusRequest::default())).unwrap();
        });
    }
}
