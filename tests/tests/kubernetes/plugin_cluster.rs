//! Pods' annotations, from the API server to the limits of running containers.

use std::time::Duration;

use serde_json::Value;
use vcuda_tests::api_server::ApiServer;
use vcuda_tests::kubelet::{Kubelet, Pod, PodSpec};
use vcuda_tests::{Fixture, GIB, eventually, succeeded};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const NODE: &str = "node-a";

fn configuration(server: &ApiServer) -> String {
    format!(
        "[cluster]\nkubeconfig = \"{}\"\n[release]\ninterval = \"200ms\"\ngrace = \"1s\"\n",
        server.kubeconfig().display()
    )
}

/// Amounts of a grant by the manager.
fn granted(fixture: &Fixture, pod: &Pod) -> Value {
    let listed = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let grants = listed["grants"].as_array().unwrap();
    let holder = format!("default/{}/c", pod.spec.name);
    let of_pod = grants.iter().find(|grant| grant["holder"] == holder);
    of_pod.cloned().unwrap_or_else(|| panic!("{listed}"))
}

#[test]
fn a_pod_competes_as_its_annotations_say_and_within_the_nodes_bounds() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let server = ApiServer::start(NODE);
    let node = fixture.node_named(NODE, &configuration(&server));
    let kubelet = &node.kubelet;

    let burst = kubelet.admit(PodSpec::share("burst", 16, 30)).unwrap();
    server.put(
        "default",
        "burst",
        &burst.uid,
        &[("vcuda.io/policy", "burst"), ("vcuda.io/cores-max", "80"), ("vcuda.io/priority.c", "low")],
    );
    kubelet.started(&burst);
    let grant = granted(&fixture, &burst);
    assert_eq!(grant["policy"], "burst", "{grant}");
    assert_eq!(grant["priority"], "low", "{grant}");
    assert_eq!(grant["cores_max_permille"], 800, "{grant}");
    wrong_annotations_are_refused_until_mended(kubelet, &server);
    annotations_are_a_pods_by_its_uid(&fixture, kubelet, &server);
}

/// Annotations beyond the operator's bounds, misspelt, or above the request: the container does not start, and its owner
/// reads why.
fn wrong_annotations_are_refused_until_mended(kubelet: &Kubelet, server: &ApiServer) {
    for (name, key, value, why) in [
        ("high", "vcuda.io/priority", "high", "pods of namespace default may have at most normal"),
        ("misspelt", "vcuda.io/polcy", "burst", "there is none of this name"),
        ("more", "vcuda.io/memory", "8Gi", "annotations only lower"),
        (
            "misnamed",
            "vcuda.io/policy.mian",
            "burst",
            "no container of this name with a share of a GPU; it has c",
        ),
    ] {
        let pod = kubelet.admit(PodSpec::share(name, 16, 10)).unwrap();
        server.put("default", name, &pod.uid, &[(key, value)]);
        let refusal = kubelet.start_container(&pod, "c").unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
        // The owner corrects it, and kubelet's next try succeeds.
        server.put("default", name, &pod.uid, &[]);
        kubelet.started(&pod);
        kubelet.remove(&pod);
    }
}

/// Only where the operator allows it; not for whole GPUs; and it stays as it was when the container was made.
#[test]
fn a_pod_may_be_suspended_if_it_says_so_and_its_namespace_may() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let server = ApiServer::start(NODE);
    let mut node = fixture.node_named(NODE, &configuration(&server));
    let annotate = |pod: &Pod, value: &str| {
        let annotations = [("vcuda.io/suspendable", value)];
        server.put("default", &pod.spec.name, &pod.uid, &annotations);
    };
    let refused = node.kubelet.admit(PodSpec::share("web", 16, 30)).unwrap();
    annotate(&refused, "true");
    let refusal = node.kubelet.start_container(&refused, "c").unwrap_err();
    assert!(
        refusal.contains("pods of namespace default may not be suspended")
            && refusal.contains("the bound is namespaces.\"*\" in the manager's configuration"),
        "{refusal}"
    );
    annotate(&refused, "yes");
    let refusal = node.kubelet.start_container(&refused, "c").unwrap_err();
    assert!(refusal.contains("vcuda.io/suspendable \"yes\": write true or false"), "{refusal}");
    annotate(&refused, "false");
    assert!(!node.kubelet.started(&refused).is_suspendable());
    node.kubelet.remove(&refused);

    std::fs::write(fixture.home().join("manager.toml"), "[namespaces.default]\nsuspendable = true\n")
        .unwrap();
    drop(node.manager);
    node.manager = fixture.manager_with_shim();
    let pod = node.kubelet.admit(PodSpec::share("notebook", 16, 30)).unwrap();
    annotate(&pod, "true");
    let started = node.kubelet.started(&pod);
    assert!(started.is_suspendable());
    let listed = granted(&fixture, &pod);
    assert_eq!(listed["suspendable"], true, "{listed}");
    // A restart of the container reads the annotation again, and the tenant is the same.
    annotate(&pod, "false");
    assert!(node.kubelet.started(&pod).is_suspendable());
}

fn annotations_are_a_pods_by_its_uid(fixture: &Fixture, kubelet: &Kubelet, server: &ApiServer) {
    // A former pod of the same name, with other annotations, is another pod.
    let namesake = kubelet.admit(PodSpec::share("namesake", 16, 10)).unwrap();
    server.put("default", "namesake", "not-its-uid", &[("vcuda.io/policy", "burst")]);
    kubelet.started(&namesake);
    assert_eq!(granted(fixture, &namesake)["policy"], "fixed");
    // A static pod's mirror has another UID, and contains kubelet's.
    let fixed = kubelet.admit(PodSpec::share("static-node-a", 16, 10)).unwrap();
    let of_mirror = [("kubernetes.io/config.mirror", fixed.uid.as_str()), ("vcuda.io/policy", "burst")];
    server.put("default", "static-node-a", "the-mirrors-own-uid", &of_mirror);
    kubelet.started(&fixed);
    assert_eq!(granted(fixture, &fixed)["policy"], "burst");
}

#[test]
fn a_running_pod_follows_its_annotations_and_what_an_operator_set_stays() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut server = ApiServer::start(NODE);
    let mut node = fixture.node_named(NODE, &configuration(&server));
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("web", 32, 60)).unwrap();
    let put = |server: &ApiServer, memory: &str, cores: &str| {
        let annotations = [("vcuda.io/memory", memory), ("vcuda.io/cores", cores)];
        server.put("default", "web", &pod.uid, &annotations);
    };
    put(&server, "4Gi", "60");
    let started = kubelet.started(&pod);
    let has = |memory: u64, permille: u32| {
        let limits = started.limits();
        limits[0].1 == memory && limits[0].2 == permille
    };
    assert!(has(4 * GIB, 600), "{:?}", started.limits());
    put(&server, "2Gi", "20");
    eventually("the running container has less", SOON, || has(2 * GIB, 200));
    // Raised again, up to the amount that kubelet counted for it.
    put(&server, "8Gi", "60");
    eventually("the running container has all that it asked for", SOON, || has(8 * GIB, 600));
    // More is refused, and the present amount stays.
    put(&server, "9Gi", "60");
    eventually("the refusal is logged", SOON, || node.plugin.log().contains("annotations only lower"));
    assert!(has(8 * GIB, 600));
    put(&server, "8Gi", "60");

    // An operator's setting stays through restarts of all, until the annotations change.
    let id = started.id();
    succeeded(&fixture.vcuda(["set", &id, "--memory", "3GiB"]).output().unwrap());
    assert!(has(3 * GIB, 600), "{:?}", started.limits());
    node.plugin.kill_and_restart();
    node.manager.kill_and_restart();
    server.pause();
    server.compact();
    server.resume();
    let mut admitted = None;
    eventually("kubelet admits again", SOON, || {
        admitted = kubelet.admit(PodSpec::share("other", 16, 10)).ok();
        admitted.is_some()
    });
    let other = admitted.unwrap();
    server.put("default", "other", &other.uid, &[("vcuda.io/policy", "burst")]);
    kubelet.started(&other);
    eventually("annotations are read again", SOON, || granted(&fixture, &other)["policy"] == "burst");
    kubelet.started(&pod);
    assert!(has(3 * GIB, 600), "{:?}", started.limits());
    put(&server, "1Gi", "60");
    eventually("annotations that change are followed", SOON, || has(GIB, 600));
}

#[test]
fn without_an_api_server_pods_start_and_follow_when_one_answers() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut server = ApiServer::start(NODE);
    server.pause();
    let node = fixture.node_named(NODE, &configuration(&server));
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("web", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    assert_eq!(started.limits()[0].1, 4 * GIB);
    server.put("default", "web", &pod.uid, &[("vcuda.io/memory", "1Gi")]);
    server.resume();
    eventually("the running container follows", SOON, || started.limits()[0].1 == GIB);
}

#[test]
fn what_the_gpus_have_left_is_written_on_the_node_when_it_changes() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let server = ApiServer::start(NODE);
    let configuration = configuration(&server).replace("[cluster]", "[cluster]\npublish = true");
    let node = fixture.node_named(NODE, &configuration);
    let gpus = || -> Option<Value> {
        let writes = server.node_writes();
        let text = writes.last()?.1["vcuda.io/gpus"].as_str()?;
        let all: Value = serde_json::from_str(text).unwrap();
        Some(all["gpus"].clone())
    };
    let left = |place: usize| {
        let gpu = &gpus().unwrap()[place];
        ["mem", "cores", "shares"].map(|key| gpu[key].as_u64().unwrap())
    };
    eventually("the GPUs are published", SOON, || {
        gpus().is_some_and(|gpus| gpus.as_array().unwrap().len() == 2)
    });
    let [chunks, cores, shares] = left(0);
    assert_eq!((left(1), cores, shares), ([chunks, 100, 16], 100, 16));
    let pod = node.kubelet.admit(PodSpec::share("web", 16, 30)).unwrap();
    node.kubelet.started(&pod);
    eventually("the share is missing from one GPU", SOON, || {
        let mut both = [left(0), left(1)];
        both.sort_unstable();
        // What is kept free for the next context is missing too.
        let [of, with] = both;
        of[0] <= chunks - 16 && of[1..] == [70, 15] && with == [chunks, 100, 16]
    });
    let writes = server.node_writes().len();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(server.node_writes().len(), writes, "nothing has changed");
}
