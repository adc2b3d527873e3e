//! The manager's findings about a tenant reach its pod as Kubernetes events. A flood becomes one event. Without the right
//! to write events, or without an API server, nothing else fails.

use std::time::Duration;

use serde_json::Value;
use vcuda_tests::api_server::ApiServer;
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::{Door, Fixture, GIB, MIB, Mounted, app, eventually, holding, skip, succeeded, text};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const NODE: &str = "node-7";

fn configuration(server: &ApiServer) -> String {
    format!(
        "[cluster]\nevents = true\nkubeconfig = \"{}\"\n[release]\ninterval = \"200ms\"\ngrace = \"1s\"\n",
        server.kubeconfig().display()
    )
}

/// Requests more than its limit in a program of the container.
fn is_denied(fixture: &Fixture, id: &str, limit: u64) {
    let mut command = fixture.vcuda(["run", "--sim", "--grant", id, "--"]);
    let quota = command.arg(app("quota", Door::Dlsym)).arg(limit.to_string());
    assert!(succeeded(&quota.output().unwrap()).contains("passed"));
}

/// Events of this reason on the pod.
fn on_pod(server: &ApiServer, name: &str, reason: &str) -> Vec<Value> {
    let events = server.events();
    let wanted = |event: &Value| event["regarding"]["name"] == name && event["reason"] == reason;
    events.into_iter().filter(wanted).collect()
}

/// Whether an event on the pod says that its annotations were refused, and why.
fn is_refused(server: &ApiServer, name: &str, why: &str) -> bool {
    let refused = on_pod(server, name, "VcudaAnnotationRefused");
    refused.iter().filter_map(|event| event["note"].as_str()).any(|note| note.contains(why))
}

#[test]
fn findings_about_a_container_become_events_of_its_pod() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let server = ApiServer::start(NODE);
    server.take_events();
    let node = fixture.node_named(NODE, &configuration(&server));
    let kubelet = &node.kubelet;
    let pods = ["a", "b"].map(|name| kubelet.admit(PodSpec::share(name, 16, 30)).unwrap());
    let ids = pods.each_ref().map(|pod| kubelet.started(pod).id());
    is_denied(&fixture, &ids[0], 4 * GIB);
    let denied = |name: &str| on_pod(&server, name, "VcudaMemoryDenied");
    eventually("the pod has the event", SOON, || denied("a").len() == 1);
    let event = &denied("a")[0];
    assert_eq!(event["regarding"]["uid"], pods[0].uid.as_str(), "{event}");
    assert_eq!(event["regarding"]["kind"], "Pod", "{event}");
    assert_eq!(event["type"], "Warning", "{event}");
    assert_eq!(event["reportingInstance"], NODE, "{event}");
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("container c: ") && note.contains("refusal(s) of memory"), "{note}");
    assert!(note.contains("annotation vcuda.io/memory") && note.contains("4 GiB"), "{note}");

    // One chunk holds no context: the container starts, and its owner gets a warning.
    let small = kubelet.admit(PodSpec::share("small", 1, 1)).unwrap();
    kubelet.started(&small);
    eventually("the pod is told", SOON, || on_pod(&server, "small", "VcudaSmallMemory").len() == 1);

    // An annotation that the running pod cannot follow.
    server.put("default", "b", &pods[1].uid, &[("vcuda.io/memory", "9Gi")]);
    eventually("the pod is told why", SOON, || is_refused(&server, "b", "annotations only lower"));
    // Another fault soon after is an event of its own.
    server.put("default", "b", &pods[1].uid, &[("vcuda.io/polcy", "burst")]);
    eventually("the pod is told of the next", SOON, || {
        is_refused(&server, "b", "there is none of this name")
    });
    assert_eq!(denied("a").len(), 1);
}

/// Five processes of one container are five events of the manager, but one on the pod.
#[test]
fn events_of_a_containers_processes_become_one_of_its_pod() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let server = ApiServer::start(NODE);
    server.take_events();
    let node = fixture.node_named(NODE, &configuration(&server));
    let kubelet = &node.kubelet;
    let pods = ["a", "b"].map(|name| kubelet.admit(PodSpec::share(name, 16, 30)).unwrap());
    let ids = pods.each_ref().map(|pod| kubelet.started(pod).id());
    let Some(room) = fixture.granted_container(&ids[0], Mounted::Directory) else {
        skip("plugin_events: this user may not mount here (not root)");
        return;
    };
    let hold = app("hold", Door::Dlsym);
    let naked: Vec<_> = (0..5).map(|_| holding(&mut room.unlimited(&hold), 100 * MIB)).collect();
    let told = || {
        let events = text(&fixture.vcuda(["events"]).output().unwrap());
        events.matches(&format!("VcudaNotAttached {}", ids[0])).count()
    };
    eventually("the manager has told of each", SOON, || told() == naked.len());
    // Events come in order: this one is behind those of the five.
    is_denied(&fixture, &ids[1], 4 * GIB);
    eventually("the other pod has its own", SOON, || on_pod(&server, "b", "VcudaMemoryDenied").len() == 1);
    let not_attached = on_pod(&server, "a", "VcudaNotAttached");
    // A second one would be the same event with a series.
    assert_eq!(not_attached.len(), 1, "{not_attached:?}");
    assert!(not_attached[0]["series"].is_null(), "{not_attached:?}");
}

#[test]
fn without_the_right_to_write_events_nothing_else_suffers() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut server = ApiServer::start(NODE);
    let node = fixture.node_named(NODE, &configuration(&server));
    let (kubelet, plugin) = (&node.kubelet, &node.plugin);
    let start = |name: &str| {
        let pod = kubelet.admit(PodSpec::share(name, 16, 10)).unwrap();
        server.put("default", name, &pod.uid, &[("vcuda.io/memory", "1Gi")]);
        kubelet.started(&pod)
    };
    let started = ["a", "b"].map(start);
    for one in &started {
        assert_eq!(one.limits()[0].1, GIB, "annotations are read as before");
    }
    for (number, one) in started.iter().enumerate() {
        is_denied(&fixture, &one.id(), GIB);
        let events = || text(&fixture.vcuda(["events"]).output().unwrap());
        eventually("the manager tells of it", SOON, || {
            events().contains(&format!("VcudaMemoryDenied {}", one.id()))
        });
        if number == 0 {
            eventually("it is tried", SOON, || server.events_tried() == 1);
        }
    }
    let told = || plugin.log().matches("events do not reach the pods").count();
    eventually("it is logged", SOON, || told() == 1);
    server.pause();
    let pod = kubelet.admit(PodSpec::share("c", 16, 10)).unwrap();
    kubelet.started(&pod);
    assert_eq!((told(), server.events_tried()), (1, 1), "{}", plugin.log());
}
