//! Create, resize and release as the proto describes them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tonic::Code;
use vcuda_manager::access::user_name;
use vcuda_manager::gpu::{Health, Inventory};
use vcuda_manager::problems::problem;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::check_changes_request::Change;
use vcuda_manager_api::v1::check_changes_request::change::Change as Planned;
use vcuda_manager_api::v1::problem::Part;
use vcuda_quota::DeviceConfig;
use vcuda_region::limits::Limits;

use super::harness::{GIB, Node, amounts, ask, by_id, gpu, mode, release, uuid};

/// GPU time that was not asked for is what others leave (docs/policies.md): it is reserved for no tenant.
#[tokio::test]
async fn grants_of_memory_only_share_a_gpu() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    for key in ["a", "b", "c"] {
        let grant = client.create(ask(key, 2 * GIB, 0)).await.unwrap().into_inner();
        assert_eq!(grant.gpu_uuids, [uuid(1).to_string()]);
        assert_eq!(grant.amounts.unwrap().cores_permille, 1000);
    }
    // A promise of all GPU time fits beside them, and no further promise fits beside that.
    let mut all = ask("all", 2 * GIB, 1000);
    let policy = v1::Policy::Burst.into();
    all.amounts = all.amounts.map(|amounts| v1::Amounts { policy, ..amounts });
    let all = client.create(all).await.unwrap().into_inner();
    assert_eq!(all.gpu_uuids, [uuid(1).to_string()]);
    let promised = client.create(ask("d", 2 * GIB, 1)).await.unwrap().into_inner();
    assert_eq!(promised.gpu_uuids, [uuid(2).to_string()]);
    let mut named = ask("e", 2 * GIB, 1);
    (named.gpu_uuids, named.gpu_count) = (vec![uuid(1).to_string()], 0);
    let refused = client.create(named).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    node.stop().await;
}

#[tokio::test]
async fn a_grant_is_a_directory_with_limits_and_counts_on_its_gpu() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    assert_eq!(mode(&node.socket()), 0o660);
    let mut client = node.grants().await;
    let mut request = ask("web", 4 * GIB, 300);
    request.holder = Some(v1::Holder { pod: "web-0".to_owned(), ..v1::Holder::default() });
    let grant = client.create(request).await.unwrap().into_inner();
    assert_eq!((grant.id.as_str(), grant.number, grant.generation), ("web-1", 1, 1));
    assert_eq!(grant.gpu_uuids, [uuid(1).to_string()]);
    let directory = Path::new(&grant.directory);
    assert_eq!(directory, node.settings.root.join("containers/web-1"));
    let modes = [".", "limits", "usage", "grant"].map(|name| mode(&directory.join(name)));
    assert_eq!(modes, [0o755, 0o644, 0o666, 0o600]);
    let limits = Limits::read(directory).unwrap();
    let (device, gpu) = limits.devices().next().unwrap();
    assert_eq!((limits.name(), gpu), ("web-1", uuid(1)));
    assert_eq!(limits.config(device).unwrap(), DeviceConfig::new(4 * GIB, 300));
    assert!(node.ledger().exists());

    let got = client.get(by_id("web-1")).await.unwrap().into_inner();
    assert_eq!(got, grant);
    let list = v1::ListGpusRequest::default();
    let gpus = node.node().await.list_gpus(list).await.unwrap().into_inner();
    let gpu = &gpus.gpus[0];
    assert_eq!((gpu.memory_granted_bytes, gpu.cores_granted_permille, gpu.sharers), (4 * GIB, 300, 1));
    node.stop().await;
}

#[tokio::test]
async fn a_released_grant_leaves_nothing_and_is_released_once() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("web", 4 * GIB, 300)).await.unwrap().into_inner();
    let mut is_released = async || client.release(release("web-1")).await.unwrap().into_inner().released;
    assert!(is_released().await);
    assert!(!Path::new(&grant.directory).exists());
    assert!(!is_released().await, "it is released already");
    let unknown = client.get(by_id("web-1")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.grants.len(), listed.revision), (0, 2));
    node.stop().await;
}

#[tokio::test]
async fn the_same_request_is_the_same_grant() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", GIB, 100)).await.unwrap().into_inner();
    assert_eq!(client.create(ask("a", GIB, 100)).await.unwrap().into_inner(), grant);
    // A different request for the same tenant.
    let mut other = ask("a", GIB, 100);
    other.request_id = "other".to_owned();
    assert_eq!(client.create(other.clone()).await.unwrap().into_inner(), grant);
    // Neither the request id nor the key can be used for something else.
    let mut same_request = ask("b", GIB, 100);
    same_request.request_id = "r-a".to_owned();
    let refused = client.create(same_request).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains("r-a"), "{refused}");
    other.amounts = Some(amounts(2 * GIB, 100));
    let refused = client.create(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains("a-1"), "{refused}");
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.grants, [grant]);
    // Many concurrent requests get a grant each.
    let asking: Vec<_> = (0..40)
        .map(|place| {
            let mut client = client.clone();
            let key = format!("many-{}", place % 10);
            tokio::spawn(async move { client.create(ask(&key, GIB, 10)).await.unwrap().into_inner().id })
        })
        .collect();
    let mut ids = Vec::new();
    for asked in asking {
        ids.push(asked.await.unwrap());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10);
    node.stop().await;
}

#[tokio::test]
async fn a_resize_is_in_place_and_repeats_harmlessly() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", 4 * GIB, 300)).await.unwrap().into_inner();
    client.create(ask("b", 16 * GIB, 500)).await.unwrap();
    let limits = Path::new(&grant.directory).join("limits");
    let inode = fs::metadata(&limits).unwrap().ino();
    let resize = |request: &str, memory: u64, expected: u64| v1::ResizeGrantRequest {
        request_id: request.to_owned(),
        id: "a-1".to_owned(),
        amounts: Some(amounts(memory, 400)),
        expected_generation: expected,
        ..v1::ResizeGrantRequest::default()
    };
    let changed = client.resize(resize("s1", 8 * GIB, 1)).await.unwrap().into_inner();
    assert_eq!(changed.generation, 2);
    assert_eq!(fs::metadata(&limits).unwrap().ino(), inode);
    let read = Limits::read(Path::new(&grant.directory)).unwrap();
    let (device, _) = read.devices().next().unwrap();
    assert_eq!(read.config(device).unwrap(), DeviceConfig::new(8 * GIB, 400));
    // Repeated, although the generation has changed.
    assert_eq!(client.resize(resize("s1", 8 * GIB, 1)).await.unwrap().into_inner(), changed);
    let codes = [
        (resize("s1", GIB, 0), Code::AlreadyExists),
        (resize("s2", GIB, 1), Code::Aborted),
        (resize("s3", 8 * GIB + 1, 0), Code::ResourceExhausted),
        (v1::ResizeGrantRequest { id: "none-9".to_owned(), ..resize("s4", GIB, 0) }, Code::NotFound),
    ];
    for (request, code) in codes {
        assert_eq!(client.resize(request).await.unwrap_err().code(), code);
    }
    // The request that created it is still known.
    assert_eq!(client.create(ask("a", 4 * GIB, 300)).await.unwrap().into_inner(), changed);
    node.stop().await;
}

/// A request for 8 GiB and 30 % of the GPU with this number.
fn ask_of_gpu(number: u8) -> v1::CreateGrantRequest {
    v1::CreateGrantRequest {
        gpu_count: 0,
        gpu_uuids: vec![uuid(number).to_string()],
        ..ask("x", 8 * GIB, 300)
    }
}

#[tokio::test]
async fn a_request_that_does_not_fit_is_told_what_is_free() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", 20 * GIB, 300)).await.unwrap();
    let mut two = ask("x", 8 * GIB, 300);
    two.gpu_count = 2;
    let refusal = client.create(two).await.unwrap_err();
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(refusal.message().contains("has 4 GiB and 70 % free"), "{refusal}");
    assert!(node.kept.has_told("VcudaGrantRefused"));
    let refusal = client.create(ask_of_gpu(9)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    node.stop().await;
}

#[tokio::test]
async fn a_gpu_that_may_not_be_used_is_refused_with_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let mut nodes = node.node().await;
    client.create(ask("a", 20 * GIB, 300)).await.unwrap();
    let cordon = |cordoned| v1::CordonRequest { gpu_uuid: uuid(2).to_string(), cordoned };
    nodes.cordon(cordon(true)).await.unwrap();
    let refusal = client.create(ask_of_gpu(2)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(refusal.message().contains("cordoned"), "{refusal}");
    nodes.cordon(cordon(false)).await.unwrap();

    let mut sick = gpu(2);
    sick.health = Health::Unhealthy("XID 79".to_owned());
    node.kept
        .inventory
        .send_replace(Arc::new(Inventory { gpus: vec![gpu(1), sick], ..Inventory::default() }));
    let refusal = client.create(ask("x", 8 * GIB, 300)).await.unwrap_err();
    assert!(refusal.message().contains("XID 79"), "{refusal}");

    node.kept.inventory.send_replace(Arc::new(Inventory {
        problem: Some("NVML does not answer".to_owned()),
        ..Inventory::default()
    }));
    let refusal = client.create(ask("x", 8 * GIB, 300)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable);
    assert!(refusal.message().contains("NVML does not answer"), "{refusal}");
    let status = nodes.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.problems, [problem(Part::Gpus, "NVML does not answer")]);
    // Grants stay, whatever happens to the GPUs.
    assert_eq!(node.kept.grants.grant_table().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_pod_chooses_within_the_bounds_of_its_namespace_only() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let of_web = |priority: v1::Priority| {
        let mut request = ask("web", 4 * GIB, 300);
        request.request_id = format!("r-{}", priority as i32);
        request.holder = Some(v1::Holder { namespace: "web".to_owned(), ..v1::Holder::default() });
        let amounts = request.amounts.as_mut().unwrap();
        amounts.priority = priority.into();
        request
    };
    let refusal = client.create(of_web(v1::Priority::High)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert!(refusal.message().contains("at most normal"), "{refusal}");
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.grants, []);

    let grant = client.create(of_web(v1::Priority::Normal)).await.unwrap().into_inner();
    let resize = v1::ResizeGrantRequest {
        request_id: "higher".to_owned(),
        id: grant.id.clone(),
        amounts: of_web(v1::Priority::High).amounts,
        expected_generation: 0,
        ..v1::ResizeGrantRequest::default()
    };
    let refusal = client.resize(resize).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    let kept = client.get(by_id(&grant.id)).await.unwrap().into_inner();
    assert_eq!(kept, grant);
}

#[tokio::test]
async fn each_change_by_an_operator_is_told_with_its_user() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    let mut of_pod = ask("b", GIB, 100);
    of_pod.holder = Some(v1::Holder { pod: "web-0".to_owned(), ..v1::Holder::default() });
    client.create(of_pod).await.unwrap();
    for gib in [2, 3] {
        let resize = v1::ResizeGrantRequest {
            request_id: format!("to-{gib}"),
            id: "a-1".to_owned(),
            amounts: Some(amounts(gib * GIB, 100)),
            ..v1::ResizeGrantRequest::default()
        };
        client.resize(resize).await.unwrap();
    }
    for id in ["a-1", "b-2"] {
        client.release(release(id)).await.unwrap();
    }
    let gpu_uuid = uuid(1).to_string();
    let cordon = v1::CordonRequest { gpu_uuid: gpu_uuid.clone(), cordoned: true };
    node.node().await.cordon(cordon).await.unwrap();
    let (events, _) = node.kept.events.listen(0);
    let told: Vec<&str> = events.iter().map(|event| event.report.message.as_str()).collect();
    let user = user_name(nix::unistd::Uid::effective().as_raw());
    // Not of a pod's grant, which is released with each pod.
    assert_eq!(
        told,
        [
            format!("a-1 was granted by user {user}"),
            format!("a-1 has 2 GiB and 10 % now, set by user {user}"),
            format!("a-1 has 3 GiB and 10 % now, set by user {user}"),
            format!("a-1 was released by user {user}"),
            format!("{gpu_uuid} was cordoned by user {user}"),
        ]
    );
    node.stop().await;
}

#[tokio::test]
async fn changes_are_checked_one_after_the_other_and_none_is_made() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let mut two = ask("a", 20 * GIB, 300);
    two.gpu_count = 2;
    client.create(two).await.unwrap();
    let resize = v1::ResizeGrantRequest {
        request_id: "s".to_owned(),
        id: "a-1".to_owned(),
        amounts: Some(amounts(25 * GIB, 300)),
        ..v1::ResizeGrantRequest::default()
    };
    let changes = [
        Planned::Create(ask("b", 8 * GIB, 300)),
        Planned::Resize(resize),
        Planned::Release(release("a-1")),
        Planned::Create(ask("c", 8 * GIB, 300)),
        Planned::Create(ask("c", 9 * GIB, 300)),
    ];
    let before = node.kept.grants.grant_table();
    let changes = changes.map(|change| Change { change: Some(change) }).into();
    let answer = client.check_changes(v1::CheckChangesRequest { changes }).await.unwrap().into_inner();
    let said =
        ["8 GiB and 30 % are not free", "25 GiB and 30 % are not free", "", "", "request_id r-c was used"];
    for (refusal, said) in answer.refusals.iter().zip(said) {
        assert!(refusal.contains(said) && refusal.is_empty() == said.is_empty(), "{refusal}: {said}");
    }
    assert_eq!((answer.refusals.len(), node.kept.grants.grant_table()), (5, before));
    let changes = vec![Change::default(); 1025];
    let refused = client.check_changes(v1::CheckChangesRequest { changes }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    node.stop().await;
}
