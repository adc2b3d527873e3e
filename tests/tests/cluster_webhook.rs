//! The admission webhook as the API server uses it: the built program, AdmissionReviews over TLS.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::cluster::{Cluster, TemplateApi};
use vcuda_tests::eventually;

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn pod(limits: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"},
        "spec": {
            "containers": [
                {"name": "main", "image": "app", "resources": {"limits": limits, "requests": limits}, "futureField": 7},
            ],
        },
    })
}

#[test]
fn a_pod_gets_counts_and_keeps_what_the_webhook_does_not_know() {
    let cluster = Cluster::start(
        "[admission]\ntolerations = [{key = \"nvidia.com/gpu\", operator = \"Exists\", effect = \"NoSchedule\"}]\n",
    );
    let asked = pod(&json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30", "cpu": "100m"}));
    let made = cluster.mutated("team", &asked).unwrap();
    let counts = json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30", "cpu": "100m"});
    let container = &made["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"], counts);
    assert_eq!(container["resources"]["requests"], counts);
    assert_eq!(container["futureField"], 7);
    assert_eq!(made["spec"]["tolerations"][0]["key"], "nvidia.com/gpu");
    assert_eq!(cluster.mutated("team", &made).unwrap(), made);
    assert_eq!(cluster.review("/validate", "team", &made, false)["allowed"], true);

    // Another system's, as docs/migration.md has it.
    let theirs =
        pod(&json!({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}));
    let made = cluster.mutated("team", &theirs).unwrap();
    assert_eq!(
        made["spec"]["containers"][0]["resources"]["limits"],
        json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "24", "vcuda.io/cores": "60"})
    );
    let plain = pod(&json!({"cpu": "1"}));
    assert_eq!(cluster.mutated("team", &plain).unwrap(), plain);
    let metrics = cluster.page("/metrics");
    assert!(
        metrics.contains("vcuda_cluster_answers_total{page=\"mutate\",result=\"changed\"} 2\n"),
        "{metrics}"
    );
    assert!(cluster.page("/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn nonsense_and_ways_around_the_limits_are_refused_with_a_sentence() {
    let cluster = Cluster::start("");
    let refusal = cluster.mutated(
        "team",
        &pod(&json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "33"})),
    );
    assert_eq!(
        refusal.unwrap_err(),
        "container main: vcuda.io/memory: 33 is the total for 2 GPUs, which get the same each, and does not divide by 2: \
         ask for 32 or 34"
    );
    let counts = json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30"});
    let mut powerful = pod(&counts);
    powerful["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let response = cluster.review("/validate", "team", &powerful, false);
    assert_eq!(response["allowed"], false);
    let why = response["status"]["message"].as_str().unwrap();
    assert!(
        why.contains("privileged") && why.contains("vcuda.io/unconfined=true"),
        "{why}"
    );
    assert!(cluster.log().contains("refused"), "{}", cluster.log());
}

#[test]
fn pods_and_claims_are_within_the_bounds_of_their_namespace() {
    let cluster = Cluster::start("[namespaces.ops]\npriority_max = \"high\"\naudit_action = \"report\"\n");
    let mut asked = pod(&json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}));
    asked["metadata"]["annotations"] = json!({"vcuda.io/priority": "high"});
    let sentence = "priority high: pods of namespace team may have at most normal; the bound is namespaces.\"*\" in the manager's \
                    configuration";
    assert_eq!(
        cluster.mutated("team", &asked),
        Err(format!("container main: {sentence}"))
    );
    let made = cluster.mutated("ops", &asked).unwrap();
    assert_eq!(cluster.review("/validate", "ops", &made, false)["allowed"], true);
    assert_eq!(
        cluster.review("/validate", "team", &made, false)["allowed"],
        false
    );

    let parameters = json!({"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "priority": "high"});
    let claim = json!({"devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "vcuda.io"}}],
        "config": [{"opaque": {"driver": "vcuda.io", "parameters": parameters}}],
    }});
    for (kind, spec) in [
        ("ResourceClaim", claim.clone()),
        ("ResourceClaimTemplate", json!({"spec": claim})),
    ] {
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let refused = cluster.review("/validate", "team", &object, false);
        assert_eq!(refused["status"]["message"], format!("request gpu: {sentence}"));
        assert_eq!(
            cluster.review("/validate", "ops", &object, false)["allowed"],
            true
        );
    }
    let misplaced = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"kind": "ResourceClaim"}, "object": {},
    }});
    let (status, text) = cluster.post("/mutate", misplaced.to_string().as_bytes()).unwrap();
    assert!(
        status == 400 && text.contains("this page is for Pod"),
        "{status}: {text}"
    );
}

#[test]
fn a_claim_is_made_once_and_not_in_a_dry_run() {
    let api = TemplateApi::start();
    let cluster = Cluster::start(&format!("kubeconfig = \"{}\"\n", api.kubeconfig().display()));
    let mut asked = pod(&json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}));
    asked["metadata"]["annotations"] = json!({"vcuda.io/mode": "dra"});
    asked["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true},
    ]);
    let response = cluster.review("/mutate", "team", &asked, true);
    assert_eq!((response["allowed"].as_bool(), api.posts()), (Some(true), 0));

    let made = cluster.mutated("team", &asked).unwrap();
    let name = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        .as_str()
        .unwrap()
        .to_owned();
    let templates = api.templates();
    let template = &templates[&format!("team/{name}")];
    assert_eq!(template["metadata"]["ownerReferences"][0]["uid"], "u");
    let request = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(request["deviceClassName"], "vcuda.io");
    assert_eq!(
        request["capacity"]["requests"],
        json!({"memory": "4Gi", "cores": "30"})
    );
    // Another replica, and the API server's second call.
    assert_eq!(cluster.mutated("team", &asked).unwrap(), made);
    assert_eq!(cluster.mutated("team", &made).unwrap(), made);
    assert_eq!((api.templates().len(), api.posts()), (1, 2));

    api.refuse(Some("namespace team is being terminated"));
    let refusal = cluster.mutated("team", &asked).unwrap_err();
    assert!(
        refusal.contains(&name) && refusal.contains("being terminated"),
        "{refusal}"
    );
    // Without an API server it says so.
    let alone = Cluster::start("");
    assert!(
        alone
            .mutated("team", &asked)
            .unwrap_err()
            .contains("no API server")
    );
}

#[test]
fn bad_requests_get_a_clear_error_and_harm_no_other() {
    let cluster = Cluster::start("");
    let is_refused = |body: &[u8], status: u16, said: &str| {
        let (answered, text) = cluster.post("/mutate", body).unwrap();
        assert!(answered == status && text.contains(said), "{answered}: {text}");
    };
    is_refused(b"", 400, "not JSON");
    is_refused(b"{\"apiVersion\": ", 400, "not JSON");
    is_refused(b"[]", 400, "not an object");
    is_refused(b"{}", 400, "this webhook takes admission.k8s.io/v1");
    is_refused(
        br#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#,
        400,
        "v1beta1",
    );
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    is_refused(nested.as_bytes(), 400, "not JSON: recursion limit");
    let huge = vec![b' '; 9 << 20];
    let (status, _) = cluster.post("/validate", &huge).unwrap();
    assert_eq!(status, 413);
    assert_eq!(cluster.request("GET", "/mutate", b"").unwrap().0, 405);
    assert_eq!(cluster.post("/bind", b"{}").unwrap().0, 404);
    // A client that does not speak TLS, and one that says nothing.
    let mut plain = TcpStream::connect(cluster.webhook()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _silent: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(cluster.webhook()).unwrap())
        .collect();
    let odd =
        json!({"metadata": 7, "spec": {"containers": {"a": [1]}, "initContainers": [7, {"resources": []}]}});
    assert_eq!(cluster.mutated("team", &odd).unwrap(), odd);
    let made = cluster.mutated("team", &pod(&json!({"vcuda.io/memory": "4Gi"})));
    assert_eq!(
        made.unwrap()["spec"]["containers"][0]["resources"]["limits"]["vcuda.io/memory"],
        "16"
    );
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}

#[test]
fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    let mut cluster = Cluster::start("");
    let plain = pod(&json!({"cpu": "1"}));
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    cluster.break_key();
    eventually("the broken pair is told", SOON, || {
        cluster
            .page("/metrics")
            .contains("vcuda_cluster_certificate_good 0")
    });
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    cluster.renew();
    eventually("the new certificate is shown", SOON, || {
        cluster.post("/mutate", b"{}").is_ok()
    });
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    assert!(
        cluster
            .page("/metrics")
            .contains("vcuda_cluster_certificate_good 1")
    );
}

#[test]
fn it_ends_after_what_is_in_flight() {
    let mut cluster = Cluster::start("");
    cluster.running.signal(libc::SIGTERM);
    eventually("it is not ready", SOON, || {
        cluster.page("/readyz").starts_with("HTTP/1.1 503")
    });
    // Callers are still sent here for a while.
    let plain = pod(&json!({"cpu": "1"}));
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    assert!(cluster.running.finish().success());
}
