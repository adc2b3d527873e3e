//! What becomes of pods, by table.

use vcuda_quota::Priority;
use vcuda_quota::pods::bounds::{Bound, Bounds};

use super::*;

mod bounds;
mod foreign;

fn pod(limits: Value) -> Value {
    json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits.clone(), "requests": limits}}]},
    })
}

fn admitted(pod: &Value) -> Value {
    admit("team", pod, &Rules::default()).unwrap()
}

fn refused(pod: &Value, rules: &Rules) -> String {
    admit("team", pod, rules).unwrap_err().to_string()
}

/// Rules with this bound for all namespaces.
fn with_bounds(bound: Bound) -> Rules {
    Rules { makes_claims: true, bounds: Bounds::new([("*".to_owned(), bound)].into()), ..Rules::default() }
}

/// Limits of the first container; requests are the same.
fn limits(pod: &Value) -> Value {
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"], resources["requests"], "{pod}");
    resources["limits"].clone()
}

#[test]
fn a_pod_without_a_share_stays_as_it_is() {
    let mut plain = pod(json!({"cpu": "1", "nvidia.com/gpu": "1"}));
    plain["spec"]["schedulerName"] = json!("hami-scheduler");
    assert_eq!(admitted(&plain), plain);
    let misspelt =
        json!({"metadata": {"annotations": {"vcuda.io/polcy": "burst"}}, "spec": {"containers": []}});
    assert!(refused(&misspelt, &Rules::default()).contains("vcuda.io/polcy: there is none of this name"));
}

#[test]
fn sizes_become_counts_and_defaults_are_written() {
    let admitted_pod = admitted(&pod(json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"})));
    assert_eq!(
        limits(&admitted_pod),
        json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30"})
    );
    assert_eq!(admitted_pod["metadata"], json!({"name": "a"}));
    // A second call changes nothing.
    assert_eq!(admitted(&admitted_pod), admitted_pod);

    let unpromised = admitted(&pod(json!({"vcuda.io/memory": "4Gi"})));
    assert_eq!(limits(&unpromised)["vcuda.io/cores"], "1");
    assert_eq!(unpromised["metadata"]["annotations"], json!({"vcuda.io/policy.main": "burst"}));
    assert_eq!(admitted(&unpromised), unpromised);

    let fraction = admitted(&pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "12500m"})));
    assert_eq!(limits(&fraction)["vcuda.io/cores"], "13");
    assert_eq!(fraction["metadata"]["annotations"], json!({"vcuda.io/cores.main": "12.5"}));
}

#[test]
fn annotations_are_checked_in_the_plugins_words() {
    for (annotations, limits, said) in [
        (
            json!({"vcuda.io/policy": "Burst"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "annotation vcuda.io/policy \"Burst\": write fixed, burst or best-effort",
        ),
        (
            json!({"vcuda.io/memory": "8Gi"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "container main: annotation vcuda.io/memory: 8 GiB is more than the 4 GiB",
        ),
        (
            json!({"vcuda.io/policy.mian": "burst"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "no container of this name with a share of a GPU; it has main",
        ),
        (
            json!({"vcuda.io/policy": "best-effort"}),
            json!({"vcuda.io/memory": "16"}),
            "container main: it asks for vcuda.io/gpu: 1 and vcuda.io/memory: 16 and for no vcuda.io/cores: add",
        ),
        (json!({"vcuda.io/mode": "claims"}), json!({"vcuda.io/memory": "16"}), "write plugin or dra"),
        (
            json!({}),
            json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "33", "vcuda.io/cores": "30"}),
            "container main: vcuda.io/memory: 33 is the total for 2 GPUs, which get the same each",
        ),
    ] {
        let mut pod = pod(limits);
        pod["metadata"]["annotations"] = annotations;
        let error = refused(&pod, &Rules::default());
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn tolerations_and_runtime_class_are_added_once() {
    let toleration = json!({"key": "nvidia.com/gpu", "operator": "Exists"});
    let rules = Rules {
        tolerations: vec![toleration.clone()],
        runtime_class: Some("nvidia".to_owned()),
        ..Rules::default()
    };
    let asked = pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}));
    let once = admit("team", &asked, &rules).unwrap();
    assert_eq!(once["spec"]["tolerations"], json!([toleration]));
    assert_eq!(once["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(admit("team", &once, &rules).unwrap(), once);
    let mut own = asked;
    own["spec"]["runtimeClassName"] = json!("other");
    assert_eq!(admit("team", &own, &rules).unwrap()["spec"]["runtimeClassName"], "other");
    let plain = pod(json!({"cpu": "1"}));
    assert_eq!(admit("team", &plain, &rules).unwrap(), plain);
}

#[test]
fn limits_become_a_claim() {
    let mut asked =
        pod(json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "5000Mi", "vcuda.io/cores": "60", "cpu": "1"}));
    asked["metadata"] = json!({
        "generateName": "web-", "annotations": {"vcuda.io/mode": "dra", "vcuda.io/policy": "burst"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
    });
    asked["spec"]["initContainers"] = json!([asked["spec"]["containers"][0].clone()]);
    asked["spec"]["initContainers"][0]["name"] = json!("init");
    let rules = Rules { makes_claims: true, ..Rules::default() };
    let made = admit("team", &asked, &rules).unwrap();
    let template = template(&made).unwrap();
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "vcuda.io", "capacity": {"requests": {"memory": "2500Mi", "cores": "30"}}}});
    assert_eq!(
        template.object["spec"]["spec"]["devices"],
        json!({
            "requests": [request("c0-gpu0"), request("c0-gpu1")],
            "constraints": [{"requests": ["c0-gpu0", "c0-gpu1"], "distinctAttribute": "vcuda.io/uuid"}],
        })
    );
    assert_eq!(
        template.object["metadata"]["ownerReferences"],
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}])
    );
    assert_eq!(
        made["spec"]["resourceClaims"],
        json!([{"name": "vcuda", "resourceClaimTemplateName": template.name}])
    );
    let uses = json!([{"name": "vcuda", "request": "c0-gpu0"}, {"name": "vcuda", "request": "c0-gpu1"}]);
    for list in ["containers", "initContainers"] {
        let resources = &made["spec"][list][0]["resources"];
        assert_eq!(resources["limits"], json!({"cpu": "1"}));
        assert_eq!(resources["claims"], uses);
    }
    assert_eq!(made["metadata"]["annotations"]["vcuda.io/policy"], "burst");
    assert_eq!(made["metadata"]["annotations"].get("vcuda.io/mode"), None);
    validate("team", &made, &rules).unwrap();
    // A second call changes nothing; the same request of another owner has another template.
    assert_eq!(admit("team", &made, &rules).unwrap(), made);
    assert_eq!(admit("team", &asked, &rules).unwrap(), made);
    asked["metadata"]["ownerReferences"][0]["uid"] = json!("v");
    let of_another = admit("team", &asked, &rules).unwrap();
    assert_ne!(self::template(&of_another).unwrap().name, template.name);
    // Where no claims are made.
    let error = admit("team", &asked, &Rules::default()).unwrap_err().to_string();
    assert!(error.contains("makes no claims here"), "{error}");
}

/// The template that is made once the API server has the pod.
fn template(made: &Value) -> Option<claims::Template> {
    let mut pod = made.clone();
    pod["metadata"]["namespace"] = json!("team");
    pod["metadata"]["name"] = json!("web-1");
    pod["metadata"]["uid"] = json!("of-the-pod");
    claims::template_of(&serde_json::from_value(pod).unwrap())
}

#[test]
fn a_pod_gets_no_template_but_that_of_a_share() {
    let rules = Rules { mode: Mode::Dra, makes_claims: true, ..Rules::default() };
    let made = admit("team", &pod(json!({"vcuda.io/memory": "16"})), &rules).unwrap();
    assert!(template(&made).is_some());
    let devices = made["metadata"]["annotations"]["claims.vcuda.io/devices"].as_str().unwrap();
    for (from, to) in [
        ("\"vcuda.io\"", "\"vcuda.io-whole\""),
        ("\"exactly\":{", "\"exactly\":{\"adminAccess\":true,"),
        ("{\"requests\"", "{\"config\":[],\"requests\""),
        // Not that of its name.
        ("4Gi", "5Gi"),
    ] {
        let mut other = made.clone();
        other["metadata"]["annotations"]["claims.vcuda.io/devices"] = json!(devices.replacen(from, to, 1));
        assert_ne!(other, made, "{from} in {devices}");
        assert_eq!(template(&other), None, "{to}");
    }
    let mut without = made;
    without["spec"]["resourceClaims"] = json!([]);
    assert_eq!(template(&without), None);
}

#[test]
fn a_claim_that_asks_for_no_time_is_promised_none() {
    let rules = Rules { mode: Mode::Dra, makes_claims: true, ..Rules::default() };
    let asked = pod(json!({"vcuda.io/memory": "1Mi"}));
    let made = admit("team", &asked, &rules).unwrap();
    let template = template(&made).unwrap();
    let requests = &template.object["spec"]["spec"]["devices"]["requests"];
    assert_eq!(requests[0]["exactly"]["capacity"]["requests"], json!({"memory": "64Mi"}));
    // Without a controller the pod is the owner.
    let owner = &template.object["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Pod"), &json!("of-the-pod")));
    // The annotation wins over the configuration.
    let mut by_counts = asked;
    by_counts["metadata"]["annotations"] = json!({"vcuda.io/mode": "plugin"});
    let made = admit("team", &by_counts, &rules).unwrap();
    assert_eq!((self::template(&made), &limits(&made)["vcuda.io/memory"]), (None, &json!("1")));
}

#[test]
fn what_would_defeat_the_limits_is_refused_of_pods_with_shares() {
    let rules = Rules::default();
    let mut with = admitted(&pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"})));
    validate("team", &with, &rules).unwrap();
    with["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    assert!(validate("team", &with, &rules).unwrap_err().to_string().contains("privileged"));
    let mut without = pod(json!({"cpu": "1"}));
    without["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    validate("team", &without, &rules).unwrap();
    without["spec"]["resourceClaims"] = json!([{"name": "vcuda", "resourceClaimTemplateName": "a"}]);
    validate("team", &without, &rules).unwrap_err();
    // The annotation is left over where the other page was not asked.
    let mut missed = pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}));
    missed["metadata"]["annotations"] = json!({"vcuda.io/mode": "dra"});
    assert!(
        validate("team", &missed, &rules).unwrap_err().to_string().contains("vcuda.io/mode: there is none")
    );
}
