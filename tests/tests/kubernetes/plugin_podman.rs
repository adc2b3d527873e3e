//! The plugin's specification with podman, a container engine that we did not write: the pod's request holds.

use serde_json::Value;
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::runc::{inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, app, podman, succeeded};

#[test]
fn an_engine_that_reads_specifications_itself_starts_a_limited_container() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    open_machine(&fixture);
    // With the hook of strict containers, too.
    let node = fixture.node_with("strict = true\n");
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    let quota = inside(&app("quota", Door::Dlsym));
    let Some(held) = podman::run(&fixture, &started, &[&quota, &(4 * GIB).to_string()]) else {
        return;
    };
    assert!(succeeded(&held).contains("passed"));
    let said = |args: &[&str]| succeeded(&podman::run(&fixture, &started, args).unwrap());
    let smi: Value = serde_json::from_str(&said(&["vcuda", "smi", "--json"])).unwrap();
    assert_eq!(smi["gpus"].as_array().unwrap().len(), 1, "{smi}");
    assert_eq!(smi["gpus"][0]["tenants"][0]["memory_limit_bytes"], 4 * GIB, "{smi}");
    let found = said(&["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES /dev/nvidia[0-9]*"]);
    let words: Vec<&str> = found.split_whitespace().collect();
    assert!(words.len() == 2 && words[0] == "void", "{found}");
}
