//! The whole chain: kubelet, device plugin, manager, specification, runc, shim, a simulated GPU. The pod's request holds in
//! its container for every user, without environment, and while everything around it restarts.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::runc::{Bundle, Container, inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, Running, app, eventually, succeeded, text};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// User that is in no container's /etc/passwd.
const UNKNOWN_USER: u32 = 123_456;
#[test]
fn what_a_pod_asked_for_holds_in_its_container() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    open_machine(&fixture);
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let a = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let b = kubelet.admit(PodSpec::share("b", 32, 60)).unwrap();
    let (in_a, in_b) = (kubelet.started(&a), kubelet.started(&b));
    let container = |started, uid| Container::new(&fixture, started).of(uid);
    let quota = inside(&app("quota", Door::Dlsym));
    let (four, eight) = ((4 * GIB).to_string(), (8 * GIB).to_string());
    let Some(first) = container(&in_a, 0).run(&[&quota, &four]) else {
        return;
    };
    assert!(succeeded(&first).contains("passed"));
    assert!(container(&in_b, 0).printed(&[&quota, &eight]).contains("passed"));

    // A user without a name; no environment; a contradicting environment.
    assert!(container(&in_a, UNKNOWN_USER).printed(&[&quota, &four]).contains("passed"));
    let wiped = ["env", "-i", "VCUDA_SIM=/machine", &quota, &four];
    assert!(container(&in_a, 0).printed(&wiped).contains("passed"));
    let contradicted = ["env", "LD_PRELOAD=", "VCUDA_DIR=/dev", "VCUDA_MEMORY=64GiB", &quota, &four];
    assert!(container(&in_a, 0).printed(&contradicted).contains("passed"));

    holds_for_other_users(&container(&in_a, 0), &quota, &four);
    sees_only_itself(&container(&in_a, 0));
}

/// Checks another user by su, which resets the environment, and a set-user-ID program.
fn holds_for_other_users(container: &Container<'_>, quota: &str, limit: &str) {
    let as_alice = format!("VCUDA_SIM=/machine {quota} {limit}");
    let su = ["su", "-", "alice", "-c", &as_alice];
    assert!(container.printed(&su).contains("passed"));
    let setuid = format!(
        "cp {quota} /tmp/quota && cp /usr/bin/id /tmp/id && chown 1000:1000 /tmp/quota /tmp/id && \
         chmod 6755 /tmp/quota /tmp/id && setpriv --reuid 2000 --clear-groups /tmp/id -u && \
         exec setpriv --reuid 2000 --clear-groups /tmp/quota {limit}"
    );
    let mut writable = container.clone();
    writable.is_read_only = false;
    let said = writable.printed(&["sh", "-c", &setuid]);
    assert!(said.starts_with("1000\n") && said.contains("passed"), "{said}");
}

/// Checks that it sees only its own GPU and figures; nothing that limits it is writable.
fn sees_only_itself(container: &Container<'_>) {
    let nodes = container.printed(&["sh", "-c", "echo /dev/nvidia[0-9]*"]);
    assert_eq!(nodes.split_whitespace().count(), 1, "{nodes}");
    let smi: Value = serde_json::from_str(&container.printed(&["vcuda", "smi", "--json"])).unwrap();
    let tenants: Vec<&Value> = smi["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|gpu| gpu["tenants"].as_array())
        .flatten()
        .collect();
    assert_eq!(tenants.len(), 1, "{smi}");
    assert_eq!(tenants[0]["memory_limit_bytes"], 4 * GIB, "{smi}");
    // Root in the container can write its usage, but nothing that limits it.
    let write = "for file in /etc/vcuda/limits /etc/vcuda/more /etc/ld.so.preload /usr/lib/vcuda/*.so \
                 /usr/local/bin/vcuda /etc/vcuda/usage; do (: >>$file) 2>/dev/null && echo $file; done; true";
    let mut writable = container.clone();
    writable.is_read_only = false;
    assert_eq!(writable.printed(&["sh", "-c", write]), "/etc/vcuda/usage\n");
    // The image's variable does not open the other GPU.
    let visible = container.printed(&["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"]);
    assert_eq!(visible.trim(), "void");
}

#[test]
fn a_running_container_does_not_notice_what_restarts_around_it() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let mut node = fixture.node();
    let kubelet = &node.kubelet;
    let pods = [("a", 16, 30, 4 * GIB), ("b", 32, 60, 8 * GIB)].map(|(name, chunks, percent, limit)| {
        let pod = kubelet.admit(PodSpec::share(name, chunks, percent)).unwrap();
        (kubelet.started(&pod), limit, pod)
    });
    let hold = inside(&app("hold", Door::Dlsym));
    let quota = inside(&app("quota", Door::Dlsym));
    let mut bundles: Vec<Bundle> = Vec::new();
    let mut running = Vec::new();
    for (started, limit, _) in &pods {
        let container = Container::new(&fixture, started);
        let Some(first) = container.run(&[&quota, &limit.to_string()]) else {
            return;
        };
        assert!(succeeded(&first).contains("passed"));
        let bundle = container.bundle(&[&hold, &GIB.to_string(), &limit.to_string()]);
        let mut one = Running::start(&mut container.command(&bundle));
        assert_eq!(one.wait_for("holding"), format!("holding {GIB} denied 1"));
        running.push(one);
        bundles.push(bundle);
    }
    let directories: Vec<PathBuf> = pods.iter().map(|(started, ..)| started.directory()).collect();
    let attached = || {
        let smi: Value = fixture.smi();
        let tenants = smi["gpus"][0]["tenants"].as_array().cloned().unwrap_or_default();
        let used = tenants.iter().filter(|tenant| tenant["memory_used_bytes"].as_u64() >= Some(GIB));
        used.count() == 2
    };
    eventually("both containers are seen", SOON, attached);
    for _ in 0..3 {
        node.plugin.kill_and_restart();
        node.kubelet.restart();
        node.manager.kill_and_restart();
        node.kubelet.wait_for_devices();
        eventually("both containers are seen again", SOON, attached);
        for ((started, limit, pod), directory) in pods.iter().zip(&directories) {
            // Kubelet restarts a container of the pod: it keeps its grant.
            assert_eq!(&node.kubelet.started(pod).directory(), directory);
            assert_eq!(started.limits()[0].1, *limit);
        }
    }
    // Their limits are unchanged, to the byte, beside their used memory.
    for (started, limit, _) in &pods {
        let container = Container::new(&fixture, started);
        let more = container.run(&["timeout", "2", &hold, &(limit - GIB).to_string()]).unwrap();
        let said = String::from_utf8_lossy(&more.stdout).into_owned();
        assert!(said.contains("holding 0 denied 1"), "{said}{}", text(&more));
    }
}
