//! The plugin's specification under containerd: kubelet calls Allocate and PreStartContainer, and passes the device names
//! over the Container Runtime Interface. The pod's request holds in its container.

use std::fs;

use serde_json::Value;
use vcuda_tests::containerd::{Container, Containerd, Named, RELEASES, Sandbox};
use vcuda_tests::kubelet::{Kubelet, PodSpec, Started};
use vcuda_tests::runc::{inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, MIB, app};

/// User that is in no container's /etc/passwd.
const UNKNOWN_USER: u32 = 123_456;

#[test]
fn what_a_pod_asked_for_holds_under_containerd_1() {
    holds_under(RELEASES[0]);
}

#[test]
fn what_a_pod_asked_for_holds_under_containerd_2() {
    holds_under(RELEASES[1]);
}

fn holds_under(release: &str) {
    let fixture = Fixture::with_gpus(2, "24GiB");
    open_machine(&fixture);
    // Before a folder for specifications exists, as on a node with its first plugin.
    let Some(containerd) = Containerd::start(&fixture, release) else {
        return;
    };
    let is_first = containerd.version().starts_with("1.7.");
    assert_eq!(is_first, release == RELEASES[0], "{}", containerd.version());
    // With the hook of strict containers, too.
    let mut node = fixture.node_with("strict = true\n");
    let kubelet = &node.kubelet;
    let [a, b] = [("a", 16, 30), ("b", 32, 60)]
        .map(|(name, chunks, percent)| kubelet.admit(PodSpec::share(name, chunks, percent)).unwrap());
    let (in_a, in_b) = (kubelet.started(&a), kubelet.started(&b));
    let (pod_a, pod_b) = (containerd.pod(&a).unwrap(), containerd.pod(&b).unwrap());
    let (of_a, of_b) = (pod_a.container(&in_a), pod_b.container(&in_b));
    let quota = inside(&app("quota", Door::Dlsym));
    let (four, eight) = ((4 * GIB).to_string(), (8 * GIB).to_string());
    assert!(of_a.printed(&[&quota, &four]).contains("passed"));
    assert!(of_b.printed(&[&quota, &eight]).contains("passed"));
    sees_only_itself(&of_a);

    // As a pod of Pod Security's level `restricted`; devices are passed as by kubelets before 1.28.
    let mut restricted = of_a.clone();
    (restricted.user, restricted.is_restricted) = (UNKNOWN_USER, true);
    assert!(restricted.printed(&[&quota, &four]).contains("passed"));
    let mut annotated = of_a.clone();
    annotated.named = Named::Annotation;
    assert!(annotated.printed(&[&quota, &four]).contains("passed"));

    // Mounts of the pod at our paths do not take precedence.
    let own = fixture.home().join("own");
    fs::write(&own, "").unwrap();
    let mut contradicted = of_a.clone();
    for path in ["/etc/ld.so.preload", "/etc/vcuda/limits", "/usr/local/bin/vcuda"] {
        contradicted.mounts.push((own.clone(), path));
    }
    assert!(contradicted.printed(&[&quota, &four]).contains("passed"));

    // An unreadable specification of another program does not affect our containers.
    fs::write(fixture.cdi().join("others.json"), "{").unwrap();
    assert!(of_b.printed(&[&quota, &eight]).contains("passed"));
    all_at_once(kubelet, &containerd);

    // Kubelet restarts a container while the plugin is away: it keeps its grant.
    node.plugin.kill();
    assert!(of_b.printed(&[&quota, &eight]).contains("passed"));
    starts_only_with_its_limits(&pod_b, &in_b);
}

/// Damaged limits or a missing specification keep the container from its program, and its owner reads why.
fn starts_only_with_its_limits(pod: &Sandbox<'_>, started: &Started) {
    // The runtime starts the hook: unreadable limits end the container before its program.
    fs::write(started.directory().join("limits"), "damaged").unwrap();
    let refused = pod.container(started).run(&["echo", "it runs"]).unwrap();
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    let why = "vcuda: not attached: limits: ";
    assert!(refused.termination.starts_with(why) && refused.err.contains(why), "{refused:?}");
    // Without a specification there is no container.
    let unknown = Started { names: vec!["vcuda.io/slot=0123456789abcdef".to_owned()], ..Started::default() };
    let why = pod.container(&unknown).run(&["true"]).unwrap_err();
    assert!(why.contains("unresolvable CDI devices vcuda.io/slot=0123456789abcdef"), "{why}");
}

/// Checks that it sees only its own GPU and figures; root in it can write its usage, but nothing that limits it.
fn sees_only_itself(of_a: &Container<'_>) {
    let tenant = own_tenant(of_a);
    assert_eq!(tenant["memory_limit_bytes"], 4 * GIB, "{tenant}");
    let found = of_a.printed(&["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES /dev/nvidia[0-9]*"]);
    let words: Vec<&str> = found.split_whitespace().collect();
    assert!(words.len() == 2 && words[0] == "void", "{found}");
    let write = "for file in /etc/vcuda/limits /etc/vcuda/more /etc/ld.so.preload /usr/lib/vcuda/*.so \
                 /usr/local/bin/vcuda /etc/vcuda/usage; do (: >>$file) 2>/dev/null && echo $file; done; true";
    assert_eq!(of_a.printed(&["sh", "-c", write]), "/etc/vcuda/usage\n");
}

/// Pods of different sizes that start while containerd reads other specifications each get their own.
fn all_at_once(kubelet: &Kubelet, containerd: &Containerd<'_>) {
    let pods = [1, 2, 3, 4, 5, 6].map(|number| {
        let pod = kubelet.admit(PodSpec::share(&format!("at-once-{number}"), number, number));
        (number as u64, pod.unwrap())
    });
    std::thread::scope(|scope| {
        for (number, pod) in pods {
            scope.spawn(move || {
                let started = kubelet.started(&pod);
                let sandbox = containerd.pod(&pod).unwrap();
                let tenant = own_tenant(&sandbox.container(&started));
                assert_eq!(tenant["memory_limit_bytes"], 256 * MIB * number, "{number}: {tenant}");
            });
        }
    });
}

/// The only tenant that it sees, on its only GPU.
fn own_tenant(container: &Container<'_>) -> Value {
    let smi: Value = serde_json::from_str(&container.printed(&["vcuda", "smi", "--json"])).unwrap();
    assert_eq!(smi["gpus"].as_array().unwrap().len(), 1, "{smi}");
    let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
    assert_eq!(tenants.len(), 1, "{smi}");
    tenants[0].clone()
}
