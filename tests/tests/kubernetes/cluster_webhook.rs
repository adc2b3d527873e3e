//! The admission webhook as the API server uses it: the built program, AdmissionReviews over TLS.

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
    let refusal = cluster.mutated("team", &pod(&json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "33"})));
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
    assert!(why.contains("privileged") && why.contains("vcuda.io/unconfined=true"), "{why}");
    assert!(cluster.log().contains("refused"), "{}", cluster.log());
}

#[test]
fn a_pod_with_a_share_gets_no_folder_of_the_node_power_or_choice_of_gpus_that_is_not_listed() {
    let cluster = Cluster::start("[admission]\nhost_paths = [\"/data\"]\n");
    let share = pod(&json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30"}));
    let with = |path: &str, value: Value| {
        let mut pod = share.clone();
        pod["metadata"]["annotations"] = json!({});
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let host = |path: &str| {
        let mut pod = share.clone();
        pod["spec"]["volumes"] =
            json!([{"name": "own", "emptyDir": {}}, {"name": "host", "hostPath": {"path": path}}]);
        pod
    };
    let container = |more: Value| {
        let mut container = share["spec"]["containers"][0].clone();
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("/spec/containers/0", container)
    };
    let visible = |value: &str| json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": value});
    for (pod, said) in [
        (host("/proc/1/root/run/vcuda"), "hostPath /proc/1/root/run/vcuda"),
        (host("/run/containerd"), "hostPath /run/containerd"),
        (host("/var/lib/kubelet/pods"), "hostPath /var/lib/kubelet/pods"),
        (host("/data/link"), "hostPath /data/link"),
        (container(json!({"env": [visible("void"), visible("all")]})), "is set to \"all\""),
        (
            container(json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
            "capability SYS_ADMIN",
        ),
        (container(json!({"securityContext": {"procMount": "Unmasked"}})), "procMount Unmasked"),
        (
            with("/metadata/annotations", json!({"cdi.k8s.io/a": "nvidia.com/gpu=all"})),
            "annotation cdi.k8s.io/a",
        ),
    ] {
        let response = cluster.review("/validate", "team", &pod, false);
        let why = response["status"]["message"].as_str().unwrap_or("admitted");
        assert!(why.contains(said), "{said}: {why}");
    }
    for pod in [host("/data"), share.clone()] {
        assert_eq!(cluster.review("/validate", "team", &pod, false)["allowed"], true);
    }
}

#[test]
fn pods_and_claims_are_within_the_bounds_of_their_namespace() {
    let cluster = Cluster::start("[namespaces.ops]\npriority_max = \"high\"\naudit_action = \"report\"\n");
    let mut asked = pod(&json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}));
    asked["metadata"]["annotations"] = json!({"vcuda.io/priority": "high"});
    let sentence = "priority high: pods of namespace team may have at most normal; the bound is namespaces.\"*\" in the manager's \
                    configuration";
    assert_eq!(cluster.mutated("team", &asked), Err(format!("container main: {sentence}")));
    let made = cluster.mutated("ops", &asked).unwrap();
    assert_eq!(cluster.review("/validate", "ops", &made, false)["allowed"], true);
    assert_eq!(cluster.review("/validate", "team", &made, false)["allowed"], false);

    let parameters = json!({"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "priority": "high"});
    let claim = json!({"devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "vcuda.io"}}],
        "config": [{"opaque": {"driver": "vcuda.io", "parameters": parameters}}],
    }});
    for (kind, spec) in [("ResourceClaim", claim.clone()), ("ResourceClaimTemplate", json!({"spec": claim}))]
    {
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let refused = cluster.review("/validate", "team", &object, false);
        assert_eq!(refused["status"]["message"], format!("request gpu: {sentence}"));
        assert_eq!(cluster.review("/validate", "ops", &object, false)["allowed"], true);
    }
    let misplaced = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"kind": "ResourceClaim"}, "object": {},
    }});
    let (status, text) = cluster.post("/mutate", misplaced.to_string().as_bytes()).unwrap();
    assert!(status == 400 && text.contains("this page is for Pod"), "{status}: {text}");
}

#[test]
fn reviews_make_no_object_and_a_pod_of_the_api_server_gets_its_template_once() {
    let api = TemplateApi::start();
    let kubeconfig = format!("kubeconfig = \"{}\"\n", api.kubeconfig().display());
    let cluster = Cluster::start(&format!("{kubeconfig}[admission]\nclaims = true\n"));
    let mut asked = pod(&json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}));
    asked["metadata"]["annotations"] = json!({"vcuda.io/mode": "dra"});
    asked["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true},
    ]);
    let made = cluster.mutated("team", &asked).unwrap();
    // Whoever reaches the port can send these, for any namespace.
    for namespace in 0..20 {
        assert_eq!(cluster.mutated(&format!("foreign-{namespace}"), &asked).unwrap(), made);
    }
    assert_eq!(cluster.mutated("team", &made).unwrap(), made);

    let name = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].as_str().unwrap();
    let in_api = |name: &str, from: &serde_json::Value| {
        let mut pod = from.clone();
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!("team");
        pod["metadata"]["uid"] = json!(format!("uid-{name}"));
        pod
    };
    let others = [pod(&json!({"cpu": "1"})), asked.clone()];
    api.set_waiting_pods(&others.map(|other| in_api("other", &other)));
    api.set_waiting_pods(&[in_api("web-1", &made), in_api("web-2", &made)]);
    eventually("the template is made", SOON, || !api.templates().is_empty());
    let templates = api.templates();
    let keys: Vec<&String> = templates.keys().collect();
    assert_eq!(keys, [&format!("team/{name}")]);
    let template = &templates[keys[0]];
    assert_eq!(template["metadata"]["ownerReferences"][0]["uid"], "u");
    let request = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(request["deviceClassName"], "vcuda.io");
    assert_eq!(request["capacity"]["requests"], json!({"memory": "4Gi", "cores": "30"}));

    // An API server that refuses one is asked again.
    api.refuse(Some("exceeded quota"));
    let mut lone = asked.clone();
    lone["metadata"] = json!({"annotations": {"vcuda.io/mode": "dra"}});
    let lone = cluster.mutated("team", &lone).unwrap();
    api.set_waiting_pods(&[in_api("lone", &lone)]);
    eventually("the refusal is logged", SOON, || cluster.log().contains("exceeded quota"));
    api.refuse(None);
    eventually("it is made later", SOON, || api.templates().len() == 2);
    let templates = api.templates();
    let owned_by_pod =
        |template: &serde_json::Value| template["metadata"]["ownerReferences"][0]["uid"] == "uid-lone";
    assert!(templates.values().any(owned_by_pod), "{templates:?}");

    // Where no claims are made it says so.
    let alone = Cluster::start("");
    let refusal = alone.mutated("team", &asked).unwrap_err();
    assert!(refusal.contains("makes no claims here"), "{refusal}");
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
    is_refused(br#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#, 400, "v1beta1");
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
    let _silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(cluster.webhook()).unwrap()).collect();
    let odd =
        json!({"metadata": 7, "spec": {"containers": {"a": [1]}, "initContainers": [7, {"resources": []}]}});
    assert_eq!(cluster.mutated("team", &odd).unwrap(), odd);
    let made = cluster.mutated("team", &pod(&json!({"vcuda.io/memory": "4Gi"})));
    assert_eq!(made.unwrap()["spec"]["containers"][0]["resources"]["limits"]["vcuda.io/memory"], "16");
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}

#[test]
fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    let mut cluster = Cluster::start("");
    let plain = pod(&json!({"cpu": "1"}));
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    cluster.break_key();
    eventually("the broken pair is told", SOON, || {
        cluster.page("/metrics").contains("vcuda_cluster_certificate_good 0")
    });
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    cluster.renew();
    eventually("the new certificate is shown", SOON, || cluster.post("/mutate", b"{}").is_ok());
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    assert!(cluster.page("/metrics").contains("vcuda_cluster_certificate_good 1"));
}

#[test]
fn it_ends_after_what_is_in_flight() {
    let mut cluster = Cluster::start("");
    cluster.running.signal(libc::SIGTERM);
    eventually("it is not ready", SOON, || cluster.page("/readyz").starts_with("HTTP/1.1 503"));
    // Callers are still sent here for a while.
    let plain = pod(&json!({"cpu": "1"}));
    assert_eq!(cluster.review("/mutate", "team", &plain, false)["allowed"], true);
    assert!(cluster.running.finish().success());
}
