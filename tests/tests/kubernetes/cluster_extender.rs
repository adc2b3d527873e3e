//! The scheduler extender as kube-scheduler uses it: the built program, ExtenderArgs over TLS.

use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::cluster::{Cluster, TemplateApi};
use vcuda_tests::eventually;

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// FNV-1a of "default/a/main", by which a node says that it has granted that container's share.
const KEY: u32 = 1_985_827_178;

fn pod(limits: &Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}})
}

/// A node whose GPUs have these chunks and percents left.
fn node(name: &str, gpus: &[(u32, u32)]) -> Value {
    let gpu = |(mem, cores): &(u32, u32)| json!({"id": "GPU-1", "mem": mem, "of": 320, "cores": cores, "shares": 15});
    let gpus: Vec<Value> = gpus.iter().map(gpu).collect();
    json!({"metadata": {"name": name, "annotations": {"vcuda.io/gpus": json!({"gpus": gpus, "held": []}).to_string()}}})
}

fn nodes() -> [Value; 4] {
    [
        node("halves", &[(80, 100), (80, 100)]),
        node("one", &[(160, 40), (0, 0)]),
        node("empty", &[(320, 100)]),
        json!({"metadata": {"name": "silent"}}),
    ]
}

fn asked(cluster: &Cluster, page: &str, args: &Value) -> Value {
    let (status, body) = cluster.post(page, args.to_string().as_bytes()).unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn no_pod_is_sent_where_only_the_sum_fits() {
    let cluster = Cluster::start("");
    let share = pod(&json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "160", "vcuda.io/cores": "40"}));
    let args = json!({"Pod": share, "Nodes": {"metadata": {}, "items": nodes()}, "NodeNames": null});
    let kept = asked(&cluster, "/filter", &args);
    let names: Vec<&Value> =
        kept["Nodes"]["items"].as_array().unwrap().iter().map(|node| &node["metadata"]["name"]).collect();
    assert_eq!(names, ["one", "empty", "silent"]);
    assert_eq!(
        kept["FailedNodes"],
        json!({"halves": "vcuda: no GPU has 40 GiB and 40 percent free together"})
    );
    assert_eq!((&kept["NodeNames"], &kept["Error"]), (&Value::Null, &json!("")));
    let scores = asked(&cluster, "/prioritize", &args);
    let score = |place: usize| scores[place]["Score"].as_i64().unwrap();
    assert_eq!(scores[1]["Host"], "one");
    assert!(score(1) > score(2) && score(0) == 0 && score(3) == 0, "{scores}");
    // Another pod goes anywhere.
    let plain = json!({"Pod": pod(&json!({"cpu": "1"})), "Nodes": {"items": nodes()}});
    assert_eq!(asked(&cluster, "/filter", &plain)["Nodes"]["items"].as_array().unwrap().len(), 4);

    let spread = Cluster::start("[extender]\nscore = \"spread\"\n");
    let scores = asked(&spread, "/prioritize", &args);
    assert!(scores[2]["Score"].as_i64() > scores[1]["Score"].as_i64(), "{scores}");
}

#[test]
fn a_scheduler_that_names_nodes_is_answered_from_what_the_api_server_shows() {
    let api = TemplateApi::start();
    api.set_nodes(&nodes());
    let cluster = Cluster::start(&format!(
        "kubeconfig = \"{}\"\n[extender]\nfollow_nodes = true\n",
        api.kubeconfig().display()
    ));
    let share = pod(&json!({"vcuda.io/memory": "40Gi", "vcuda.io/cores": "40"}));
    let args =
        json!({"Pod": share, "Nodes": null, "NodeNames": ["halves", "one", "empty", "silent", "gone"]});
    eventually("the nodes are known", SOON, || {
        asked(&cluster, "/filter", &args)["NodeNames"] == json!(["one", "empty", "silent", "gone"])
    });
    api.set_nodes(&[node("halves", &[(160, 100)]), node("one", &[(160, 39)])]);
    eventually("a change is followed", SOON, || {
        asked(&cluster, "/filter", &args)["NodeNames"] == json!(["halves", "empty", "silent", "gone"])
    });
}

#[test]
fn a_pod_that_was_sent_to_a_node_has_its_place_before_the_node_has_granted_it() {
    let api = TemplateApi::start();
    let published = |held: &[u32], mem: u32| {
        let gpus = json!({"gpus": [{"id": "GPU-1", "mem": mem, "of": 320, "cores": 100, "shares": 15}], "held": held});
        json!({"metadata": {"name": "one", "annotations": {"vcuda.io/gpus": gpus.to_string()}}})
    };
    api.set_nodes(&[published(&[], 200)]);
    let limits = json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "160", "vcuda.io/cores": "40"});
    let mut sent = pod(&limits);
    sent["metadata"]["namespace"] = json!("default");
    sent["spec"]["nodeName"] = json!("one");
    let cluster = Cluster::start(&format!(
        "kubeconfig = \"{}\"\n[extender]\nfollow_nodes = true\n",
        api.kubeconfig().display()
    ));
    let args = json!({"Pod": pod(&limits), "Nodes": null, "NodeNames": ["one"]});
    let kept = |names: &Value| asked(&cluster, "/filter", &args)["NodeNames"] == *names;
    let failed = || asked(&cluster, "/filter", &args)["FailedNodes"].to_string();
    eventually("the node is known", SOON, || {
        kept(&json!(["one"])) && cluster.log().contains("scheduler extender")
    });
    api.set_pods(&[sent.clone()]);
    eventually("the pod that was sent has its place", SOON, || kept(&json!([])));
    assert!(failed().contains("vcuda: no GPU has 40 GiB and 40 percent"), "{}", failed());
    // The node has granted it, and has as much left beside it: it is not counted twice.
    api.set_nodes(&[published(&[KEY], 160)]);
    eventually("it counts once", SOON, || kept(&json!(["one"])));
    // Another is sent there, and deleted before it was granted.
    sent["metadata"]["name"] = json!("b");
    api.set_pods(&[sent.clone()]);
    eventually("the other has its place", SOON, || kept(&json!([])));
    api.delete_pods(&[sent]);
    eventually("the place is free again", SOON, || kept(&json!(["one"])));
}

/// The scheduler asks about the second pod before the API server shows where the first one went.
#[test]
fn of_two_pods_at_once_none_is_sent_where_the_other_may_go() {
    let api = TemplateApi::start();
    let gpus =
        json!({"gpus": [{"id": "GPU-1", "mem": 200, "of": 320, "cores": 100, "shares": 15}], "held": []});
    let published =
        |name: &str| json!({"metadata": {"name": name, "annotations": {"vcuda.io/gpus": gpus.to_string()}}});
    api.set_nodes(&[published("one"), published("two")]);
    let cluster = Cluster::start(&format!(
        "kubeconfig = \"{}\"\n[extender]\nfollow_nodes = true\n",
        api.kubeconfig().display()
    ));
    let named = |name: &str| {
        let mut pod = pod(&json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "160", "vcuda.io/cores": "40"}));
        pod["metadata"] = json!({"name": name, "namespace": "default"});
        pod
    };
    let kept = |name: &str, nodes: Value| {
        let args = json!({"Pod": named(name), "Nodes": null, "NodeNames": nodes});
        asked(&cluster, "/filter", &args)["NodeNames"].clone()
    };
    let too_large =
        json!({"Pod": pod(&json!({"vcuda.io/memory": "300"})), "Nodes": null, "NodeNames": ["one", "two"]});
    eventually("the nodes are known", SOON, || {
        asked(&cluster, "/filter", &too_large)["NodeNames"] == json!([])
    });
    let offered = kept("first", json!(["one", "two"]));
    assert_eq!(offered, json!(["one", "two"]));
    assert_eq!(kept("second", json!(["one", "two"])), json!([]), "either may get the first");
    let mut bound = named("first");
    bound["spec"]["nodeName"] = json!("two");
    api.set_pods(&[bound]);
    eventually("the first is known to be on the other node", Duration::from_secs(4), || {
        kept("second", json!(["one", "two"])) == json!(["one"])
    });
}

#[test]
fn bad_questions_get_a_clear_error() {
    let cluster = Cluster::start("");
    for (body, said) in [
        ("", "not ExtenderArgs of kube-scheduler"),
        ("[]", "not ExtenderArgs"),
        ("{\"Nodes\": null}", "missing field `Pod`"),
        ("{\"Pod\": {}, \"NodeNames\": 7}", "invalid type"),
    ] {
        let (status, text) = cluster.post("/filter", body.as_bytes()).unwrap();
        assert!(status == 400 && text.contains(said), "{status}: {text}");
    }
    let odd = json!({"Pod": {"spec": 7}, "Nodes": {"items": [7, {}, {"metadata": {"annotations": {"vcuda.io/gpus": "{"}}}]}});
    assert_eq!(asked(&cluster, "/filter", &odd)["Nodes"]["items"].as_array().unwrap().len(), 3);
    assert!(cluster.page("/metrics").contains("{page=\"filter\",result=\"wrong\"} 4\n"));
    assert_eq!(cluster.post("/bind", b"{}").unwrap().0, 404);
}
