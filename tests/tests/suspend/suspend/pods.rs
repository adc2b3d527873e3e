//! A pod with the annotation `vcuda.io/suspendable` is suspended as other tenants are, and pods with more than the GPU's memory take
//! turns.

use std::fs;

use vcuda_tests::api_server::ApiServer;
use vcuda_tests::kubelet::{PodSpec, Role};
use vcuda_tests::{Door, Fixture, app, soon};

use super::{Program, SMALL, done, state};

const NODE: &str = "node-a";

#[test]
fn a_pod_that_says_so_is_suspended_and_comes_back() {
    let fixture = Fixture::with_config(SMALL);
    fs::write(fixture.home().join("manager.toml"), "[namespaces.default]\nsuspendable = true\n").unwrap();
    let server = ApiServer::start(NODE);
    let configuration = format!("[cluster]\nkubeconfig = \"{}\"\n", server.kubeconfig().display());
    let node = fixture.node_named(NODE, &configuration);
    let pod = node.kubelet.admit(PodSpec::share("notebook", 16, 30)).unwrap();
    let annotations = [("vcuda.io/suspendable", "true")];
    server.put("default", "notebook", &pod.uid, &annotations);
    let id = node.kubelet.started(&pod).id();
    let mut program = Program::start(&mut fixture.in_grant(&id, app("suspended", Door::Link)));
    done(&fixture, "suspend", &id, &id, "suspended");
    assert_eq!(fixture.tenant_shown(&id)["holder"], "default/notebook/c");
    let table = fixture.stdout(["smi"]);
    assert!(table.contains("suspended: ") && table.contains("in host memory"), "{table}");
    assert_eq!(program.ask("copy"), "0 intact");
}

#[test]
fn pods_of_more_than_the_gpus_memory_take_turns_by_themselves() {
    let fixture = Fixture::with_config("context_bytes = \"8MiB\"\n[[gpus]]\nmemory_bytes = \"512MiB\"\n");
    fs::write(
        fixture.home().join("manager.toml"),
        "[admission]\nreserve = \"0\"\nsuspendable_overcommit = 1.75\n[namespaces.default]\nsuspendable = true\n",
    )
    .unwrap();
    let node = fixture
        .node_with("[resources]\nchunk = \"16MiB\"\nsuspendable_memory = \"vcuda.io/suspendable-memory\"\n");
    soon("three quarters of the memory are offered twice", || {
        node.kubelet.allocatable("vcuda.io/suspendable-memory") == 48
    });
    // 384 MiB each.
    let ids = ["one", "two"].map(|name| {
        let wants = [("gpu", 1), ("suspendable-memory", 24), ("cores", 20)];
        let pod = node.kubelet.admit(PodSpec::new(name).with("c", Role::Main, &wants));
        node.kubelet.started(&pod.unwrap()).id()
    });
    let [mut one, mut two] =
        ids.each_ref().map(|id| Program::start(&mut fixture.in_grant(id, app("suspended", Door::Link))));
    assert_eq!(one.ask("hold 310"), "0");
    assert_eq!(one.ask("fill"), "0 intact");
    assert_eq!(two.ask("hold 310"), "0");
    assert_eq!(state(&fixture, &ids[0]), "suspended");
    assert_eq!(one.ask("all"), "0 intact");
    assert_eq!(state(&fixture, &ids[1]), "suspended");
}
