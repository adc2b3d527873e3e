//! A pod with the annotation `vcuda.io/suspendable` is suspended as other tenants are.

use std::fs;

use vcuda_tests::api_server::ApiServer;
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::{Door, Fixture, app, succeeded};

use super::{Program, SMALL, done, tenant};

const NODE: &str = "node-a";

#[test]
fn a_pod_that_says_so_is_suspended_and_comes_back() {
    let fixture = Fixture::with_config(SMALL);
    fs::write(
        fixture.home().join("manager.toml"),
        "[namespaces.default]\nsuspendable = true\n",
    )
    .unwrap();
    let server = ApiServer::start(NODE);
    let configuration = format!("[cluster]\nkubeconfig = \"{}\"\n", server.kubeconfig().display());
    let node = fixture.node_named(NODE, &configuration);
    let pod = node.kubelet.admit(PodSpec::share("notebook", 16, 30)).unwrap();
    let annotations = [("vcuda.io/suspendable", "true")];
    server.put("default", "notebook", &pod.uid, &annotations);
    let id = node.kubelet.started(&pod).id();
    let mut command = fixture.vcuda(["run", "--sim", "--grant", &id, "--"]);
    let mut program = Program::start(command.arg(app("suspended", Door::Link)));
    done(&fixture, "suspend", &id, &id, "suspended");
    assert_eq!(tenant(&fixture, &id)["holder"], "default/notebook/c");
    let table = succeeded(&fixture.vcuda(["smi"]).output().unwrap());
    assert!(
        table.contains("suspended: ") && table.contains("in host memory"),
        "{table}"
    );
    assert_eq!(program.ask("copy"), "0 intact");
    node.kubelet.assert_no_wrongs();
    server.assert_no_wrongs();
}
