//! Driver for Dynamic Resource Allocation between a manager, a kubelet that prepares claims, and an API server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::dra::claims::{NODE, grants, made_for, pod_path, published, put_claim, put_pod, result};
use vcuda_tests::resource_api::ResourceApi;
use vcuda_tests::{Door, Fixture, Running, app, eventually, succeeded};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn gib(number: u64) -> u64 {
    number << 30
}

#[test]
fn a_claim_becomes_a_grant_and_what_its_container_receives() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);

    let burst = json!([{"source": "FromClaim", "opaque": {"driver": "vcuda.io", "parameters":
        {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "policy": "burst"}}}]);
    put_claim(&api, "one", "p", &[result("gpu", &gpus[0], "4Gi", "30")], &burst);
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    let answer = driver.prepare("one", "one-uid");
    assert_eq!(answer.error, "");
    let [device] = answer.devices.try_into().unwrap();
    assert_eq!((device.pool_name.as_str(), &device.device_name), (NODE, &gpus[0]));
    assert_eq!(device.request_names, ["gpu"]);
    assert_eq!(device.share_id.as_deref(), Some("gpu-share"));
    assert_eq!(device.cdi_device_ids, ["vcuda.io/claim=one-uid-gpu"]);
    assert_eq!(grants(&fixture), [("default/p/main".to_owned(), gib(4), 300)]);
    let cdi = fs::read_to_string(fixture.cdi().join("vcuda.io-claim-one-uid.json")).unwrap();
    assert!(cdi.contains("/etc/vcuda/limits") && cdi.contains("/etc/ld.so.preload"), "{cdi}");

    // Kubelet asks again after its restart and after the driver's; the API server may then be down.
    driver.kill();
    driver.start();
    api.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one");
    assert_eq!(driver.prepare("one", "one-uid").devices, [device]);
    for _ in 0..2 {
        assert_eq!(driver.unprepare("one", "one-uid"), "");
    }
    assert!(grants(&fixture).is_empty());
    assert_eq!(fs::read_dir(fixture.cdi()).unwrap().count(), 0);
}

#[test]
fn lost_files_are_written_again() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    let answer = driver.prepare("one", "one-uid");
    let files = || -> BTreeMap<OsString, Vec<u8>> {
        let entries = fs::read_dir(fixture.cdi()).unwrap().map(Result::unwrap);
        entries.filter_map(|entry| Some((entry.file_name(), fs::read(entry.path()).ok()?))).collect()
    };
    let list = || succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let (written, granted) = (files(), list());
    let remove = |name: &OsString| fs::remove_file(fixture.cdi().join(name)).unwrap();
    written.keys().for_each(remove);
    // A file that is being written has another name before.
    eventually("both are there", SOON, || files().keys().eq(written.keys()));
    let spec = OsString::from("vcuda.io-claim-one-uid.json");
    assert_eq!(files()[&spec], written[&spec]);
    assert_eq!(list(), granted, "the grant is the same");
    assert_eq!(driver.prepare("one", "one-uid").devices, answer.devices);
    // What kubelet has undone stays so.
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    std::thread::sleep(Duration::from_secs(6));
    assert!(files().is_empty() && grants(&fixture).is_empty(), "{}", driver.log());
}

/// Kubelet tries a pod that came before again only after 60 to 90 s.
#[test]
fn gpus_are_published_once_kubelet_knows_the_driver() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver_with(NODE, &api, "");
    driver.start_alone();
    eventually("it serves kubelet", SOON, || driver.socket().exists());
    // Without kubelet it waits longer than the second in which it else publishes.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(api.slices(), Vec::<Value>::new());
    driver.register();
    published(&api, 1);
}

/// A kubelet that never answers for the driver, as one that knows it already from before, delays them by 20 s.
#[test]
fn gpus_are_published_in_the_end_without_kubelet() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver_with(NODE, &api, "");
    driver.start_alone();
    eventually("they are published", Duration::from_secs(90), || !api.slices().is_empty());
    assert!(driver.log().contains("the GPUs are published all the same"), "{}", driver.log());
}

/// Kubelet before 1.37 undoes a claim also for a pod whose own claims failed. A pod that has ended keeps its phase until its claims are
/// undone.
#[test]
fn a_claim_of_a_pod_that_runs_is_not_undone() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    let is_in_state = |state: Value, deleted: Option<&str>| {
        let mut pod = api.object(&pod_path("p")).unwrap();
        pod["spec"]["nodeName"] = json!(NODE);
        pod["metadata"]["deletionTimestamp"] = json!(deleted);
        let main = json!({"name": "main", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
        let sandbox = json!({"type": "PodReadyToStartContainers", "status": "True"});
        pod["status"] = json!({"phase": "Running", "containerStatuses": [main], "conditions": [sandbox]});
        api.put(&pod_path("p"), &pod);
    };
    // It may also have yet to start, or to start again.
    for state in [json!({"running": {}}), json!({"waiting": {"reason": "CrashLoopBackOff"}})] {
        is_in_state(state, None);
        let refusal = driver.unprepare("one", "one-uid");
        assert!(refusal.contains("a container of pod p runs"), "{refusal}");
    }
    assert!(fixture.cdi().join("vcuda.io-claim-one-uid.json").is_file());
    assert_eq!(grants(&fixture).len(), 1);
    is_in_state(json!({"terminated": {"exitCode": 0}}), None);
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    assert!(grants(&fixture).is_empty());
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    is_in_state(json!({"running": {}}), Some("2026-01-01T00:00:00Z"));
    assert_eq!(driver.unprepare("one", "one-uid"), "", "it is being deleted");
}

/// Kubelet asks once for a claim, with which a later pod may use another request.
#[test]
fn a_later_pod_of_a_shared_claim_finds_its_request_granted() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);
    let results = [result("a", &gpus[0], "4Gi", "30"), result("b", &gpus[1], "2Gi", "20")];
    for (claim, is_own) in [("shared", false), ("own", true)] {
        put_claim(&api, claim, "p", &results, &json!([]));
        if is_own {
            made_for(&api, claim, "p");
        }
        put_pod(&api, "p", &[("main", &[(claim, "a")])]);
        let uid = format!("{claim}-uid");
        let answer = driver.prepare(claim, &uid);
        assert_eq!(answer.error, "");
        let devices: Vec<(Vec<String>, Vec<String>)> =
            answer.devices.into_iter().map(|one| (one.request_names, one.cdi_device_ids)).collect();
        let device = |request: &str| vec![format!("vcuda.io/claim={uid}-{request}")];
        let of_b = if is_own { Vec::new() } else { device("b") };
        assert_eq!(devices, [(vec!["a".to_owned()], device("a")), (vec!["b".to_owned()], of_b)]);
        assert_eq!(grants(&fixture).len(), if is_own { 1 } else { 2 });
        assert_eq!(driver.unprepare(claim, &uid), "");
    }
    // A request that cannot be granted keeps no pod from another one.
    put_claim(
        &api,
        "half",
        "p",
        &[result("a", &gpus[0], "4Gi", "30"), result("b", "gone", "2Gi", "20")],
        &json!([]),
    );
    put_pod(&api, "p", &[("main", &[("half", "a")])]);
    assert_eq!(driver.prepare("half", "half-uid").error, "");
    assert_eq!(grants(&fixture).len(), 1);
}

/// Kubelet before 1.37 undoes a claim also for a pod whose own claims failed.
#[test]
fn a_claim_that_a_process_uses_is_not_undone() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    let list = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let list: Value = serde_json::from_str(&list).unwrap();
    let id = list["grants"][0]["id"].as_str().unwrap();
    let mut command = fixture.vcuda(["run", "--sim", "--grant", id, "--"]);
    let mut user = Running::start(command.arg(app("hold", Door::Dlsym)).arg(gib(1).to_string()));
    user.wait_for("holding");
    let refusal = driver.unprepare("one", "one-uid");
    assert!(refusal.contains("processes still use grant"), "{refusal}");
    assert!(fixture.cdi().join("vcuda.io-claim-one-uid.json").is_file());
    user.signal(libc::SIGKILL);
    user.finish();
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    assert!(grants(&fixture).is_empty());
}

#[test]
fn a_claim_may_be_suspended_if_it_says_so_and_its_namespace_may() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    let config = |value: Value| {
        json!([{"source": "FromClaim", "opaque": {"driver": "vcuda.io", "parameters":
            {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "suspendable": value}}}])
    };
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    let share = [result("gpu", &gpu, "4Gi", "30")];
    put_claim(&api, "one", "p", &share, &config(json!("true")));
    let wrong = driver.prepare("one", "one-uid").error;
    assert!(wrong.contains("invalid type"), "{wrong}");
    put_claim(&api, "one", "p", &share, &config(json!(true)));
    let refusal = driver.prepare("one", "one-uid").error;
    assert!(refusal.contains("pods of namespace default may not be suspended"), "{refusal}");

    fs::write(fixture.home().join("manager.toml"), "[namespaces.\"*\"]\nsuspendable = true\n").unwrap();
    drop(manager);
    let _manager = fixture.manager_with_shim();
    eventually("the manager answers again", SOON, || driver.prepare("one", "one-uid").error.is_empty());
    let listed = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["grants"][0]["suspendable"], true, "{listed}");
}

#[test]
fn requests_of_one_container_are_one_grant_and_those_of_others_their_own() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);

    let both = [result("a", &gpus[0], "4Gi", "30"), result("b", &gpus[1], "4Gi", "30")];
    put_claim(&api, "both", "p", &both, &json!([]));
    put_pod(&api, "p", &[("main", &[("both", "")])]);
    let answer = driver.prepare("both", "both-uid");
    assert_eq!(answer.error, "");
    let named: Vec<_> = answer.devices.iter().map(|device| device.cdi_device_ids.clone()).collect();
    assert_eq!(named, [vec!["vcuda.io/claim=both-uid-a".to_owned()], vec![]], "once for the container");
    assert_eq!(grants(&fixture), [("default/p/main".to_owned(), gib(4), 300)]);

    let each = [result("a", &gpus[0], "2Gi", "0"), result("b", &gpus[0], "3Gi", "10")];
    put_claim(&api, "each", "q", &each, &json!([]));
    put_pod(&api, "q", &[("first", &[("each", "a")]), ("second", &[("each", "b")])]);
    assert_eq!(driver.prepare("each", "each-uid").error, "");
    let of_q: Vec<_> = grants(&fixture).into_iter().filter(|grant| grant.0.contains("/q/")).collect();
    let expected =
        [("default/q/first".to_owned(), gib(2), 1000), ("default/q/second".to_owned(), gib(3), 100)];
    assert_eq!(of_q, expected);
    assert_eq!(driver.unprepare("each", "each-uid"), "");
    assert_eq!(grants(&fixture).len(), 1, "the other claim keeps its own");
}

#[test]
fn what_cannot_be_prepared_says_why_and_leaves_nothing() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    let refused = |name: &str, why: &str| {
        let said = driver.prepare(name, &format!("{name}-uid")).error;
        assert!(said.contains(why), "{name}: {said}");
        assert!(said.starts_with(&format!("claim default/{name}: ")), "{said}");
    };

    refused("gone", "there is no claim of this name");
    put_pod(&api, "p", &[("main", &[("same", ""), ("two", "")]), ("side", &[("unequal", "")])]);
    let same = [result("a", &gpu, "1Gi", "1"), result("b", &gpu, "1Gi", "1")];
    put_claim(&api, "same", "p", &same, &json!([]));
    refused("same", "distinctAttribute: vcuda.io/uuid");
    put_claim(&api, "two", "p", &[result("a", &gpu, "1Gi", "1")], &json!([]));
    refused("two", "a container uses this claim and claim same");
    put_claim(&api, "nobody", "absent", &[result("a", &gpu, "1Gi", "1")], &json!([]));
    refused("nobody", "reserved for no pod that there is");
    put_pod(&api, "q", &[("main", &[("lacks", "gpu9")])]);
    put_claim(&api, "lacks", "q", &[result("gpu", &gpu, "1Gi", "1")], &json!([]));
    refused("lacks", "container q/main names request \"gpu9\", which the claim does not have; it has gpu");
    put_claim(&api, "unequal", "p", &[result("a", "gpu-unknown", "1Gi", "1")], &json!([]));
    refused("unequal", "device gpu-unknown is not on this node");
    put_claim(&api, "unequal", "p", &[result("a", &gpu, "30Gi", "1")], &json!([]));
    refused("unequal", "30 GiB and 1 % are not free");
    let typo =
        json!([{"source": "FromClaim", "opaque": {"driver": "vcuda.io", "parameters": {"polcy": "burst"}}}]);
    put_claim(&api, "unequal", "p", &[result("a", &gpu, "1Gi", "1")], &typo);
    refused("unequal", "unknown field `polcy`");
    let uid = driver.prepare("two", "../../etc").error;
    assert!(uid.contains("\"../../etc\" is no UID"), "{uid}");
    assert!(grants(&fixture).is_empty());
    assert_eq!(fs::read_dir(fixture.cdi()).unwrap().count(), 0);
}

#[test]
fn the_slices_are_as_the_gpus_are_and_come_back() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);
    let slice = api.slices().remove(0);
    assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], NODE);
    assert_eq!(slice["spec"]["devices"][0]["capacity"]["cores"]["value"], "100");
    eventually("it is ready", SOON, || driver.problems().contains("200 OK"));

    // Kubelet deletes slices at its start.
    api.delete_slices();
    assert_eq!(published(&api, 2), gpus);
    // A cordoned GPU takes no new claims, and is offered again later.
    let taints = |api: &ResourceApi| api.slices()[0]["spec"]["devices"][0]["taints"].clone();
    let listed = succeeded(&fixture.vcuda(["gpu", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let uuids: Vec<String> = listed["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| gpu["uuid"].as_str().unwrap().to_owned())
        .collect();
    let first = uuids.iter().find(|uuid| uuid.to_ascii_lowercase() == gpus[0]).unwrap();
    succeeded(&fixture.vcuda(["gpu", "cordon", first.as_str()]).output().unwrap());
    eventually("it is tainted", SOON, || taints(&api)[0]["key"] == "vcuda.io/cordoned");
    succeeded(&fixture.vcuda(["gpu", "uncordon", first.as_str()]).output().unwrap());
    eventually("it is no more", SOON, || taints(&api).is_null());

    // Without the gate a claim would get a whole GPU.
    api.set_gate_off(true);
    api.delete_slices();
    eventually("the reason is shown", SOON, || driver.problems().contains("DRAConsumableCapacity"));
    eventually("no slice is left", SOON, || api.slices().is_empty());
    api.set_gate_off(false);
    assert_eq!(published(&api, 2), gpus);
    eventually("it is ready again", SOON, || driver.problems().contains("200 OK"));
}

/// Kubelet dials a path at which it has failed again only after up to two minutes.
#[test]
fn a_driver_that_kubelet_does_not_dial_is_offered_under_another_name() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver_with(NODE, &api, "");
    driver.start_alone();
    let mut names = Vec::new();
    eventually("two names were offered", SOON, || {
        names.extend(driver.registration_sockets());
        names.dedup();
        names.len() > 1
    });
    driver.register();
    published(&api, 1);
    driver.kill();
    // Kubelet knows this name as the driver's.
    let left = driver.registration_sockets();
    assert_eq!(left, names[names.len() - 1..]);
    driver.start();
    assert_eq!(driver.registration_sockets(), left);
}

#[test]
fn a_second_driver_is_ready_and_waits_for_the_firsts_end() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut first = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    // In a rollout the old pod ends when the new one is ready.
    let second = fixture.dra_driver(NODE, &api);
    eventually("the second is ready", SOON, || second.problems().contains("200 OK"));
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    let prepared = first.prepare("one", "one-uid").devices;
    assert_eq!(prepared.len(), 1);
    first.kill();
    eventually("the second has taken over", SOON, || second.registers());
    assert_eq!(second.prepare("one", "one-uid").devices, prepared);
    assert_eq!(second.unprepare("one", "one-uid"), "");
}
