//! Overcommit of a GPU's memory by pods, in both modes: suspendable pods together exceed the GPU, others never do, and what fits into
//! what the node offers is always granted.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::dra::claims::{NODE, grants, published, put_claim, put_pod, result};
use vcuda_tests::kubelet::{Kubelet, PodSpec, Role};
use vcuda_tests::resource_api::ResourceApi;
use vcuda_tests::{Fixture, GIB, eventually};

/// Resource of memory that suspendable pods take turns in.
const SUSPENDABLE: &str = "vcuda.io/suspendable-memory";
/// Configuration of a plugin that has it.
const WITH_SUSPENDABLE: &str = "[resources]\nsuspendable_memory = \"vcuda.io/suspendable-memory\"\n";
/// Memory of the GPU (GiB).
const GPU_GIB: u64 = 24;
/// Chunks of a GiB.
const CHUNKS: usize = 4;

/// A node whose manager overcommits the memory of its GPU.
fn node(factor: &str) -> Fixture {
    let fixture = Fixture::with_gpus(1, &format!("{GPU_GIB}GiB"));
    overcommit(&fixture, factor);
    fixture
}

/// Configures the manager that is started next.
fn overcommit(fixture: &Fixture, factor: &str) {
    let configuration = format!(
        "[admission]\nreserve = \"0\"\nsuspendable_overcommit = {factor}\n[namespaces.default]\nsuspendable = true\n"
    );
    fs::write(fixture.home().join("manager.toml"), configuration).unwrap();
}

fn wait_for_suspendable(kubelet: &Kubelet) {
    eventually("kubelet has all resources", Duration::from_secs(30), || kubelet.allocatable(SUSPENDABLE) > 0);
}

fn suspendable(name: &str, chunks: usize, percent: usize) -> PodSpec {
    let wants = [("gpu", 1), ("suspendable-memory", chunks), ("cores", percent)];
    PodSpec::new(name).with("c", Role::Main, &wants)
}

/// Admits and starts a pod. Returns whether it may be suspended.
fn start(kubelet: &Kubelet, spec: PodSpec) -> bool {
    kubelet.started(&kubelet.admit(spec).unwrap()).is_suspendable()
}

#[test]
fn suspendable_pods_by_counts_exceed_the_gpu_and_others_do_not() {
    let fixture = node("1.75");
    let node = fixture.node_with(WITH_SUSPENDABLE);
    let kubelet = &node.kubelet;
    wait_for_suspendable(kubelet);
    // A quarter of the memory is for all, and three quarters are given twice.
    let (common, twice) = (kubelet.allocatable("vcuda.io/memory"), kubelet.allocatable(SUSPENDABLE));
    assert_eq!((common, twice), (6 * CHUNKS, 36 * CHUNKS));
    for name in ["infer", "train"] {
        assert!(start(kubelet, suspendable(name, 18 * CHUNKS, 30)));
    }
    let memory = || grants(&fixture).iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    assert_eq!(memory(), 36 * GIB, "beyond the {GPU_GIB} GiB of the GPU");
    assert!(!start(kubelet, PodSpec::share("web", common, 40)));
    // There is no more for others, though the quotas of all are within the factor.
    let refused = kubelet.admit(PodSpec::share("more", 1, 0)).unwrap_err();
    assert!(refused.contains("vcuda.io/memory"), "{refused}");
    assert_eq!(memory(), 42 * GIB);
}

/// The scheduler counts the parts of all GPUs together. The manager's choice alone would fill a GPU with pods that are not suspendable,
/// and the last suspendable ones would find too little.
#[test]
fn pods_by_counts_fill_the_parts_of_each_gpu() {
    let fixture = Fixture::with_gpus(2, &format!("{GPU_GIB}GiB"));
    overcommit(&fixture, "1.5");
    let node = fixture.node_with(WITH_SUSPENDABLE);
    let kubelet = &node.kubelet;
    wait_for_suspendable(kubelet);
    assert_eq!(
        (kubelet.allocatable("vcuda.io/memory"), kubelet.allocatable(SUSPENDABLE)),
        (24 * CHUNKS, 48 * CHUNKS)
    );
    for number in 0..4 {
        assert!(!start(kubelet, PodSpec::share(&format!("web-{number}"), 6 * CHUNKS, 5)));
    }
    for number in 0..4 {
        assert!(start(kubelet, suspendable(&format!("infer-{number}"), 12 * CHUNKS, 5)));
    }
}

#[test]
fn a_pod_by_counts_is_refused_for_memory_of_both_kinds_and_for_more_than_one_can_have() {
    let fixture = node("1.75");
    let node = fixture.node_with(WITH_SUSPENDABLE);
    let kubelet = &node.kubelet;
    wait_for_suspendable(kubelet);
    let both = [("gpu", 1), ("memory", 4), ("suspendable-memory", 4), ("cores", 10)];
    for (spec, said) in [
        (
            PodSpec::new("both").with("c", Role::Main, &both),
            "it asks for vcuda.io/memory and for vcuda.io/suspendable-memory: leave one of them out",
        ),
        (
            suspendable("large", 18 * CHUNKS + 1, 10),
            "vcuda.io/suspendable-memory: 73 is 18.25 GiB on each of 1 GPUs; the largest that this node has gives 18 GiB",
        ),
    ] {
        let pod = kubelet.admit(spec).unwrap();
        let refusal = kubelet.start_container(&pod, "c").unwrap_err();
        assert!(refusal.contains(said), "{refusal}");
        kubelet.remove(&pod);
    }
    assert!(grants(&fixture).is_empty());
}

#[test]
fn without_a_name_for_it_a_node_offers_the_gpu_once() {
    let fixture = node("1.75");
    let node = fixture.node();
    let chunks = node.kubelet.allocatable("vcuda.io/memory");
    assert_eq!(chunks, 24 * CHUNKS);
    assert!(!node.kubelet.knows(SUSPENDABLE, Duration::ZERO));
}

fn parameters(parameters: &Value) -> Value {
    let mut all = json!({"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig"});
    all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    json!([{"source": "FromClass", "opaque": {"driver": "vcuda.io", "parameters": all}}])
}

#[test]
fn suspendable_claims_exceed_the_gpu_on_a_device_of_their_own() {
    let fixture = node("1.75");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let [twice, common] = <[String; 2]>::try_from(published(&api, 2)).unwrap();
    assert_eq!(twice, format!("{common}-suspendable"));
    let capacity = |place: usize, name: &str| {
        let device = api.slices()[0]["spec"]["devices"][place].clone();
        device["capacity"][name]["value"].as_str().unwrap().to_owned()
    };
    assert_eq!([capacity(0, "memory"), capacity(1, "memory")], ["36Gi", "6Gi"]);
    assert_eq!([capacity(0, "cores"), capacity(1, "cores")], ["0", "100"]);

    let prepare = |name: &str, share: Value, config: Value| {
        put_pod(&api, name, &[("main", &[(name, "gpu")])]);
        put_claim(&api, name, name, &[share], &config);
        driver.prepare(name, &format!("{name}-uid")).error
    };
    let may_be = || parameters(&json!({"suspendable": true}));
    for name in ["infer", "train"] {
        assert_eq!(prepare(name, result("gpu", &twice, "18Gi", "0"), may_be()), "");
    }
    let plain = || parameters(&json!({}));
    assert_eq!(prepare("web", result("gpu", &common, "6Gi", "40"), plain()), "");
    let held: u64 = grants(&fixture).iter().map(|(_, bytes, _)| bytes).sum();
    assert_eq!(held, 42 * GIB, "beyond the {GPU_GIB} GiB of the GPU");

    // What the scheduler does not place there by the device classes.
    let refused = prepare("other", result("gpu", &twice, "1Gi", "0"), plain());
    assert!(
        refused.contains("request gpu was allocated device gpu-")
            && refused.contains("and is not suspendable: claim it by"),
        "{refused}"
    );
    let refused = prepare("whole", result("gpu", &common, "6Gi", "0"), parameters(&json!({"whole": true})));
    assert!(refused.contains("whose memory is overcommitted"), "{refused}");
    // Nor does the manager admit more than the GPU has beside a suspendable tenant.
    let refused = prepare("more", result("gpu", &common, "1Gi", "0"), plain());
    assert!(refused.contains("1 GiB is not free on 1 GPU"), "{refused}");
    assert_eq!(grants(&fixture).len(), 3);
}
