//! What the driver tells of its node: health, taints, metrics, whole GPUs; and one mode at a time.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_kubelet_api::dra_health::HealthStatus;
use vcuda_machine::{Faults, Machine};
use vcuda_tests::dra::claims::{NODE, grants, published, put_claim, put_pod, result};
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::resource_api::ResourceApi;
use vcuda_tests::{Fixture, eventually};

/// Time that an immediate effect may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The fixture's first GPU falls off the bus, or is back.
fn lose(fixture: &Fixture, is_lost: bool) -> String {
    let machine = Machine::open(&fixture.machine()).unwrap();
    let uuid = machine.config().gpus[0].uuid.clone();
    let faults = Faults { lost: is_lost.then(|| uuid.clone()).into_iter().collect(), ..Faults::default() };
    faults.write(&fixture.machine()).unwrap();
    uuid
}

/// The value of a series of a page of metrics.
fn metric(page: &str, series: &str) -> f64 {
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with(&format!("{series} ")));
    let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_ill_gpu_is_told_to_kubelet_and_tainted_as_configured() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let mut driver = fixture.dra_driver_with(NODE, &api, "[dra]\nunhealthy_effect = \"NoExecute\"");
    driver.start();
    published(&api, 2);
    let all = driver.health_until(|devices| devices.len() == 2);
    for device in &all {
        assert_eq!(device.health(), HealthStatus::Healthy, "{device:?}");
        assert_eq!(device.device.as_ref().unwrap().pool_name, NODE);
    }
    let mut lost = None;
    let ill = driver.health_until(|devices| {
        let uuid = lost.get_or_insert_with(|| lose(&fixture, true)).to_ascii_lowercase();
        devices.iter().any(|device| {
            device.device.as_ref().unwrap().device_name == uuid && device.health() == HealthStatus::Unhealthy
        })
    });
    assert_eq!(ill.iter().filter(|device| !device.message.is_empty()).count(), 1, "{ill:?}");
    let taint = |api: &ResourceApi| {
        let devices = api.slices()[0]["spec"]["devices"].clone();
        let mut devices = devices.as_array().unwrap().clone();
        devices.retain(|device| !device["taints"].is_null());
        devices.first().map(|device| device["taints"][0].clone()).unwrap_or_default()
    };
    let is_tainted = |value: &str| {
        let taint = taint(&api);
        let expected = [json!("vcuda.io/unhealthy"), json!(value), json!("NoExecute")];
        ["key", "value", "effect"].map(|key| taint[key].clone()) == expected
    };
    eventually("its pods are to go", SOON, || is_tainted("lost"));
    let hot = Faults { hot: vec![lost.unwrap()], ..Faults::default() };
    hot.write(&fixture.machine()).unwrap();
    eventually("it answers again, and is too hot", SOON, || is_tainted("thermal"));
}

#[test]
fn metrics_tell_of_claims_and_failures() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    assert_ne!(driver.prepare("gone", "gone-uid").error, "");
    put_claim(&api, "large", "q", &[result("gpu", &gpu, "40Gi", "30")], &json!([]));
    put_pod(&api, "q", &[("main", &[("large", "gpu")])]);
    assert_ne!(driver.prepare("large", "large-uid").error, "");
    eventually("the claim is counted", SOON, || metric(&driver.metrics(), "vcuda_prepared_claims") == 1.0);
    let page = driver.metrics();
    let failures =
        |reason: &str| metric(&page, &format!("vcuda_prepare_failures_total{{reason=\"{reason}\"}}"));
    assert_eq!(["claim", "refused", "late"].map(failures), [1.0, 1.0, 0.0]);
    let prepared =
        |result: &str| metric(&page, &format!("vcuda_prepare_duration_seconds_count{{result=\"{result}\"}}"));
    assert_eq!(["done", "refused"].map(prepared), [1.0, 2.0]);
    assert_eq!(metric(&page, "vcuda_slices_written_total"), 1.0);
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    eventually("it is counted no more", SOON, || metric(&driver.metrics(), "vcuda_prepared_claims") == 0.0);
}

#[test]
fn a_whole_gpu_is_given_alone_and_without_the_shim() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 2);
    let slice = api.slices().remove(0);
    let all = slice["spec"]["devices"][0]["capacity"]["memory"]["value"].as_str().unwrap().to_owned();
    // As the chart's class has it.
    let whole = json!([{"source": "FromClass", "opaque": {"driver": "vcuda.io", "parameters":
        {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "whole": true}}}]);
    put_claim(&api, "whole", "p", &[result("gpu", &gpus[0], &all, "0")], &whole);
    put_pod(&api, "p", &[("main", &[("whole", "gpu")])]);
    let answer = driver.prepare("whole", "whole-uid");
    assert_eq!(answer.error, "");
    let cdi = fs::read_to_string(fixture.cdi().join("vcuda.io-claim-whole-uid.json")).unwrap();
    assert!(cdi.contains("/dev/nvidia0") || cdi.contains("/dev/nvidia1"), "{cdi}");
    assert!(!cdi.contains("/etc/ld.so.preload") && !cdi.contains("/etc/vcuda"), "{cdi}");
    eventually("it says so", SOON, || {
        api.device_statuses("whole").first().is_some_and(|entry| entry["data"]["whole"] == true)
    });
    // Nothing fits beside it, and a part is none.
    put_claim(&api, "beside", "q", &[result("gpu", &gpus[0], "1Gi", "0")], &json!([]));
    put_claim(&api, "part", "r", &[result("gpu", &gpus[1], "1Gi", "0")], &whole);
    put_pod(&api, "q", &[("main", &[("beside", "gpu")])]);
    put_pod(&api, "r", &[("main", &[("part", "gpu")])]);
    for (name, why) in [("beside", "not free"), ("part", "leave capacity.requests out")] {
        let said = driver.prepare(name, &format!("{name}-uid")).error;
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(grants(&fixture).len(), 1, "{:?}", grants(&fixture));
    assert_eq!(driver.unprepare("whole", "whole-uid"), "");
    assert!(grants(&fixture).is_empty());
}

#[test]
fn a_driver_waits_for_the_end_of_what_the_plugin_gave() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut node = fixture.node_named(NODE, "[release]\ninterval = \"200ms\"\ngrace = \"1s\"\n");
    let pod = node.kubelet.admit(PodSpec::share("old", 16, 30)).unwrap();
    node.kubelet.started(&pod);
    let api = ResourceApi::start(NODE);
    let known = json!({"metadata": {"namespace": "default", "name": "old", "uid": pod.uid}, "spec": {}});
    api.put("/api/v1/namespaces/default/pods/old", &known);
    let mut driver = fixture.dra_driver_with(NODE, &api, "");
    driver.start_alone();
    let why = "mode dra is refused while shares of mode plugin live on this node (default/old): ";
    eventually("it says what is in the way", SOON, || driver.problems().contains(why));
    assert!(driver.log().contains(why) && !driver.registers(), "{}", driver.log());
    assert!(api.slices().is_empty(), "a GPU is never given twice");
    // The plugin ends what it gave; then the driver is ready, and waits for the plugin's end.
    node.kubelet.remove(&pod);
    eventually("it is ready", SOON, || driver.problems().contains("200 OK"));
    assert!(!driver.registers());
    node.plugin.kill();
    eventually("it has taken over", SOON, || driver.registers());
    published(&api, 1);

    // And the other way round. A label for another mode is obeyed at the next start.
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    driver.kill();
    node.plugin.start();
    let why =
        "mode plugin is refused while shares of mode dra live on this node (claim default/one, default/p): ";
    eventually("the plugin says so", SOON, || node.plugin.log().contains(why));
    node.plugin.kill();
    let path = format!("/api/v1/nodes/{NODE}");
    let mut labelled: Value = api.object(&path).unwrap();
    labelled["metadata"]["labels"] = json!({"vcuda.io/mode": "plugin"});
    api.put(&path, &labelled);
    driver.start_alone();
    eventually("it obeys the label", SOON, || {
        driver.problems().contains("label vcuda.io/mode is \"plugin\"")
    });
    labelled["metadata"]["labels"] = json!({});
    api.put(&path, &labelled);
    eventually("it works again", SOON, || driver.registers());
    assert_eq!(driver.unprepare("one", "one-uid"), "");
}

/// `helm upgrade --set mode=plugin` under a pod with a claim: the rights of the old mode go first, and the rollout deletes an old pod
/// that is not ready.
#[test]
fn a_driver_without_rights_is_ready_until_its_claims_have_ended() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut node = fixture.node_named(NODE, "");
    node.plugin.kill();
    let api = ResourceApi::start(NODE);
    let driver = fixture.dra_driver(NODE, &api);
    let gpu = published(&api, 1).remove(0);
    put_claim(&api, "one", "p", &[result("gpu", &gpu, "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    api.forbid(true);
    api.delete_slices();
    eventually("it is refused", SOON, || driver.log().contains("is forbidden"));
    assert!(driver.problems().contains("200 OK"), "{}", driver.problems());
    let other = driver.prepare("two", "two-uid").error;
    assert!(
        other.contains("as when the mode of the chart is being changed") && !other.contains("forbidden"),
        "{other}"
    );
    // The pod ends, and with it the need for the driver.
    assert_eq!(driver.unprepare("one", "one-uid"), "");
    eventually("it says why it is not ready", SOON, || driver.problems().contains("is forbidden"));
    assert!(grants(&fixture).is_empty());
}

#[test]
fn a_driver_ends_what_the_plugin_gave_to_pods_that_are_gone() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut node = fixture.node_named(NODE, "");
    let pod = node.kubelet.admit(PodSpec::share("old", 16, 30)).unwrap();
    node.kubelet.started(&pod);
    // The node's label was changed: no plugin is left.
    node.plugin.kill();
    let api = ResourceApi::start(NODE);
    let mut driver = fixture.dra_driver_with(NODE, &api, "");
    driver.start_alone();
    eventually("it is ready, as the pod is gone", 2 * SOON, || driver.registers());
    assert!(grants(&fixture).is_empty());
}
