//! Ledgers that are damaged, cut, of a later release, missing or too old are set aside and rebuilt from the directories.

use std::fs;
use std::path::{Path, PathBuf};

use vcuda_manager_api::v1;
use vcuda_region::limits::Limits;

use super::harness::{GIB, Node, amounts, ask, uuid};

/// The highest number given, of a grant that was released.
const GONE: u64 = 4;

/// Makes three grants. Returns them and the manager's state.
async fn three(scratch: &Path) -> (Vec<v1::Grant>, PathBuf) {
    let node = Node::start(scratch).await;
    let mut client = node.grants().await;
    for key in ["a", "b", "c"] {
        let mut request = ask(key, 2 * GIB, 200);
        request.gpu_count = 2;
        request.holder = Some(v1::Holder { pod: format!("pod-{key}"), ..v1::Holder::default() });
        client.create(request).await.unwrap();
    }
    let grants = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner().grants;
    let ledger = node.ledger();
    node.stop().await;
    (grants, ledger)
}

fn set_aside(ledger: &Path) -> Vec<PathBuf> {
    fs::read_dir(ledger.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("ledger.json.damaged-"))
        .collect()
}

/// Starts a manager on what `spoil` left. It must have lost no grant and reuse no number. Returns its grants.
async fn recovers(spoil: impl Fn(&Path), expect_aside: bool) -> (Vec<v1::Grant>, Vec<v1::Grant>) {
    let scratch = tempfile::tempdir().unwrap();
    let (before, ledger) = three(scratch.path()).await;
    spoil(&ledger);
    let spoilt = fs::read(&ledger).ok();
    let node = Node::start(scratch.path()).await;
    assert!(node.kept.has_told("VcudaLedgerRebuilt"));
    let aside = set_aside(&ledger);
    assert_eq!(aside.len(), usize::from(expect_aside));
    if let [aside] = aside.as_slice() {
        assert_eq!(fs::read(aside).ok(), spoilt);
    }
    let mut client = node.grants().await;
    let after = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner().grants;
    let next = client.create(ask("d", GIB, 100)).await.unwrap().into_inner();
    assert!(next.number > GONE, "{} was given before", next.number);
    let (events, _) = node.kept.events.listen(0);
    let rebuilt = events.iter().find(|event| event.report.reason == "VcudaLedgerRebuilt").unwrap();
    let says = format!("New grants are numbered from {} on", next.number);
    assert!(rebuilt.report.message.contains(&says), "{rebuilt:?}");
    node.stop().await;
    // The rebuilt ledger is on the disk.
    let node = Node::start(scratch.path()).await;
    assert!(!node.kept.has_told("VcudaLedgerRebuilt"));
    assert_eq!(node.kept.grants.grant_table().len(), after.len() + 1);
    node.stop().await;
    (before, after)
}

#[tokio::test]
async fn a_damaged_ledger_is_rebuilt_from_the_directories() {
    let flip = |ledger: &Path| {
        let mut bytes = fs::read(ledger).unwrap();
        if let Some(byte) = bytes.get_mut(100) {
            *byte ^= 1;
        }
        fs::write(ledger, bytes).unwrap();
    };
    let cut = |ledger: &Path| {
        let bytes = fs::read(ledger).unwrap();
        fs::write(ledger, bytes.get(..bytes.len() / 2).unwrap()).unwrap();
    };
    let empty = |ledger: &Path| fs::write(ledger, "").unwrap();
    let newer = |ledger: &Path| {
        let text = fs::read_to_string(ledger).unwrap();
        fs::write(ledger, text.replacen("vcuda-ledger 1 ", "vcuda-ledger 2 ", 1)).unwrap();
    };
    for spoil in [&flip as &dyn Fn(&Path), &cut, &empty, &newer] {
        let (before, after) = recovers(spoil, true).await;
        assert_eq!(after, before);
    }
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_rebuilt_too() {
    let (before, after) = recovers(|ledger| fs::remove_file(ledger).unwrap(), false).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn what_an_older_ledger_does_not_know_is_not_lost() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    let old = fs::read(node.ledger()).unwrap();
    let second = client.create(ask("b", GIB, 100)).await.unwrap().into_inner();
    let resize = v1::ResizeGrantRequest {
        request_id: "s".to_owned(),
        id: "a-1".to_owned(),
        amounts: Some(amounts(2 * GIB, 200)),
        ..v1::ResizeGrantRequest::default()
    };
    let resized = client.resize(resize).await.unwrap().into_inner();
    let ledger = node.ledger();
    node.stop().await;
    fs::write(&ledger, old).unwrap();
    let node = Node::start(scratch.path()).await;
    assert!(node.kept.has_told("VcudaLedgerRebuilt"));
    let grant_table = node.kept.grants.grant_table();
    assert_eq!(grant_table.by_id(&second.id).map(|grant| grant.number), Some(2));
    assert!(grant_table.last_number >= 2);
    let first = grant_table.by_id(&resized.id).unwrap();
    assert_eq!((first.amounts.memory_bytes, first.generation), (Some(2 * GIB), 2));
    node.stop().await;
}

/// If the record is damaged too, the limits still give the amounts.
#[tokio::test]
async fn limits_stand_in_for_a_spoilt_record() {
    let spoil = |ledger: &Path| {
        fs::write(ledger, "nonsense").unwrap();
        let root = ledger.parent().unwrap().parent().unwrap().join("run/containers");
        fs::write(root.join("b-2/grant"), "nonsense").unwrap();
    };
    let (before, after) = recovers(spoil, true).await;
    let (was, is) = (before.get(1).unwrap(), after.get(1).unwrap());
    assert_eq!((&is.id, &is.amounts, &is.gpu_uuids), (&was.id, &was.amounts, &was.gpu_uuids));
    assert_eq!(is.holder, Some(v1::Holder::default()));
    assert_eq!(after.first(), before.first());
    assert_eq!(is.gpu_uuids, [uuid(1).to_string(), uuid(2).to_string()]);
}

/// A resize that was interrupted between ledger and limits is finished at the start.
#[tokio::test]
async fn limits_follow_the_ledger() {
    let scratch = tempfile::tempdir().unwrap();
    let (grants, _) = three(scratch.path()).await;
    let [first, second, _] = grants.as_slice() else {
        unreachable!("there are three");
    };
    // The limits hold the amounts from before the change.
    let directory = Path::new(&first.directory);
    let mut writer = vcuda_region::limits::LimitsWriter::open(directory).unwrap();
    let (device, _) = writer.limits().devices().next().unwrap();
    let old = vcuda_quota::DeviceConfig::new(GIB, 100);
    writer.set_config(device, &old, vcuda_region::clock::now_ns()).unwrap();
    let node = Node::start(scratch.path()).await;
    let config =
        |grant: &v1::Grant| Limits::read(Path::new(&grant.directory)).unwrap().config(device).unwrap();
    assert_eq!(config(first), config(second));
    node.stop().await;
}
