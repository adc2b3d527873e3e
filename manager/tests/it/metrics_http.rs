//! The metrics listener with slow, numerous and misbehaving peers.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use vcuda_daemon::http;
use vcuda_daemon::pages::{CONTENT_TYPE, Daemon, pages};
use vcuda_manager::gpu::Inventory;
use vcuda_manager::metrics::{Metrics, Sources};
use vcuda_manager::observe::SnapshotCache;
use vcuda_region::suspension::SuspendState;

struct Served {
    address: SocketAddr,
    problems: Arc<Mutex<Vec<String>>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn served() -> Served {
    let sources = Sources {
        node: "n".to_owned(),
        inventory: watch::channel(Arc::new(Inventory::default())).1,
        tenants: Arc::<SnapshotCache>::default(),
        grants: Arc::new(Vec::new),
        cordoned: Arc::new(std::collections::BTreeSet::new),
        has_problem: Arc::new(|| false),
        states: Arc::new(|_| SuspendState::Running),
    };
    let metrics = Metrics::new(sources, Arc::default());
    let problems = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&problems);
    let daemon = Daemon { name: "vcuda-manager", version: "1.2.3" };
    let pages = pages(daemon, Arc::new(move || metrics.scrape()), Arc::new(move || told.lock().clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(http::serve(listener, pages, async {
        let _ = stopped.await;
    }));
    Served { address, problems, stop, task }
}

async fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // A refused peer may be reset before it has read everything.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn a_scraper_without_openmetrics_gets_the_older_text_format() {
    let served = served().await;
    let request = "GET /metrics HTTP/1.1\r\nHost: n\r\nAccept: text/plain\r\nConnection: close\r\n\r\n";
    let metrics = answer(served.address, request).await;
    assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
    assert!(
        metrics.contains("# TYPE vcuda_build_info gauge") && metrics.contains("vcuda_build_info{node=\"n\""),
        "{metrics}"
    );
    assert!(!metrics.contains("# EOF") && !metrics.contains("# UNIT"), "{metrics}");
}

#[tokio::test]
async fn metrics_and_health_are_served_and_nothing_else() {
    let served = served().await;
    let metrics = answer(served.address, &get("/metrics")).await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains(CONTENT_TYPE) && metrics.contains("vcuda_build_info{node=\"n\""), "{metrics}");
    assert!(metrics.contains("# EOF\n"));
    let first = answer(served.address, &get("/")).await;
    assert!(first.contains("text/html") && first.contains("<h1>vcuda-manager 1.2.3</h1>"), "{first}");
    for page in ["metrics", "healthz", "readyz"] {
        assert!(first.contains(&format!("href=\"{page}\"")), "{first}");
    }
    let health = answer(served.address, &get("/healthz")).await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    let ready = answer(served.address, &get("/readyz")).await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("ok\n"), "{ready}");
    *served.problems.lock() = vec!["GPUs: none".to_owned(), "ledger: full".to_owned()];
    let ready = answer(served.address, &get("/readyz")).await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("GPUs: none\nledger: full\n"), "{ready}");
    assert!(answer(served.address, &get("/else")).await.starts_with("HTTP/1.1 404"));
    let posted = answer(served.address, &get("/metrics").replace("GET", "POST")).await;
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
}

#[tokio::test]
async fn nonsense_and_large_headers_are_refused() {
    let served = served().await;
    let nonsense = answer(served.address, "\u{1}\u{2} nonsense\r\n\r\n").await;
    assert!(nonsense.starts_with("HTTP/1.1 400"), "{nonsense}");
    let large = format!("GET /metrics HTTP/1.1\r\nHost: n\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let large = answer(served.address, &large).await;
    assert!(!large.contains(" 200 "), "{large}");
    let fields: String = (0..100).map(|number| format!("X{number}: x\r\n")).collect();
    let many = answer(served.address, &format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
    assert!(answer(served.address, &get("/healthz")).await.ends_with("ok\n"));
}

/// With more peers that never finish their request than connections allowed, the next one is still served.
#[tokio::test]
async fn slow_peers_keep_no_other_away() {
    let served = served().await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").await;
        slow.push(stream);
    }
    assert!(answer(served.address, &get("/metrics")).await.contains("# EOF\n"));
    // The oldest connection was closed to make room.
    let mut byte = [0];
    assert!(!matches!(slow[0].read(&mut byte).await, Ok(1)));
    // A peer that does not read its answers is disconnected when the listener ends.
    let mut deaf = TcpStream::connect(served.address).await.unwrap();
    for _ in 0..100 {
        deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
    }
    assert!(answer(served.address, &get("/healthz")).await.ends_with("ok\n"));
    served.stop.send(()).unwrap();
    served.task.await.unwrap();
}
