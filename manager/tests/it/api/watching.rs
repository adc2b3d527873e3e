//! Lists, watches, events, status and the timing of calls, as the proto describes them.

use std::time::Duration;

use vcuda_manager::ledger::RealDisk;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::grant_change::Kind;

use super::harness::{GIB, Node, amounts, ask, by_id, next, release, settings};

/// Number of timed calls by method and status, from the metrics.
#[tokio::test]
async fn calls_are_timed() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    for key in ["a", "b"] {
        client.create(ask(key, GIB, 10)).await.unwrap();
    }
    client.create(ask("c", 1000 * GIB, 10)).await.unwrap_err();
    client.get(by_id("unknown-7")).await.unwrap_err();
    node.node().await.list_gpus(v1::ListGpusRequest::default()).await.unwrap();
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
        assert_eq!(counted, Some(calls.to_string().as_str()), "{method} {code}: {page}");
    }
    drop(watched);
    node.stop().await;
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_comes() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    let mut watch = client.watch(v1::WatchGrantsRequest {}).await.unwrap().into_inner();
    client.create(ask("b", GIB, 100)).await.unwrap();
    let resize = v1::ResizeGrantRequest {
        request_id: "s".to_owned(),
        id: "b-2".to_owned(),
        amounts: Some(amounts(2 * GIB, 100)),
        expected_generation: 0,
        ..v1::ResizeGrantRequest::default()
    };
    client.resize(resize).await.unwrap();
    client.release(release("a-1")).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        let change = next(&mut watch, "a change").await.unwrap().unwrap();
        told.push((change.kind(), change.grant.map(|grant| grant.id).unwrap_or_default()));
    }
    let expected = [
        (Kind::Present, "a-1"),
        (Kind::Synced, ""),
        (Kind::Created, "b-2"),
        (Kind::Resized, "b-2"),
        (Kind::Released, "a-1"),
    ];
    assert_eq!(told, expected.map(|(kind, id)| (kind, id.to_owned())));
    // The stream ends with the manager, and does not delay its end.
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
    for (request, expected) in [(after(0, ""), 2), (after(1, ""), 1), (after(0, "b"), 1), (after(2, ""), 0)] {
        let mut told = nodes.watch_events(request).await.unwrap().into_inner();
        let mut count = 0;
        while let Some(event) = next(&mut told, "an event, or the end").await.unwrap() {
            assert_eq!(event.reason, "VcudaGrantRefused");
            count += 1;
        }
        assert_eq!(count, expected);
    }
    node.stop().await;
}

/// A listener that gets an event about a grant finds it in the list at once, as the device plugin does.
#[tokio::test]
async fn a_grant_that_an_event_is_about_is_shown() {
    const GRANTS: usize = 16;
    let scratch = tempfile::tempdir().unwrap();
    let mut settings = settings(scratch.path());
    settings.rules.reserve_bytes_per_sharer = GIB / 2;
    let node = Node::with(settings, Box::new(RealDisk)).await;
    let (_, mut events) = node.kept.events.listen(0);
    let grants = node.kept.grants.clone();
    let hears = tokio::spawn(async move {
        let mut heard = Vec::new();
        while heard.len() < GRANTS {
            let report = events.recv().await.unwrap().report;
            if report.reason == "VcudaGrantCreated" {
                continue;
            }
            assert_eq!(report.reason, "VcudaSmallMemory");
            let id = report.tenant.unwrap();
            heard.push((grants.grant_table().by_id(&id).is_some(), id));
        }
        heard
    });
    // Concurrent requests mostly share one write: the first grant has its directory long before the last.
    let client = node.grants().await;
    let asked = (0..GRANTS).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move { client.create(ask(&format!("small-{number}"), GIB / 16, 10)).await })
    });
    for answer in asked.collect::<Vec<_>>() {
        answer.await.unwrap().unwrap();
    }
    let heard = tokio::time::timeout(Duration::from_secs(30), hears).await;
    for (is_shown, id) in heard.expect("an event for each grant").unwrap() {
        assert!(is_shown, "{id} was not shown when its event was told");
    }
    node.stop().await;
}
