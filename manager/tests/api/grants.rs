//! Create, resize, release, list, watch, reconcile: what the proto says of each.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Request};
use vcuda_manager::gpu::{Health, Inventory};
use vcuda_manager::ledger::RealDisk;
use vcuda_manager::observe::{Container, Device, Snapshot};
use vcuda_manager::serve::{self, ServeError};
use vcuda_manager::state::start::StartError;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::grant_change::Kind;
use vcuda_quota::DeviceConfig;
use vcuda_region::limits::Limits;
use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;

use crate::harness::{GIB, Kept, Node, amounts, ask, eventually, gpu, inventory, next, settings, uuid};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn release(id: &str) -> v1::ReleaseGrantRequest {
    v1::ReleaseGrantRequest {
        id: id.to_owned(),
        even_if_used: false,
    }
}

fn by_id(id: &str) -> v1::GetGrantRequest {
    v1::GetGrantRequest {
        grant: Some(v1::get_grant_request::Grant::Id(id.to_owned())),
    }
}

/// Time that was not asked for is what others leave (docs/policies.md): it is held for nobody.
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
    // A promise of everything fits beside them, and beside it none of anything.
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

/// By method and status, as the metrics tell it.
#[tokio::test]
async fn calls_are_timed() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    for key in ["a", "b"] {
        client.create(ask(key, GIB, 10)).await.unwrap();
    }
    client.create(ask("c", 1000 * GIB, 10)).await.unwrap_err();
    client.get(by_id("nobody-7")).await.unwrap_err();
    node.node().await.list_gpus(v1::ListGpusRequest {}).await.unwrap();
    let watched = client.watch(v1::WatchGrantsRequest {}).await.unwrap();
    let page = node.scrape();
    for (method, code, calls) in [
        ("Grants/Create", "OK", 2),
        ("Grants/Create", "RESOURCE_EXHAUSTED", 1),
        ("Grants/Get", "NOT_FOUND", 1),
        ("Node/ListGpus", "OK", 1),
        ("Grants/Watch", "OK", 1),
    ] {
        let counted = page.lines().find(|line| {
            let is_count = line.starts_with("vcuda_api_duration_seconds_count{");
            is_count
                && line.contains(&format!("method=\"{method}\""))
                && line.contains(&format!("code=\"{code}\""))
        });
        let counted = counted.and_then(|line| line.rsplit(' ').next());
        assert_eq!(
            counted,
            Some(calls.to_string().as_str()),
            "{method} {code}: {page}"
        );
    }
    drop(watched);
    node.stop().await;
}

#[tokio::test]
async fn a_grant_from_its_request_to_its_end() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    assert_eq!(mode(&node.socket()), 0o660);
    let mut client = node.grants().await;
    let mut request = ask("web", 4 * GIB, 300);
    request.holder = Some(v1::Holder {
        pod: "web-0".to_owned(),
        ..v1::Holder::default()
    });
    let grant = client.create(request).await.unwrap().into_inner();
    assert_eq!(
        (grant.id.as_str(), grant.number, grant.generation),
        ("web-1", 1, 1)
    );
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
    let gpus = node
        .node()
        .await
        .list_gpus(v1::ListGpusRequest {})
        .await
        .unwrap()
        .into_inner();
    let gpu = &gpus.gpus[0];
    assert_eq!(
        (gpu.memory_granted_bytes, gpu.cores_granted_permille, gpu.sharers),
        (4 * GIB, 300, 1)
    );

    assert!(
        client
            .release(release("web-1"))
            .await
            .unwrap()
            .into_inner()
            .released
    );
    assert!(!directory.exists());
    // Again: it is released already.
    assert!(
        !client
            .release(release("web-1"))
            .await
            .unwrap()
            .into_inner()
            .released
    );
    assert_eq!(
        client.get(by_id("web-1")).await.unwrap_err().code(),
        Code::NotFound
    );
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
    assert_eq!(
        client.create(ask("a", GIB, 100)).await.unwrap().into_inner(),
        grant
    );
    // Another request for the same container.
    let mut other = ask("a", GIB, 100);
    other.request_id = "other".to_owned();
    assert_eq!(client.create(other.clone()).await.unwrap().into_inner(), grant);
    // Neither the request nor the key is good for something else.
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
    // Many at once, of which each is one grant.
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
    };
    let changed = client
        .resize(resize("s1", 8 * GIB, 1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(changed.generation, 2);
    assert_eq!(fs::metadata(&limits).unwrap().ino(), inode);
    let read = Limits::read(Path::new(&grant.directory)).unwrap();
    let (device, _) = read.devices().next().unwrap();
    assert_eq!(read.config(device).unwrap(), DeviceConfig::new(8 * GIB, 400));
    // Repeated, though the generation is another by now.
    assert_eq!(
        client
            .resize(resize("s1", 8 * GIB, 1))
            .await
            .unwrap()
            .into_inner(),
        changed
    );
    let codes = [
        (resize("s1", GIB, 0), Code::AlreadyExists),
        (resize("s2", GIB, 1), Code::Aborted),
        (resize("s3", 8 * GIB + 1, 0), Code::ResourceExhausted),
        (
            v1::ResizeGrantRequest {
                id: "none-9".to_owned(),
                ..resize("s4", GIB, 0)
            },
            Code::NotFound,
        ),
    ];
    for (request, code) in codes {
        assert_eq!(client.resize(request).await.unwrap_err().code(), code);
    }
    // The request that made it is still known.
    assert_eq!(
        client.create(ask("a", 4 * GIB, 300)).await.unwrap().into_inner(),
        changed
    );
    node.stop().await;
}

#[tokio::test]
async fn what_does_not_fit_or_may_not_be_used_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let mut nodes = node.node().await;
    client.create(ask("a", 20 * GIB, 300)).await.unwrap();
    let mut refused = async |change: &dyn Fn(&mut v1::CreateGrantRequest)| {
        let mut request = ask("x", 8 * GIB, 300);
        change(&mut request);
        client.create(request).await.unwrap_err()
    };
    let text = refused(&|request| request.gpu_count = 2).await;
    assert_eq!(text.code(), Code::ResourceExhausted);
    assert!(text.message().contains("has 4 GiB and 70 % free"), "{text}");
    let text = refused(&|request| {
        request.gpu_count = 0;
        request.gpu_uuids = vec![uuid(9).to_string()];
    })
    .await;
    assert_eq!(text.code(), Code::NotFound);

    let cordon = |cordoned| v1::CordonRequest {
        gpu_uuid: uuid(2).to_string(),
        cordoned,
    };
    nodes.cordon(cordon(true)).await.unwrap();
    let text = refused(&|request| {
        request.gpu_count = 0;
        request.gpu_uuids = vec![uuid(2).to_string()];
    })
    .await;
    assert_eq!(text.code(), Code::FailedPrecondition);
    assert!(text.message().contains("cordoned"), "{text}");
    nodes.cordon(cordon(false)).await.unwrap();

    let mut sick = gpu(2);
    sick.health = Health::Unhealthy("XID 79".to_owned());
    node.kept.inventory.send_replace(Arc::new(Inventory {
        gpus: vec![gpu(1), sick],
        ..Inventory::default()
    }));
    let text = refused(&|_| {}).await;
    assert!(text.message().contains("XID 79"), "{text}");

    node.kept.inventory.send_replace(Arc::new(Inventory {
        problem: Some("NVML does not answer".to_owned()),
        ..Inventory::default()
    }));
    let text = refused(&|_| {}).await;
    assert_eq!(text.code(), Code::Unavailable);
    assert!(text.message().contains("NVML does not answer"), "{text}");
    let status = nodes
        .get_status(v1::GetStatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.problems, ["GPUs: NVML does not answer"]);
    assert!(node.kept.has_told("VcudaNoCard"));
    // What is granted stays, whatever becomes of the GPUs.
    assert_eq!(node.kept.grants.grant_table().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn those_of_vcuda_run_count_and_are_not_owned() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    node.kept.inventory.send_replace(Arc::new(inventory(1)));
    let device = Device::unused(uuid(1), DeviceConfig::new(20 * GIB, 800));
    let run = Container {
        id: "run-a".to_owned(),
        devices: vec![device],
        ..Container::default()
    };
    node.kept.snapshot.send_replace(Arc::new(Snapshot {
        number: 1,
        taken_ns: 1,
        containers: vec![run],
    }));
    let mut client = node.grants().await;
    let refused = client.create(ask("a", 5 * GIB, 100)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("4 GiB and 20 % free"), "{refused}");
    client.create(ask("b", 4 * GIB, 200)).await.unwrap();
    let mut nodes = node.node().await;
    let listed = nodes
        .list_containers(v1::ListContainersRequest::default())
        .await
        .unwrap()
        .into_inner();
    let owned: Vec<_> = listed
        .containers
        .iter()
        .map(|one| (one.id.as_str(), one.grant.is_some(), one.devices.len()))
        .collect();
    assert_eq!(owned, [("b-1", true, 1), ("run-a", false, 1)]);
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_is_used_is_not_released() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", GIB, 100)).await.unwrap().into_inner();
    let usage = Usage::open(Path::new(&grant.directory)).unwrap();
    usage.claim(&Identity::current().unwrap()).unwrap();
    let refused = client.release(release("a-1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    // Nor by what the caller no longer has.
    let reconcile = v1::ReconcileRequest {
        grace_ms: 1,
        ..v1::ReconcileRequest::default()
    };
    for _ in 0..3 {
        let reconciled = client.reconcile(reconcile.clone()).await.unwrap().into_inner();
        assert_eq!(reconciled.missing_ids, ["a-1"]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let anyway = v1::ReleaseGrantRequest {
        even_if_used: true,
        ..release("a-1")
    };
    assert!(client.release(anyway).await.unwrap().into_inner().released);
    assert!(!Path::new(&grant.directory).exists());
    node.stop().await;
}

#[tokio::test]
async fn what_the_caller_no_longer_has_is_released_at_the_second_look() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    for key in ["dp-a", "dp-b", "other"] {
        client.create(ask(key, GIB, 100)).await.unwrap();
    }
    let look = |living: &[&str], grace_ms| v1::ReconcileRequest {
        key_prefix: "dp-".to_owned(),
        living_keys: living.iter().map(|key| (*key).to_owned()).collect(),
        grace_ms,
    };
    let mut reconcile = async |living: &[&str], grace_ms| {
        let answer = client
            .reconcile(look(living, grace_ms))
            .await
            .unwrap()
            .into_inner();
        (answer.unknown_keys, answer.missing_ids, answer.released_ids)
    };
    let texts = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    assert_eq!(
        reconcile(&["dp-a", "dp-x"], 1).await,
        (texts(&["dp-x"]), texts(&["dp-b-2"]), vec![])
    );
    // Named in between: it counts from anew.
    assert_eq!(reconcile(&["dp-a", "dp-b"], 1).await, (vec![], vec![], vec![]));
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(
        reconcile(&["dp-a"], 1).await,
        (vec![], texts(&["dp-b-2"]), vec![])
    );
    tokio::time::sleep(Duration::from_millis(2)).await;
    // Too soon.
    assert_eq!(
        reconcile(&["dp-a"], 3_600_000).await,
        (vec![], texts(&["dp-b-2"]), vec![])
    );
    assert_eq!(
        reconcile(&["dp-a"], 1).await,
        (vec![], vec![], texts(&["dp-b-2"]))
    );
    // Those of others are not asked for.
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    let keys: Vec<_> = listed.grants.iter().map(|grant| grant.key.as_str()).collect();
    assert_eq!(keys, ["dp-a", "other"]);
    node.stop().await;
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_comes() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    let mut watch = client
        .watch(v1::WatchGrantsRequest {})
        .await
        .unwrap()
        .into_inner();
    client.create(ask("b", GIB, 100)).await.unwrap();
    let resize = v1::ResizeGrantRequest {
        request_id: "s".to_owned(),
        id: "b-2".to_owned(),
        amounts: Some(amounts(2 * GIB, 100)),
        expected_generation: 0,
    };
    client.resize(resize).await.unwrap();
    client.release(release("a-1")).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        let change = next(&mut watch, "a change").await.unwrap().unwrap();
        told.push((
            change.kind(),
            change.grant.map(|grant| grant.id).unwrap_or_default(),
        ));
    }
    let expected = [
        (Kind::Present, "a-1"),
        (Kind::Synced, ""),
        (Kind::Created, "b-2"),
        (Kind::Resized, "b-2"),
        (Kind::Released, "a-1"),
    ];
    assert_eq!(told, expected.map(|(kind, id)| (kind, id.to_owned())));
    // It ends with the manager, and does not keep it from ending.
    node.stop().await;
    let end = next(&mut watch, "its end, with the manager").await;
    assert!(end.ok().flatten().is_none());
}

#[tokio::test]
async fn events_are_told_from_a_number_on() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let (mut client, mut nodes) = (node.grants().await, node.node().await);
    for key in ["a", "b"] {
        client.create(ask(key, 100 * GIB, 100)).await.unwrap_err();
    }
    let after = |after_number, container_id: &str| v1::WatchEventsRequest {
        after_number,
        no_follow: true,
        container_id: container_id.to_owned(),
    };
    for (request, expected) in [
        (after(0, ""), 2),
        (after(1, ""), 1),
        (after(0, "b"), 1),
        (after(2, ""), 0),
    ] {
        let mut told = nodes.watch_events(request).await.unwrap().into_inner();
        let mut count = 0;
        while let Some(event) = next(&mut told, "an event, or the end").await.unwrap() {
            assert_eq!(event.reason, "VcudaNoCard");
            count += 1;
        }
        assert_eq!(count, expected);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_restart_forgets_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    for key in ["a", "b", "c"] {
        client.create(ask(key, GIB, 100)).await.unwrap();
    }
    client.release(release("c-3")).await.unwrap();
    let cordon = v1::CordonRequest {
        gpu_uuid: uuid(2).to_string(),
        cordoned: true,
    };
    node.node().await.cordon(cordon).await.unwrap();
    let before = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    let containers = node.settings.root.join("containers");
    node.stop().await;
    // What was not there while the manager was not: a directory is gone, one is left of what was released.
    fs::remove_dir_all(containers.join("a-1")).unwrap();
    fs::rename(containers.join("b-2"), containers.join("z-1")).unwrap();
    fs::create_dir(containers.join("of-nobody")).unwrap();

    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let after = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(after, before);
    for grant in &after.grants {
        assert!(Limits::read(Path::new(&grant.directory)).is_ok());
    }
    assert!(!containers.join("z-1").exists());
    let gpus = node
        .node()
        .await
        .list_gpus(v1::ListGpusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        gpus.gpus.iter().map(|gpu| gpu.cordoned).collect::<Vec<_>>(),
        [false, true]
    );
    // The number of the one that was released is not given again.
    let next = client.create(ask("c", GIB, 100)).await.unwrap().into_inner();
    assert_eq!(next.id, "c-4");
    node.stop().await;
}

#[tokio::test]
async fn a_directory_deleted_underneath_is_made_again_and_told() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", GIB, 100)).await.unwrap().into_inner();
    let directory = Path::new(&grant.directory);
    // Again, if it is made again while it is deleted.
    while let Err(error) = fs::remove_dir_all(directory) {
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    }
    eventually(|| Limits::read(directory).is_ok()).await;
    eventually(|| node.kept.has_told("VcudaDirectoryRestored")).await;
    // A link, or a foreign file, in its place is taken away and not followed; and the request itself mends it too.
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    fs::rename(directory, scratch.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&outside, directory).unwrap();
    client.create(ask("a", GIB, 100)).await.unwrap();
    assert!(Limits::read(directory).is_ok());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    fs::remove_file(directory.join("limits")).unwrap();
    fs::write(directory.join("limits"), "nonsense").unwrap();
    fs::write(directory.join("foreign"), "x").unwrap();
    client.create(ask("a", GIB, 100)).await.unwrap();
    assert!(Limits::read(directory).is_ok());
    assert!(
        client
            .release(release("a-1"))
            .await
            .unwrap()
            .into_inner()
            .released
    );
    assert!(!directory.exists());
    node.stop().await;
}

#[tokio::test]
async fn a_second_manager_refuses_and_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let same = node.settings.clone();
    let mut same_state = same.clone();
    same_state.root = scratch.path().join("run2");
    let refused = Kept::start(same.clone(), Box::new(RealDisk)).await.err().unwrap();
    assert!(matches!(&refused, StartError::Running(_)), "{refused}");
    assert!(refused.to_string().contains("another manager"), "{refused}");
    let refused = Kept::start(same_state, Box::new(RealDisk)).await.err().unwrap();
    assert!(refused.to_string().contains("another manager"), "{refused}");
    assert!(matches!(
        serve::listen(&same.root, &same.api),
        Err(ServeError::Taken(_))
    ));
    // The first one serves as before.
    node.grants().await.create(ask("a", GIB, 100)).await.unwrap();
    node.stop().await;

    // A socket that is left behind is replaced; what is none is not.
    let settings = settings(scratch.path());
    drop(serve::listen(&settings.root, &settings.api).unwrap());
    let node = Node::start(scratch.path()).await;
    assert_eq!(node.kept.grants.grant_table().len(), 1);
    let socket = node.socket();
    node.stop().await;
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "x").unwrap();
    assert!(matches!(
        serve::listen(&settings.root, &settings.api),
        Err(ServeError::Foreign(_))
    ));
}

#[tokio::test]
async fn what_does_not_work_is_in_the_status() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    node.problems
        .set("audit", Some("it cannot see processes".to_owned()));
    let status = node
        .node()
        .await
        .get_status(Request::new(v1::GetStatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.problems, ["audit: it cannot see processes"]);
    assert_eq!(
        (status.version.as_str(), status.node_name.as_str()),
        ("1.2.3", "node-a")
    );
    node.problems.set("audit", None);
    assert!(node.problems.lines().is_empty());
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
        request.holder = Some(v1::Holder {
            namespace: "web".to_owned(),
            ..v1::Holder::default()
        });
        let amounts = request.amounts.as_mut().unwrap();
        amounts.priority = priority.into();
        request
    };
    let refusal = client.create(of_web(v1::Priority::High)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert!(refusal.message().contains("at most normal"), "{refusal}");
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.grants, []);

    let grant = client
        .create(of_web(v1::Priority::Normal))
        .await
        .unwrap()
        .into_inner();
    let resize = v1::ResizeGrantRequest {
        request_id: "higher".to_owned(),
        id: grant.id.clone(),
        amounts: of_web(v1::Priority::High).amounts,
        expected_generation: 0,
    };
    let refusal = client.resize(resize).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    let kept = client.get(by_id(&grant.id)).await.unwrap().into_inner();
    assert_eq!(kept, grant);
}
