//! What a claim shows of its preparation, and how it follows what changes.

use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::dra::claims::{
    NODE, annotate, claim_path, grants, made_for, pod_path, published, put_claim, put_pod, result,
};
use vcuda_tests::resource_api::ResourceApi;
use vcuda_tests::{Door, Fixture, app, eventually, succeeded};

/// Time that an immediate effect may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_prepared_claim_shows_gpu_quota_and_policy() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    eventually("its status is written", SOON, || !api.device_statuses("one").is_empty());
    let [entry] = api.device_statuses("one").try_into().unwrap();
    assert_eq!(
        [&entry["driver"], &entry["pool"], &entry["device"], &entry["shareID"]],
        [&json!("vcuda.io"), &json!(NODE), &json!(gpu), &json!("gpu-share")]
    );
    let data = &entry["data"];
    assert_eq!(data["uuid"].as_str().unwrap().to_ascii_lowercase(), gpu);
    let quota = json!([data["memory"], data["cores"], data["policy"]]);
    assert_eq!(quota, json!(["4Gi", "30", "fixed"]), "{data}");
    let ready = &entry["conditions"][0];
    assert_eq!(json!([ready["type"], ready["status"]]), json!(["Ready", "True"]));

    // A driver that starts again finds its own words, and an operator's change is shown.
    driver.kill();
    driver.start();
    let grants = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let grants: Value = serde_json::from_str(&grants).unwrap();
    let id = grants["grants"][0]["id"].as_str().unwrap();
    succeeded(&fixture.vcuda(["set", id, "--memory", "2GiB"]).output().unwrap());
    eventually("the change is shown", SOON, || api.device_statuses("one")[0]["data"]["memory"] == "2Gi");
    assert_eq!(api.statuses().1, 2, "written once for each change");
    assert_eq!(&api.device_statuses("one")[0]["conditions"][0], ready);
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    eventually("it is taken back", SOON, || api.device_statuses("one").is_empty());
}

#[test]
fn a_share_that_no_container_uses_shows_so() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);
    let results = [result("a", &gpus[0], "4Gi", "30"), result("b", &gpus[1], "4Gi", "30")];
    put_claim(&api, "own", "p", &results, &json!([]));
    made_for(&api, "own", "p");
    put_pod(&api, "p", &[("main", &[("own", "a")])]);
    assert_eq!(driver.prepare("own", "own-uid").error, "");
    eventually("its status is written", SOON, || api.device_statuses("own").len() == 2);
    let unused = api.device_statuses("own").into_iter().find(|entry| entry["shareID"] == "b-share").unwrap();
    assert_eq!(unused["conditions"][0]["message"], "no container uses it", "{unused}");
    assert!(unused["data"]["adminAccess"].is_null(), "{unused}");
}

/// Notes the claim `shared` as one of these pods.
fn reserve(api: &ResourceApi, pods: &[&str]) {
    let mut claim = api.object(&claim_path("shared")).unwrap();
    let user = |pod: &&str| json!({"resource": "pods", "name": pod, "uid": format!("{pod}-uid")});
    claim["status"]["reservedFor"] = pods.iter().map(user).collect();
    api.put(&claim_path("shared"), &claim);
}

/// Kubelet asks once for a shared claim: at the end of its first pod, `ps` names one that uses it then.
#[test]
fn a_shared_claims_grant_goes_over_to_a_later_pod() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);
    let results = [result("a", &gpus[0], "4Gi", "30"), result("b", &gpus[1], "2Gi", "20")];
    put_claim(&api, "shared", "p", &results, &json!([]));
    put_pod(&api, "p", &[("main", &[("shared", "a")])]);
    assert_eq!(driver.prepare("shared", "shared-uid").error, "");
    let holders = || -> Vec<String> { grants(&fixture).into_iter().map(|(holder, ..)| holder).collect() };
    assert_eq!(holders(), ["default", "default/p/main"]);
    let reserve = |pods: &[&str]| reserve(&api, pods);
    put_pod(&api, "q", &[("worker", &[("shared", "b")])]);
    put_pod(&api, "r", &[("side", &[("shared", "a")])]);
    reserve(&["p", "q"]);
    eventually("what no pod used has one", SOON, || holders() == ["default/p/main", "default/q/worker"]);
    reserve(&["q"]);
    eventually("its pod is gone", SOON, || holders() == ["default", "default/q/worker"]);
    reserve(&["q", "r"]);
    eventually("another pod uses it", SOON, || holders() == ["default/q/worker", "default/r/side"]);
    drop(manager);
    let _manager = fixture.manager_with_shim();
    assert_eq!(holders(), ["default/q/worker", "default/r/side"]);
}

/// An annotation names a container. Under the name of another one the grant would have other amounts, under a program that runs.
#[test]
fn a_shared_claims_grant_keeps_its_amounts_as_its_first_pod_ends() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "shared", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    annotate(&api, &claim_path("shared"), &json!({"vcuda.io/memory.main": "1Gi"}));
    put_pod(&api, "p", &[("main", &[("shared", "gpu")])]);
    assert_eq!(driver.prepare("shared", "shared-uid").error, "");
    let has = |mebibytes: u64| grants(&fixture) == [("default/p/main".to_owned(), mebibytes << 20, 300)];
    assert!(has(1024), "{:?}", grants(&fixture));
    put_pod(&api, "q", &[("other", &[("shared", "gpu")])]);
    reserve(&api, &["q"]);
    annotate(&api, &claim_path("shared"), &json!({"vcuda.io/memory.main": "2Gi"}));
    eventually("it was looked at, and follows its claim", SOON, || has(2048));
    std::thread::sleep(Duration::from_secs(3));
    assert!(has(2048), "{:?}", grants(&fixture));
}

/// While the API server still knows the claim as reserved for it, the first pod stays the holder of the grant.
#[test]
fn events_of_a_shared_claim_reach_the_claim_after_its_first_pod() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "alone", "q", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "q", &[("main", &[("alone", "gpu")])]);
    assert_eq!(driver.prepare("alone", "alone-uid").error, "");
    api.delete(&pod_path("q"));
    let grants = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let grants: Value = serde_json::from_str(&grants).unwrap();
    let id = grants["grants"][0]["id"].as_str().unwrap();
    let mut denied = fixture.vcuda(["run", "--sim", "--grant", id, "--"]);
    denied.arg(app("quota", Door::Dlsym)).arg((4_u64 << 30).to_string());
    assert!(succeeded(&denied.output().unwrap()).contains("passed"));
    eventually("the claim has the event", SOON, || {
        api.events().iter().any(|event| {
            event["reason"] == "VcudaMemoryDenied"
                && event["regarding"]["kind"] == "ResourceClaim"
                && event["regarding"]["name"] == "alone"
        })
    });
}

#[test]
fn a_status_that_cannot_be_written_keeps_no_claim_from_being_prepared() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    api.refuse_statuses(true);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    eventually("it is tried several times", SOON, || api.statuses().0 >= 3);
    let said = "its status is not written, it is tried again: ";
    assert_eq!(driver.log().matches(said).count(), 1, "{}", driver.log());
    assert!(driver.problems().contains("200 OK"), "{}", driver.problems());
    api.refuse_statuses(false);
    eventually("it is written at last", SOON, || !api.device_statuses("one").is_empty());
    // A claim that is gone needs no status.
    api.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one");
    assert_eq!(driver.unprepare("one", "one-uid"), "");
}

/// Puts two claims of a share each: `own`, made for the pod `p`, and `alone`, which the pod `q` uses.
fn put_own_and_shared_claim(api: &ResourceApi) {
    let gpus = published(api, 2);
    for (claim, pod, gpu) in [("own", "p", &gpus[0]), ("alone", "q", &gpus[1])] {
        put_claim(api, claim, pod, &[result("gpu", gpu, "4Gi", "30")], &json!([]));
        put_pod(api, pod, &[("main", &[(claim, "gpu")])]);
    }
    made_for(api, "own", "p");
}

/// Whether an event says that the annotations of this object were refused, and why.
fn is_refused(api: &ResourceApi, (kind, name, why): (&str, &str, &str)) -> bool {
    api.events().iter().any(|event| {
        event["reason"] == "VcudaAnnotationRefused"
            && event["regarding"]["kind"] == kind
            && event["regarding"]["name"] == name
            && event["note"].as_str().unwrap().contains(why)
    })
}

#[test]
fn a_running_claim_follows_annotations_within_what_was_allocated() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    put_own_and_shared_claim(&api);
    annotate(&api, &claim_path("own"), &json!({"vcuda.io/cores": "20"}));
    annotate(&api, &pod_path("p"), &json!({"vcuda.io/memory.main": "3Gi"}));
    for claim in ["own", "alone"] {
        assert_eq!(driver.prepare(claim, &format!("{claim}-uid")).error, "");
    }
    let has = |pod: &str, mebibytes: u64, permille: u64| {
        let expected = (format!("default/{pod}/main"), mebibytes << 20, permille);
        grants(&fixture).contains(&expected)
    };
    assert!(has("p", 3072, 200), "at its start: {:?}", grants(&fixture));
    assert!(has("q", 4096, 300), "{:?}", grants(&fixture));

    annotate(&api, &pod_path("p"), &json!({"vcuda.io/memory": "1Gi", "vcuda.io/policy": "burst"}));
    eventually("the pod's claim follows the pod", SOON, || has("p", 1024, 200));
    annotate(&api, &claim_path("alone"), &json!({"vcuda.io/memory": "2Gi", "vcuda.io/cores": "10"}));
    eventually("the other follows itself", SOON, || has("q", 2048, 100));
    eventually("and shows it", SOON, || {
        let data = api.device_statuses("own").first().cloned().unwrap_or_default()["data"].clone();
        data["memory"] == "1Gi" && data["policy"] == "burst" && data["cores"] == "20"
    });
    annotate(&api, &pod_path("p"), &json!({}));
    eventually("up again, to what was allocated", SOON, || has("p", 4096, 200));

    // More than that, and nonsense: refused, and told where people look.
    annotate(&api, &pod_path("p"), &json!({"vcuda.io/memory": "5Gi"}));
    annotate(&api, &claim_path("alone"), &json!({"vcuda.io/polcy": "burst"}));
    for (kind, name, why) in
        [("Pod", "p", "annotations only lower"), ("ResourceClaim", "alone", "there is none of this name")]
    {
        eventually("an event says why", SOON, || is_refused(&api, (kind, name, why)));
        assert!(driver.log().contains(why), "{}", driver.log());
    }
    assert!(has("p", 4096, 200) && has("q", 2048, 100), "{:?}", grants(&fixture));
}

/// Watches and caches may be behind what a claim was prepared with.
#[test]
fn what_is_seen_late_takes_nothing_back() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    put_own_and_shared_claim(&api);
    api.hold_caches();
    annotate(&api, &claim_path("own"), &json!({"vcuda.io/cores": "20"}));
    annotate(&api, &pod_path("p"), &json!({"vcuda.io/memory": "3Gi"}));
    annotate(&api, &claim_path("alone"), &json!({"vcuda.io/cores": "10"}));
    for claim in ["own", "alone"] {
        assert_eq!(driver.prepare(claim, &format!("{claim}-uid")).error, "");
    }
    let are_kept = || {
        let granted = grants(&fixture);
        let expected = [("p", 3 << 30, 200), ("q", 4 << 30, 100)];
        expected
            .into_iter()
            .all(|(pod, bytes, permille)| granted.contains(&(format!("default/{pod}/main"), bytes, permille)))
    };
    assert!(are_kept(), "at the start: {:?}", grants(&fixture));
    // A shared claim is looked at each two seconds, and the other when its pod is first seen.
    for _ in 0..50 {
        assert!(are_kept(), "{:?}", grants(&fixture));
        std::thread::sleep(Duration::from_millis(100));
    }
    api.release_caches();
    annotate(&api, &pod_path("p"), &json!({"vcuda.io/memory": "1Gi"}));
    eventually("it is followed", SOON, || {
        grants(&fixture).contains(&("default/p/main".to_owned(), 1 << 30, 200))
    });
}

#[test]
fn annotations_that_cannot_be_followed_stop_a_start() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "own", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    made_for(&api, "own", "p");
    put_pod(&api, "p", &[("main", &[("own", "gpu")])]);
    for (key, value, why) in [
        ("vcuda.io/memory", "5Gi", "annotations only lower"),
        ("vcuda.io/polcy", "burst", "there is none of this name"),
        ("vcuda.io/policy.mian", "burst", "it has main"),
        ("vcuda.io/priority", "high", "may have at most normal"),
    ] {
        annotate(&api, &pod_path("p"), &json!({key: value}));
        let said = driver.prepare("own", "own-uid").error;
        assert!(said.contains(why), "{key}: {said}");
    }
    annotate(&api, &pod_path("p"), &json!({}));
    assert_eq!(driver.prepare("own", "own-uid").error, "");
}
