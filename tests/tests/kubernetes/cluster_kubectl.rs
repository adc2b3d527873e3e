//! `kubectl vcuda` as a user has it: the built program, an API server that shows what the user may see.

use std::process::{Command, Output};

use serde_json::{Value, json};
use vcuda_tests::shown_objects::ShownObjects;
use vcuda_tests::{release_dir, succeeded};

const PODS: &str = "/api/v1/namespaces/vcuda-system/pods";
const METRICS: &str = "\
vcuda_gpu_info{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",name=\"NVIDIA L40S\"} 1
vcuda_gpu_memory_total_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\"} 85899345920
vcuda_gpu_memory_granted_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\"} 8589934592
vcuda_gpu_cores_granted_ratio{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\"} 0.425
vcuda_gpu_healthy{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\"} 1
vcuda_gpu_cordoned{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\"} 1
vcuda_container_memory_limit_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"team\",pod=\"web\",container=\"c\"} 4294967296
vcuda_container_memory_used_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"team\",pod=\"web\",container=\"c\"} 1073741824
vcuda_container_memory_suspended_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"team\",pod=\"web\",container=\"c\"} 0
vcuda_container_state{node=\"n1\",namespace=\"team\",pod=\"web\",container=\"c\",state=\"running\"} 1
vcuda_container_cores_limit_ratio{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"team\",pod=\"web\",container=\"c\"} 0.3
vcuda_container_cores_used_ratio{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"team\",pod=\"web\",container=\"c\"} 0.294
vcuda_container_memory_limit_bytes{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"other\",pod=\"batch\",container=\"c\"} 4294967296
vcuda_container_cores_used_ratio{node=\"n1\",gpu_uuid=\"GPU-aaaabbbb-1\",namespace=\"other\",pod=\"batch\",container=\"c\"} 0.9
# EOF
";

fn kubectl(api: &ShownObjects, arguments: &[&str]) -> Output {
    Command::new(release_dir().join("kubectl-vcuda"))
        .args(arguments)
        .env_clear()
        .env("KUBECONFIG", api.kubeconfig())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A cluster of two nodes, of which one answers.
fn cluster() -> ShownObjects {
    let api = ShownObjects::start();
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": []}});
    api.put_list(PODS, "v1", "Pod", &json!([pod("vcuda-1", "n1"), pod("vcuda-2", "n2")]));
    api.put(&format!("{PODS}/vcuda-1:9436/proxy/metrics"), METRICS);
    api
}

#[test]
fn gpus_and_shares_of_all_nodes_are_shown() {
    let api = cluster();
    let gpus = succeeded(&kubectl(&api, &["gpus"]));
    let lines: Vec<&str> = gpus.lines().collect();
    assert!(lines[0].starts_with("NODE  GPU"), "{gpus}");
    let cells: Vec<&str> = lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["n1", "GPU-aaaabbbb", "80 GiB", "72 GiB", "57.5 %", "2", "cordoned"]);
    assert!(lines[2].starts_with("node n2: its manager does not answer"), "{gpus}");

    let json: Value = serde_json::from_str(&succeeded(&kubectl(&api, &["gpus", "--json"]))).unwrap();
    assert_eq!(json["gpus"][0]["uuid"], "GPU-aaaabbbb-1");
    assert_eq!(json["gpus"][0]["memory_free_bytes"], 72_u64 << 30);
    assert_eq!(json["gpus"][0]["shares"].as_array().unwrap().len(), 2);
    assert!(json["silent_nodes"]["n2"].is_string());

    // Of the context's namespace; of all, the busiest first.
    let own = succeeded(&kubectl(&api, &["ps"]));
    assert!(
        own.contains("1 GiB of 4 GiB") && own.contains("29.4 of 30 %") && !own.contains("batch"),
        "{own}"
    );
    let all: Value = serde_json::from_str(&succeeded(&kubectl(&api, &["top", "-A", "--json"]))).unwrap();
    let pods: Vec<&Value> = all["shares"].as_array().unwrap().iter().map(|share| &share["pod"]).collect();
    assert_eq!(pods, ["batch", "web"]);
    let usage = succeeded(&kubectl(&api, &["usage"]));
    let namespaces: Vec<String> =
        usage.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(namespaces[1], "team 1 1 GiB of 4 GiB 29.4 of 30.0 %", "{usage}");
    assert!(namespaces[0].starts_with("other 1 ") && usage.contains("node n2: its manager"), "{usage}");
    assert!(
        succeeded(&kubectl(&api, &["ps", "-n", "empty"]))
            .contains("no pod has a share of a GPU in namespace empty")
    );
    assert!(api.asked().iter().all(|request| request.starts_with("GET ")));
    let selected =
        api.asked().iter().any(|request| request.contains("labelSelector=app.kubernetes.io%2Fname%3Dvcuda"));
    assert!(selected, "{:?}", api.asked());
}

#[test]
fn what_holds_a_shares_memory_is_told_where_the_driver_does() {
    let api = cluster();
    assert!(!succeeded(&kubectl(&api, &["ps", "-A"])).contains("HELD BY"));
    let held = "vcuda_driver_limit{node=\"n1\",namespace=\"team\",pod=\"web\",container=\"c\"} 1\n# EOF";
    api.put(&format!("{PODS}/vcuda-1:9436/proxy/metrics"), &METRICS.replace("# EOF", held));
    let table = succeeded(&kubectl(&api, &["ps", "-A"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("  HELD BY"), "{table}");
    assert!(lines[1].starts_with("other ") && lines[1].ends_with("  library"), "{table}");
    assert!(lines[2].ends_with("  library, driver"), "{table}");
    let json: Value = serde_json::from_str(&succeeded(&kubectl(&api, &["ps", "--json"]))).unwrap();
    assert_eq!(json["shares"][0]["held_by_driver"], true);
}

#[test]
fn a_suspended_share_says_so() {
    let api = cluster();
    let running = succeeded(&kubectl(&api, &["ps"]));
    assert!(!running.contains("STATE"), "{running}");
    let suspended = METRICS
        .replace("state=\"running\"", "state=\"suspended\"")
        .replace("container=\"c\"} 0\n", "container=\"c\"} 1073741824\n");
    api.put(&format!("{PODS}/vcuda-1:9436/proxy/metrics"), &suspended);
    let table = succeeded(&kubectl(&api, &["ps", "-A"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("  STATE"), "{table}");
    assert!(lines[1].starts_with("other ") && !lines[1].contains("host memory"), "{table}");
    assert!(lines[2].ends_with("suspended: 1 GiB in host memory"), "{table}");
    let json: Value = serde_json::from_str(&succeeded(&kubectl(&api, &["ps", "--json"]))).unwrap();
    assert_eq!(json["shares"][0]["state"], "suspended");
    assert_eq!(json["shares"][0]["memory_suspended_bytes"], 1_u64 << 30);
}

#[test]
fn a_pod_that_does_not_start_is_explained() {
    let api = ShownObjects::start();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "team", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "vcuda", "resourceClaimName": "web-vcuda-x"}]},
    });
    api.put("/api/v1/namespaces/team/pods/web", &pod.to_string());
    // Events may not be read: what is left is told, and what is missing.
    let claim = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/web-vcuda-x";
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "web-vcuda-x"}, "spec": {}});
    api.put(claim, &object.to_string());
    let why = succeeded(&kubectl(&api, &["why", "web"]));
    assert!(
        why.starts_with("team/web: Pending\n") && why.contains("claim web-vcuda-x is not allocated"),
        "{why}"
    );
    assert!(why.contains("not read: events: events is forbidden"), "{why}");
    assert!(why.contains("whether it can ever start"), "{why}");

    let event = |reason: &str, message: &str, uid: &str, time: &str| {
        json!({
            "metadata": {"name": reason, "namespace": "team"}, "involvedObject": {"name": "web", "uid": uid},
            "reason": reason, "message": message, "lastTimestamp": time,
        })
    };
    let sentence = "0/2 nodes are available: 2 vcuda: no GPU has 40 GiB and 40 percent free together.";
    let events = json!([
        event("FailedScheduling", sentence, "u", "2026-01-01T00:00:02Z"),
        event("Failed", "of a former pod of this name", "v", "2026-01-01T00:00:03Z"),
    ]);
    api.put_list("/api/v1/namespaces/team/events", "v1", "Event", &events);
    api.put_list("/api/v1/nodes", "v1", "Node", &json!([]));
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    api.put_list(slices, "resource.k8s.io/v1", "ResourceSlice", &json!([]));
    let why: Value = serde_json::from_str(&succeeded(&kubectl(&api, &["why", "web", "--json"]))).unwrap();
    assert_eq!(why["findings"][0]["reason"], sentence);
    assert!(why["findings"][0]["remedy"].as_str().unwrap().contains("kubectl vcuda gpus"));
    assert_eq!(why["findings"].as_array().unwrap().len(), 1, "{why}");
    assert_eq!(why["unread"], json!([]));
}

#[test]
fn a_pod_that_uses_a_shared_claim_otherwise_is_told() {
    let api = ShownObjects::start();
    let pod = |name: &str, second: u32, request: Option<&str>| {
        let claims = json!([{"name": "gpus", "request": request}]);
        let metadata = json!({"name": name, "namespace": "team", "uid": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"},
            "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}],
                "containers": [{"name": "c", "resources": {"claims": claims}}]},
        });
        api.put(&format!("/api/v1/namespaces/team/pods/{name}"), &pod.to_string());
    };
    pod("first", 1, Some("a"));
    pod("late", 2, None);
    let user = |name: &str| json!({"resource": "pods", "name": name, "uid": name});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"},
        "spec": {"devices": {"requests": [{"name": "a"}, {"name": "b"}]}}, "status": {"reservedFor": [user("first"), user("late")]}});
    let path = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/shared";
    api.put(path, &claim.to_string());
    api.put_list("/api/v1/namespaces/team/events", "v1", "Event", &json!([]));
    let why = succeeded(&kubectl(&api, &["why", "late"]));
    let text = "a container uses a and b of claim shared, which was prepared as pod first uses it (a): it has no GPU, or memory of one \
                only";
    assert!(why.contains(text) && why.contains("resourceClaimTemplateName"), "{why}");
    assert!(succeeded(&kubectl(&api, &["why", "first"])).contains("nothing is known"));
}

#[test]
fn a_pod_that_can_never_start_is_not_told_to_wait() {
    let api = ShownObjects::start();
    let limits = json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "40", "vcuda.io/cores": "10"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "team", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}, "status": {"phase": "Pending"},
    });
    api.put("/api/v1/namespaces/team/pods/web", &pod.to_string());
    let message = "0/1 nodes are available: 1 Insufficient vcuda.io/memory.";
    let event = json!({"metadata": {"name": "e", "namespace": "team"}, "involvedObject": {"name": "web", "uid": "u"},
        "reason": "FailedScheduling", "message": message});
    api.put_list("/api/v1/namespaces/team/events", "v1", "Event", &json!([event]));
    api.put_list(
        "/apis/resource.k8s.io/v1/resourceslices",
        "resource.k8s.io/v1",
        "ResourceSlice",
        &json!([]),
    );
    let with_chunks = |chunks: &str| {
        let node = json!({"metadata": {"name": "n1"}, "status": {"capacity": {"vcuda.io/memory": chunks}}});
        api.put_list("/api/v1/nodes", "v1", "Node", &json!([node]));
        succeeded(&kubectl(&api, &["why", "web"]))
    };
    let never = with_chunks("32");
    assert!(
        never.contains("it asks for 40 of vcuda.io/memory, and no node has more than 32")
            && !never.contains("wait"),
        "{never}"
    );
    let full = with_chunks("40");
    assert!(full.contains("wait") && !full.contains("never"), "{full}");
}

#[test]
fn a_job_is_explained_by_its_pod_or_by_why_it_has_none() {
    let api = ShownObjects::start();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "team", "uid": "j"},
        "spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "j"}}},
    });
    api.put("/apis/batch/v1/namespaces/team/jobs/train", &job.to_string());
    let pods = "/api/v1/namespaces/team/pods";
    api.put_list(pods, "v1", "Pod", &json!([]));
    let event = |kind: &str, uid: &str, message: &str| {
        json!({"metadata": {"name": message, "namespace": "team"}, "involvedObject": {"name": "train", "uid": uid},
            "type": kind, "reason": "FailedCreate", "message": message})
    };
    let text = "Error creating: pods \"train-x\" is forbidden: exceeded quota: gpus, requested: requests.vcuda.io/memory=16";
    let events =
        json!([event("Warning", "j", text), event("Normal", "j", "made"), event("Warning", "old", "former")]);
    api.put_list("/api/v1/namespaces/team/events", "v1", "Event", &events);
    let none: Value =
        serde_json::from_str(&succeeded(&kubectl(&api, &["why", "job/train", "--json"]))).unwrap();
    assert_eq!((&none["pod"], &none["phase"]), (&json!("team/job/train"), &json!("no pod")));
    assert_eq!(none["findings"].as_array().unwrap().len(), 1, "{none}");
    assert_eq!(none["findings"][0]["reason"], text);
    assert!(none["findings"][0]["remedy"].as_str().unwrap().contains("ResourceQuota"), "{none}");

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-x", "namespace": "team", "uid": "u"},
        "spec": {"containers": []}, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "has a GPU gone?"}});
    api.put_list(pods, "v1", "Pod", &json!([pod]));
    api.put(&format!("{pods}/train-x"), &pod.to_string());
    let told = succeeded(&kubectl(&api, &["why", "jobs/train"]));
    assert!(told.starts_with("team/train-x: Failed\n") && told.contains("delete the pod"), "{told}");
    let selected =
        |request: &String| request.contains("labelSelector=batch.kubernetes.io%2Fcontroller-uid%3Dj");
    assert!(api.asked().iter().any(selected), "{:?}", api.asked());
    assert_eq!(kubectl(&api, &["why", "service/web"]).status.code(), Some(64));
    assert_eq!(kubectl(&api, &["why", "deployment/none"]).status.code(), Some(1));
}

#[test]
fn what_cannot_be_had_is_said_with_a_status() {
    let api = ShownObjects::start();
    let gone = kubectl(&api, &["why", "gone"]);
    assert!(gone.status.code() == Some(1) && said(&gone).contains("pod team/gone: "), "{}", said(&gone));
    api.put_list(PODS, "v1", "Pod", &json!([]));
    let none = kubectl(&api, &["gpus"]);
    assert!(none.status.code() == Some(1) && said(&none).contains("--system-namespace"), "{}", said(&none));
    let pod = json!({"metadata": {"name": "vcuda-1"}, "spec": {"nodeName": "n1", "containers": []}});
    api.put_list(PODS, "v1", "Pod", &json!([pod]));
    let silent = kubectl(&api, &["gpus"]);
    assert!(
        silent.status.code() == Some(69) && said(&silent).contains("no manager answers"),
        "{}",
        said(&silent)
    );
    assert_eq!(kubectl(&api, &["gpu"]).status.code(), Some(64));
    let nowhere = kubectl(&api, &["gpus", "--kubeconfig", "/nowhere"]);
    assert_eq!(nowhere.status.code(), Some(69), "{}", said(&nowhere));
    let scratch = tempfile::tempdir().unwrap();
    let with_config = |text: &str| {
        let path = scratch.path().join("config");
        std::fs::write(&path, text).unwrap();
        kubectl(&api, &["gpus", "--kubeconfig", path.to_str().unwrap()])
    };
    let away = with_config(
        "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
         users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}",
    );
    let words = "the API server http://127.0.0.1:1/ does not answer: Connection refused";
    assert!(away.status.code() == Some(69) && said(&away).contains(words), "{}", said(&away));
    for secret in ["eyJhbGciOiJSUzI1NiJ9.secret", "users: [{name: u, user: {token: [secret]}}]"] {
        let wrong = with_config(secret);
        assert!(wrong.status.code() == Some(69) && !said(&wrong).contains("secret"), "{}", said(&wrong));
    }
}
