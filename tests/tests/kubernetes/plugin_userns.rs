//! A pod with its own user namespace (`hostUsers: false`): its root is an unprivileged user of the host, and the
//! specification's mounts belong to no user that it knows.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::runc::{Container, inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, Running, app, eventually, succeeded};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Host user that is root in the container.
const ROOT_USER: u32 = 100_000;

#[test]
fn a_container_in_a_user_namespace_is_held_to_its_quota_and_known() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let node = fixture.node_with("strict = true\n");
    let (kubelet, manager) = (&node.kubelet, &node.manager);
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    let mut container = Container::new(&fixture, &started);
    container.root_user = Some(ROOT_USER);
    let quota = [inside(&app("quota", Door::Dlsym)), (4 * GIB).to_string()];
    let Some(first) = container.run(&["cat", "/proc/self/uid_map"]) else {
        return;
    };
    let map = succeeded(&first);
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
    for uid in [0, 1000] {
        let own = container.clone().of(uid);
        assert!(own.printed(&[&quota[0], &quota[1]]).contains("passed"));
        let smi: Value = serde_json::from_str(&own.printed(&["vcuda", "smi", "--json"])).unwrap();
        assert_eq!(smi["gpus"][0]["tenants"][0]["memory_limit_bytes"], 4 * GIB, "{smi}");
    }
    // The manager knows its processes by their host PIDs.
    let bundle = container.bundle(&[&inside(&app("hold", Door::Dlsym)), &GIB.to_string()]);
    let mut running = Running::start(&mut container.command(&bundle));
    running.wait_for("holding");
    let of = "pod=\"a\"";
    eventually("it is attached", SOON, || manager.metric("vcuda_shim_attached", of) > 0.5);
    let shown = || {
        let ps = succeeded(&fixture.vcuda(["ps", "--json"]).output().unwrap());
        serde_json::from_str::<Value>(&ps).unwrap()["processes"].clone()
    };
    // Earlier processes, in PID namespaces that are gone, are known to have ended.
    eventually("one process is left", SOON, || shown().as_array().unwrap().len() == 1);
    let pid = shown()[0]["pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains(&format!("Uid:\t{ROOT_USER}\t")), "{status}");
    assert!(manager.metric("vcuda_audit_findings", of) < 0.5);
}
