//! Broken, slow, numerous and malicious peers: each is disconnected, and other clients notice nothing.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use vcuda_manager::events::{Report, Severity};
use vcuda_manager::ledger::{Disk, RealDisk};
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::problem::Part;

use super::harness::{GIB, Node, ask, eventually, next, settings};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// A manager with few places that closes silent connections quickly.
async fn impatient(scratch: &std::path::Path) -> Node {
    let mut settings = settings(scratch);
    settings.api.peer_timeout = Duration::from_millis(200);
    settings.api.deadline = Duration::from_secs(1);
    settings.api.connections = 60;
    settings.api.connections_per_user = 40;
    Node::with(settings, Box::new(RealDisk)).await
}

/// Checks that another client is served.
async fn serves(node: &Node) {
    let listed = node.grants().await.list(v1::ListGrantsRequest {}).await;
    assert!(listed.is_ok(), "{listed:?}");
}

/// Reads until the server has closed the connection.
async fn is_closed(stream: &mut UnixStream) {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

#[tokio::test]
async fn bytes_that_are_no_request_end_their_connection_only() {
    let scratch = tempfile::tempdir().unwrap();
    let node = impatient(scratch.path()).await;
    let noise: Vec<u8> =
        (0..100_000_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let framed = [PREFACE, SETTINGS, &noise].concat();
    let huge_frame = [PREFACE, SETTINGS, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat();
    let half_frame = [PREFACE, SETTINGS, &[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82]].concat();
    let all: [&[u8]; 8] = [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &PREFACE[..11],
        &noise,
        &framed,
        &huge_frame,
        &half_frame,
    ];
    let mut open = Vec::new();
    for bytes in all {
        let mut stream = UnixStream::connect(node.socket()).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        serves(&node).await;
        open.push(stream);
    }
    for mut stream in open {
        is_closed(&mut stream).await;
    }
    serves(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn half_closed_and_deaf_peers_are_dropped() {
    let scratch = tempfile::tempdir().unwrap();
    let node = impatient(scratch.path()).await;
    let mut half = UnixStream::connect(node.socket()).await.unwrap();
    half.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    half.shutdown().await.unwrap();
    // A peer that never reads, and so never answers a ping.
    let mut deaf = UnixStream::connect(node.socket()).await.unwrap();
    deaf.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    serves(&node).await;
    is_closed(&mut half).await;
    while deaf.write_all(PING).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    serves(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn connections_are_bounded_and_the_others_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let node = impatient(scratch.path()).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3000 {
        let Ok(stream) = UnixStream::connect(node.socket()).await else {
            continue;
        };
        held.push(stream);
        if held.len() > 200 {
            held.remove(0);
        }
    }
    eventually(|| node.kept.has_told("VcudaApiCrowded")).await;
    // An earlier client is still served.
    client.list(v1::ListGrantsRequest {}).await.unwrap();
    drop(held);
    // A later client is served once the others are gone.
    while vcuda_manager_api::connect(&node.socket(), Duration::from_secs(5)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(client);
    serves(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_its_events_loses_its_own_only() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let mut nodes = node.node().await;
    let watch = |client: &mut v1::node_client::NodeClient<_>| {
        let mut client = client.clone();
        async move {
            let request = v1::WatchEventsRequest::default();
            client.watch_events(request).await.unwrap().into_inner()
        }
    };
    let mut lazy = watch(&mut nodes).await;
    let mut keen = watch(&mut nodes).await;
    for round in 0..40 {
        for place in 0..500 {
            node.kept.events.report(Report {
                severity: Severity::Info,
                reason: "VcudaTest".into(),
                message: "x".repeat(200),
                tenant: Some(format!("{round}-{place}")),
                gpu: None,
                host_pid: None,
            });
        }
        // The client that reads misses nothing.
        for _ in 0..500 {
            next(&mut keen, "an event for who reads").await.unwrap().unwrap();
        }
    }
    serves(&node).await;
    let mut read = 0;
    let end = loop {
        match next(&mut lazy, "the end of who does not read").await {
            Ok(Some(_)) => read += 1,
            Ok(None) => break None,
            Err(status) => break Some(status.code()),
        }
    };
    assert_eq!(end, Some(Code::Aborted));
    assert!(read < 20_000, "{read}");
    node.stop().await;
}

#[tokio::test]
async fn requests_too_large_of_another_kind_or_without_end_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let node = impatient(scratch.path()).await;
    let mut client = node.grants().await;
    let mut large = ask("a", GIB, 100);
    large.exclude_gpu_uuids = vec!["x".repeat(2 << 20)];
    let refused = client.create(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");

    let path = PathAndQuery::from_static("/vcuda.v1.Grants/Create");
    let mut raw = Grpc::new(node.channel().await);
    raw.ready().await.unwrap();
    let other = v1::NodeStatus { started_unix_ms: 17, ..v1::NodeStatus::default() };
    let codec = ProstCodec::<v1::NodeStatus, v1::Grant>::default();
    let refused = raw.unary(Request::new(other), path.clone(), codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal, "{refused}");

    // A request that begins and never ends.
    raw.ready().await.unwrap();
    let codec = ProstCodec::<v1::CreateGrantRequest, v1::Grant>::default();
    let endless = tokio_stream::pending::<v1::CreateGrantRequest>();
    let refused = raw.client_streaming(Request::new(endless), path, codec).await.unwrap_err();
    assert!(matches!(refused.code(), Code::Cancelled | Code::DeadlineExceeded), "{refused}");

    raw.ready().await.unwrap();
    let codec = ProstCodec::<v1::CreateGrantRequest, v1::Grant>::default();
    let unknown = PathAndQuery::from_static("/vcuda.v1.Grants/Destroy");
    let refused = raw.unary(Request::new(ask("b", GIB, 1)), unknown, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    client.create(ask("a", GIB, 100)).await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(scratch.path()).await;
    let client = node.grants().await;
    let asking: Vec<_> = (0..2000)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.list(v1::ListGrantsRequest {}).await.is_ok() })
        })
        .collect();
    serves(&node).await;
    for asked in asking {
        assert!(asked.await.unwrap());
    }
    node.stop().await;
}

/// A disk that is slow, or fails, while told to.
#[derive(Debug, Clone, Default)]
struct Troubled {
    is_slow: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
}

impl Disk for Troubled {
    fn sync(&self, file: &File) -> io::Result<()> {
        while self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        RealDisk.sync(file)
    }
}

#[tokio::test]
async fn a_slow_disk_delays_changes_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Troubled::default();
    let node = Node::with(settings(scratch.path()), Box::new(disk.clone())).await;
    let mut client = node.grants().await;
    client.create(ask("a", GIB, 100)).await.unwrap();
    disk.is_slow.store(true, Ordering::Relaxed);
    let mut request = Request::new(ask("b", GIB, 100));
    request.set_timeout(Duration::from_millis(200));
    let refused = client.create(request).await.unwrap_err();
    assert!(matches!(refused.code(), Code::DeadlineExceeded | Code::Cancelled), "{refused}");
    // Reads work meanwhile.
    let listed = client.list(v1::ListGrantsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.grants.len(), 1);
    disk.is_slow.store(false, Ordering::Relaxed);
    // The begun change is finished, and repeating the request returns it.
    let again = client.create(ask("b", GIB, 100)).await.unwrap().into_inner();
    assert_eq!(again.id, "b-2");
    node.stop().await;
}

#[tokio::test]
async fn health_follows_the_ledger() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Troubled::default();
    let node = Node::with(settings(scratch.path()), Box::new(disk.clone())).await;
    let mut health = HealthClient::new(node.channel().await);
    let mut status = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.unwrap().into_inner().status()
    };
    assert_eq!(status("vcuda.v1.Grants").await, ServingStatus::Serving);
    disk.fails.store(true, Ordering::Relaxed);
    let refused = node.grants().await.create(ask("a", GIB, 100)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    while status("vcuda.v1.Grants").await != ServingStatus::NotServing {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(status("vcuda.v1.Node").await, ServingStatus::Serving);
    let problems = node.node().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner().problems;
    assert!(problems.iter().any(|problem| problem.part() == Part::Ledger), "{problems:?}");
    // The manager retries by itself.
    disk.fails.store(false, Ordering::Relaxed);
    while status("vcuda.v1.Grants").await != ServingStatus::Serving {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The event comes a moment after the state.
    while !node.kept.has_told("VcudaLedgerRecovered") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.stop().await;
}
