//! Pods with init containers, sidecars and containers of unequal sizes: each container has its own amounts, and what earlier ones
//! of its pod had is not held for them.

use std::path::PathBuf;
use std::time::Duration;

use vcuda_tests::dra::claims::grants;
use vcuda_tests::kubelet::{Kubelet, Pod, PodSpec, RESOURCES, Role, Started};
use vcuda_tests::{Fixture, MIB, Node, eventually};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Numbers of GPUs, chunks and percents of a container.
type Size = [usize; 3];

/// Repetitions of what depends on the order of kubelet's calls, which is another each time.
const ROUNDS: usize = 4;

fn pod(name: &str, containers: &[(&str, Role, Size)]) -> PodSpec {
    let add = |pod: PodSpec, (name, role, [gpus, chunks, percents]): &(&str, Role, Size)| {
        pod.with(name, *role, &[("gpu", *gpus), ("memory", *chunks), ("cores", *percents)])
    };
    containers.iter().fold(PodSpec::new(name), add)
}

/// What the container got.
fn size(started: &Started) -> Size {
    let limits = started.limits();
    let chunks: u64 = limits.iter().map(|(_, memory, _)| memory / (256 * MIB)).sum();
    let percents: u32 = limits.iter().map(|(.., permille)| permille / 10).sum();
    [limits.len(), usize::try_from(chunks).unwrap(), usize::try_from(percents).unwrap()]
}

/// Starts these containers one after the other, each at once and with its own size. Returns their directories.
fn start(kubelet: &Kubelet, pod: &Pod, containers: &[(&str, Role, Size)]) -> Vec<PathBuf> {
    let start = |(name, _, own): &(&str, Role, Size)| {
        let started = kubelet.start_container(pod, name);
        let started = started.unwrap_or_else(|why| panic!("{name}, seed {}: {why}", kubelet.seed()));
        assert_eq!(size(&started), *own, "{name}, seed {}", kubelet.seed());
        started.directory()
    };
    containers.iter().map(start).collect()
}

/// Ends a pod, and waits until the node has no grants.
fn end(fixture: &Fixture, kubelet: &Kubelet, pod: &Pod) {
    kubelet.remove(pod);
    eventually("its grants have ended", SOON, || grants(fixture).is_empty());
}

#[test]
fn init_containers_sidecars_and_containers_each_have_their_own_amounts() {
    use Role::{Init, Main, Sidecar};
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let containers = [
        ("large", Init, [1, 60, 90]),
        ("small", Init, [1, 2, 5]),
        ("side", Sidecar, [1, 4, 10]),
        ("late", Init, [1, 30, 40]),
        ("c", Main, [1, 20, 25]),
        ("d", Main, [1, 8, 20]),
    ];
    for round in 0..ROUNDS {
        let admitted = kubelet.admit(pod(&format!("p{round}"), &containers)).unwrap();
        let first = start(kubelet, &admitted, &containers);
        // The init containers hold nothing any more, and each grant has its container's name.
        let living = [containers[4], containers[5], containers[2]];
        let expected = living.map(|(name, _, [_, chunks, percents])| {
            let holder = format!("default/p{round}/{name}");
            (holder, chunks as u64 * 256 * MIB, percents as u64 * 10)
        });
        assert_eq!(grants(&fixture), expected);
        // Each of them starts again alone, in another order: as it was.
        let again = [containers[5], containers[2], containers[4]];
        let directories = start(kubelet, &admitted, &again);
        assert_eq!(directories, [5, 2, 4].map(|place: usize| first[place].clone()));
        end(&fixture, kubelet, &admitted);
    }
}

/// Kubelet counts a pod by its init containers or by all others, whichever is more.
#[test]
fn a_pod_that_fills_its_gpu_twice_over_runs_on_it() {
    use Role::{Init, Main, Sidecar};
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let containers = [
        ("before", Init, [1, 80, 100]),
        ("side", Sidecar, [1, 20, 30]),
        ("c", Main, [1, 30, 30]),
        ("d", Main, [1, 30, 40]),
    ];
    for name in ["first", "second"] {
        let admitted = kubelet.admit(pod(name, &containers)).unwrap();
        start(kubelet, &admitted, &containers);
        // With a new sandbox, as after the node's restart: kubelet lists the others as before.
        start(kubelet, &admitted, &containers);
        start(kubelet, &admitted, &containers[1..]);
    }
}

#[test]
fn a_container_larger_than_the_init_container_before_it_gets_all_of_its_own() {
    use Role::{Init, Main};
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let grows = [("before", Init, [1, 2, 10]), ("c", Main, [1, 60, 70])];
    // It begins on the GPU that `grows` began on, and fills that: the other one has room.
    let between = [("c", Main, [1, 60, 70])];
    let pods = [("grows", &grows[..]), ("between", &between[..])];
    let [first, second] = pods.map(|(name, containers)| kubelet.admit(pod(name, containers)).unwrap());
    start(kubelet, &first, &grows[..1]);
    start(kubelet, &second, &between);
    start(kubelet, &first, &grows[1..]);
}

#[test]
fn containers_of_several_gpus_get_their_own_after_one_another() {
    use Role::{Init, Main, Sidecar};
    let fixture = Fixture::with_gpus(3, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let containers = [
        ("before", Init, [3, 90, 90]),
        ("next", Init, [2, 90, 60]),
        ("side", Sidecar, [1, 30, 20]),
        ("c", Main, [2, 60, 60]),
    ];
    for round in 0..ROUNDS {
        let admitted = kubelet.admit(pod(&format!("p{round}"), &containers)).unwrap();
        start(kubelet, &admitted, &containers);
        start(kubelet, &admitted, &containers[2..]);
        assert_eq!(grants(&fixture).len(), 2, "{:?}", grants(&fixture));
        start(kubelet, &admitted, &containers);
        end(&fixture, kubelet, &admitted);
    }
}

#[test]
fn a_plugin_that_is_new_since_the_last_container_gives_the_next_its_own() {
    use Role::{Init, Main};
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut node = fixture.node();
    let containers = [("before", Init, [1, 80, 90]), ("c", Main, [1, 8, 20])];
    let admitted = node.kubelet.admit(pod("p", &containers)).unwrap();
    for container in containers.iter().chain(&containers) {
        start(&node.kubelet, &admitted, &[*container]);
        let Node { plugin, kubelet, .. } = &mut node;
        plugin.kill();
        eventually("kubelet has lost it", SOON, || {
            RESOURCES.iter().all(|name| kubelet.allocatable(name) == 0)
        });
        plugin.start();
        kubelet.wait_for_devices();
    }
}
