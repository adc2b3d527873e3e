//! Grants across restarts of the manager and of its caller, and after the deletion of a directory.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tonic::Code;
use vcuda_manager::ledger::RealDisk;
use vcuda_manager::serve::{self, ServeError};
use vcuda_manager::state::start::StartError;
use vcuda_manager_api::v1;
use vcuda_region::limits::Limits;
use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;

use super::harness::{GIB, Kept, Node, ask, eventually, release, settings, uuid};

#[tokio::test]
async fn a_tenant_that_is_used_is_not_released() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", GIB, 100)).await.unwrap().into_inner();
    let usage = Usage::open(Path::new(&grant.directory)).unwrap();
    usage.claim(&Identity::current().unwrap()).unwrap();
    let refused = client.release(release("a-1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    // Nor are they released because the caller no longer names them.
    let reconcile = v1::ReconcileRequest { grace_ms: 1, ..v1::ReconcileRequest::default() };
    for _ in 0..3 {
        let reconciled = client.reconcile(reconcile.clone()).await.unwrap().into_inner();
        assert_eq!(reconciled.missing_ids, ["a-1"]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let anyway = v1::ReleaseGrantRequest { even_if_used: true, ..release("a-1") };
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
        let answer = client.reconcile(look(living, grace_ms)).await.unwrap().into_inner();
        (answer.unknown_keys, answer.missing_ids, answer.released_ids)
    };
    let texts = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    assert_eq!(reconcile(&["dp-a", "dp-x"], 1).await, (texts(&["dp-x"]), texts(&["dp-b-2"]), vec![]));
    // Named in between, so the grace period begins anew.
    assert_eq!(reconcile(&["dp-a", "dp-b"], 1).await, (vec![], vec![], vec![]));
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(reconcile(&["dp-a"], 1).await, (vec![], texts(&["dp-b-2"]), vec![]));
    tokio::time::sleep(Duration::from_millis(2)).await;
    // The grace period is not over.
    assert_eq!(reconcile(&["dp-a"], 3_600_000).await, (vec![], texts(&["dp-b-2"]), vec![]));
    assert_eq!(reconcile(&["dp-a"], 1).await, (vec![], vec![], texts(&["dp-b-2"])));
    // Grants of other prefixes are not affected.
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    let keys: Vec<_> = listed.grants.iter().map(|grant| grant.key.as_str()).collect();
    assert_eq!(keys, ["dp-a", "other"]);
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
    let cordon = v1::CordonRequest { gpu_uuid: uuid(2).to_string(), cordoned: true };
    node.node().await.cordon(cordon).await.unwrap();
    let before = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    let tenants = node.settings.root.join("containers");
    node.stop().await;
    // Changes made while no manager ran: a directory is gone, and one of a released grant is left.
    fs::remove_dir_all(tenants.join("a-1")).unwrap();
    fs::rename(tenants.join("b-2"), tenants.join("z-1")).unwrap();
    fs::create_dir(tenants.join("of-no-grant")).unwrap();

    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let after = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(after, before);
    for grant in &after.grants {
        assert!(Limits::read(Path::new(&grant.directory)).is_ok());
    }
    assert!(!tenants.join("z-1").exists());
    let gpus = node.node().await.list_gpus(v1::ListGpusRequest::default()).await.unwrap().into_inner();
    assert_eq!(gpus.gpus.iter().map(|gpu| gpu.cordoned).collect::<Vec<_>>(), [false, true]);
    // The number of the released grant is not reused.
    let next = client.create(ask("c", GIB, 100)).await.unwrap().into_inner();
    assert_eq!(next.id, "c-4");
    node.stop().await;
}

#[tokio::test]
async fn another_holder_is_kept_and_stays_in_the_namespace() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let holder = |namespace: &str, pod: &str| {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        Some(v1::Holder { namespace, pod, ..v1::Holder::default() })
    };
    client.create(v1::CreateGrantRequest { holder: holder("n", "p"), ..ask("a", GIB, 100) }).await.unwrap();
    let set = |id: &str, holder| v1::SetHolderRequest { id: id.to_owned(), holder };
    let changed = client.set_holder(set("a-1", holder("n", "q"))).await.unwrap().into_inner();
    assert_eq!((changed.holder.clone(), changed.generation), (holder("n", "q"), 2));
    let again = client.set_holder(set("a-1", holder("n", "q"))).await.unwrap().into_inner();
    assert_eq!(again.generation, 2, "it has changed nothing");
    let other = client.set_holder(set("a-1", holder("m", "q"))).await.unwrap_err();
    assert!(other.code() == Code::FailedPrecondition && other.message().contains("which stays"), "{other}");
    assert_eq!(client.set_holder(set("b-2", None)).await.unwrap_err().code(), Code::NotFound);
    node.stop().await;

    let node = Node::start(scratch.path()).await;
    let listed = node.grants().await.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.grants, [changed]);
    node.stop().await;
}

#[tokio::test]
async fn a_directory_deleted_underneath_is_made_again_and_told() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    let grant = client.create(ask("a", GIB, 100)).await.unwrap().into_inner();
    let directory = Path::new(&grant.directory);
    // Tried again if the manager makes it again during the deletion.
    while let Err(error) = fs::remove_dir_all(directory) {
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    }
    eventually(|| Limits::read(directory).is_ok()).await;
    eventually(|| node.kept.has_told("VcudaDirectoryRestored")).await;
    // A link or a foreign file in its place is removed and not followed. A request repairs it too.
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
    assert!(client.release(release("a-1")).await.unwrap().into_inner().released);
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
    assert!(matches!(&refused, StartError::Running(..)), "{refused}");
    assert!(refused.to_string().contains("another manager"), "{refused}");
    let refused = Kept::start(same_state, Box::new(RealDisk)).await.err().unwrap();
    assert!(refused.to_string().contains("another manager"), "{refused}");
    assert!(matches!(serve::listen(&same.root, &same.api), Err(ServeError::Taken(_))));
    // The first manager continues to serve.
    node.grants().await.create(ask("a", GIB, 100)).await.unwrap();
    node.stop().await;

    // A leftover socket is replaced; a file that is no socket is not.
    let settings = settings(scratch.path());
    drop(serve::listen(&settings.root, &settings.api).unwrap());
    let node = Node::start(scratch.path()).await;
    assert_eq!(node.kept.grants.grant_table().len(), 1);
    let socket = node.socket();
    node.stop().await;
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "x").unwrap();
    assert!(matches!(serve::listen(&settings.root, &settings.api), Err(ServeError::Foreign(_))));
}
