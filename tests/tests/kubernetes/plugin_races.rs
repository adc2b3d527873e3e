//! Races by which pods of other device plugins got another pod's limits, or none, each by its public issue number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use vcuda_tests::kubelet::{Kubelet, Pod, PodSpec, Role, Started};
use vcuda_tests::{Fixture, MIB, Node, eventually};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// About as many as a kubelet takes by default (110).
const PODS: usize = 100;

/// Chunks and percents granted to the container, over all its GPUs.
fn given(started: &Started) -> (u64, u32) {
    let limits = started.limits();
    let chunks = limits.iter().map(|(_, memory, _)| memory / (256 * MIB)).sum();
    (chunks, limits.iter().map(|(.., permille)| permille / 10).sum())
}

/// Chunks and percents of a pod, which vary with its number.
fn size(number: usize) -> (usize, usize) {
    (1 + number % 20, 1 + number / 20)
}

/// Starts the containers `c` of all these pods, from several threads.
fn start_all(kubelet: &Kubelet, pods: &[(Pod, (usize, usize))]) -> Vec<Started> {
    let started: Vec<Vec<Started>> = std::thread::scope(|scope| {
        let threads: Vec<_> = pods
            .chunks(pods.len().div_ceil(8))
            .map(|some| scope.spawn(move || some.iter().map(|(pod, _)| kubelet.started(pod)).collect()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let started: Vec<Started> = started.into_iter().flatten().collect();
    for ((pod, (chunks, percents)), started) in pods.iter().zip(&started) {
        let expected = (*chunks as u64, u32::try_from(*percents).unwrap());
        assert_eq!(given(started), expected, "{}, seed {}", pod.spec.name, kubelet.seed());
    }
    started
}

fn admitted(
    kubelet: &Kubelet,
    name: &str,
    numbers: impl IntoIterator<Item = usize>,
) -> Vec<(Pod, (usize, usize))> {
    let one = |number: usize| {
        let (chunks, percents) = size(number);
        let pod = kubelet.admit(PodSpec::share(&format!("{name}-{number}"), chunks, percents));
        (pod.unwrap(), (chunks, percents))
    };
    numbers.into_iter().map(one).collect()
}

fn directories(started: &[Started]) -> BTreeSet<PathBuf> {
    started.iter().map(Started::directory).collect()
}

/// Kills each part of the chain while these pods start.
fn started_through_kills(node: &mut Node<'_>, pods: &[(Pod, (usize, usize))]) -> Vec<Started> {
    let Node { plugin, kubelet, manager } = node;
    let meanwhile = |kubelet: &Kubelet, pods, kill: &mut dyn FnMut()| {
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| start_all(kubelet, pods));
            std::thread::sleep(Duration::from_millis(200));
            kill();
            starting.join().unwrap()
        })
    };
    let mut started = meanwhile(kubelet, &pods[..PODS / 3], &mut || plugin.kill_and_restart());
    started.extend(meanwhile(kubelet, &pods[PODS / 3..PODS * 2 / 3], &mut || manager.kill_and_restart()));
    kubelet.restart();
    plugin.kill_and_restart();
    kubelet.wait_for_devices();
    started.extend(start_all(kubelet, &pods[PODS * 2 / 3..]));
    started
}

/// Project-HAMi/HAMi 3096: limits were swapped between pods that start at once. Also 404 and tkestack/gpu-manager 18: the
/// pod was guessed.
#[test]
fn hami_3096_of_pods_at_once_none_has_anothers_limits() {
    let fixture = Fixture::with_gpus(16, "48GiB");
    let mut node = fixture.node();
    let pods = admitted(&node.kubelet, "first", 0..PODS);
    let first = directories(&started_through_kills(&mut node, &pods));
    assert_eq!(first.len(), PODS);
    let kubelet = &node.kubelet;

    // Half of them end, others come, on devices that were used before.
    let (gone, stay): (Vec<_>, Vec<_>) =
        pods.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
    for (_, (pod, _)) in &gone {
        kubelet.remove(pod);
    }
    let evens = (0..PODS).filter(|number| number % 2 == 0);
    let others = admitted(kubelet, "second", evens.map(|number| PODS - 1 - number));
    let again = start_all(kubelet, &others);
    assert!(first.is_disjoint(&directories(&again)), "a new pod has the directory of an old one");
    // The remaining ones keep their grants, also when they start again.
    let stay: Vec<_> = stay.into_iter().map(|(_, pod)| pod).collect();
    let restarted = start_all(kubelet, &stay);
    assert!(directories(&restarted).is_subset(&first));
    eventually("what no container holds was given back, and nothing else", SOON, || {
        let listed = fixture.vcuda(["grant", "list", "--json"]).output().unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["grants"].as_array().unwrap().len() == PODS
    });
    for started in restarted.iter().chain(&again) {
        assert!(started.directory().join("limits").exists());
    }
}

/// Project-HAMi/HAMi 404: the oldest pending pod was taken for the one that starts.
#[test]
fn hami_404_a_pod_that_waits_takes_no_other_limits() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let pods = admitted(kubelet, "p", [3, 45, 7]);
    // The youngest first, while the oldest still pulls its image. Two of the same size are distinguished too.
    let twins: Vec<Pod> = ["x", "y"].map(|name| kubelet.admit(PodSpec::share(name, 2, 2)).unwrap()).into();
    let mut seen = BTreeSet::new();
    for (pod, (chunks, percents)) in pods.iter().rev() {
        let started = kubelet.started(pod);
        assert_eq!(given(&started), (*chunks as u64, u32::try_from(*percents).unwrap()));
        assert!(seen.insert(started.directory()));
    }
    for twin in twins.iter().rev().chain(&twins) {
        let again = !seen.insert(kubelet.started(twin).directory());
        assert!(!again || seen.len() == 5, "{}", twin.spec.name);
    }
    assert_eq!(seen.len(), 5);
}

/// Project-HAMi/HAMi 2640: an init container and the main one took each other's grant.
#[test]
fn hami_2640_an_init_container_and_the_main_one_have_a_grant_each() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let with_init = |name: &str, init: [usize; 3], main: [usize; 3]| {
        let wants = |of: [usize; 3]| [("gpu", of[0]), ("memory", of[1]), ("cores", of[2])];
        kubelet.admit(
            PodSpec::new(name)
                .with("side", Role::Sidecar, &wants([1, 1, 1]))
                .with("init", Role::Init, &wants(init))
                .with("c", Role::Main, &wants(main)),
        )
    };
    // The init container is the smaller or the larger one, by its amounts or by its GPUs.
    for (name, init, main) in [
        ("grows", [1, 2, 10], [1, 8, 30]),
        ("shrinks", [1, 8, 30], [1, 2, 10]),
        ("fewer", [2, 40, 20], [1, 36, 20]),
    ] {
        let pod = with_init(name, init, main).unwrap();
        let in_side = kubelet.start_container(&pod, "side").unwrap();
        assert_eq!(given(&in_side), (1, 1), "{name}");
        let [in_init, _] = [("init", init), ("c", main)].map(|(container, [gpus, chunks, percents])| {
            let started = kubelet.start_container(&pod, container).unwrap();
            let got = (started.limits().len(), given(&started));
            assert_eq!(got, (gpus, (chunks as u64, u32::try_from(percents).unwrap())), "{name}");
            started
        });
        assert!(!in_init.directory().exists(), "{name}: its grant has ended");
        assert!(in_side.directory().exists(), "{name}");
    }
}

/// tkestack/gpu-manager 37: memory and cores of a container on two GPUs.
#[test]
fn gpu_manager_37_memory_and_cores_are_of_one_gpu() {
    let fixture = Fixture::with_gpus(4, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    // One GPU is full in memory, the other in time.
    let sizes = [(70, 10), (10, 90), (70, 5), (10, 85), (60, 50), (12, 6), (12, 6), (14, 20)];
    let mut gpus: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    for (number, (chunks, percents)) in sizes.into_iter().enumerate() {
        let pod = kubelet.admit(PodSpec::share(&format!("p{number}"), chunks, percents)).unwrap();
        let limits = kubelet.started(&pod).limits();
        let [(gpu, memory, permille)] = &limits[..] else { unreachable!("{limits:?}") };
        let sum = gpus.entry(gpu.clone()).or_default();
        *sum = (sum.0 + memory, sum.1 + permille);
        assert_eq!((*memory, *permille as usize), (chunks as u64 * 256 * MIB, percents * 10));
    }
    assert!(gpus.values().all(|(memory, permille)| *memory <= 24 << 30 && *permille <= 1000), "{gpus:?}");
}

/// AliyunContainerService/gpushare-scheduler-extender 143: only the first of a pod's containers had its limits.
#[test]
fn gpushare_143_each_container_of_a_pod_has_its_own() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let wants = |chunks, percents| [("gpu", 1), ("memory", chunks), ("cores", percents)];
    let pod = PodSpec::new("three")
        .with("a", Role::Main, &wants(3, 10))
        .with("none", Role::Main, &[])
        .with("b", Role::Main, &wants(5, 20))
        .with("c", Role::Main, &wants(7, 30));
    let pod = kubelet.admit(pod).unwrap();
    for (name, expected) in [("c", (7, 30)), ("a", (3, 10)), ("b", (5, 20))] {
        assert_eq!(given(&kubelet.start_container(&pod, name).unwrap()), expected);
    }
    assert!(kubelet.start_container(&pod, "none").unwrap().edits.is_empty());
}

#[test]
fn starts_that_are_repeated_at_once_are_one_grant() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let directories: BTreeSet<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| kubelet.started(&pod).directory())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(directories.len(), 1, "{directories:?}");
}

/// The chunks of a pod that starts are given to another one, too: neither takes the other for gone, and the second waits.
#[test]
fn devices_that_are_given_twice_take_no_limits_away() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let first = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let directory = kubelet.started(&first).directory();
    let second = kubelet.admit(PodSpec::share("b", 16, 30)).unwrap();
    kubelet.give_twice(&first, &second, "c", "memory");
    let refused = kubelet.start_container(&second, "c").unwrap_err();
    assert!(refused.contains("default/a has, too"), "{refused}");
    assert!(directory.exists());
    assert_eq!(kubelet.started(&first).directory(), directory);
    kubelet.remove(&first);
    let own = kubelet.started(&second).directory();
    assert_ne!(own, directory);
}

/// Kubelet does not call PreStartContainer for a container that restarts after kubelet's restart and before the plugin is
/// back.
#[test]
fn a_restart_without_the_plugin_is_the_old_grant_and_a_new_pod_gets_no_others() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let mut kubelet = fixture.kubelet();
    let mut plugin = fixture.plugin();
    kubelet.wait_for_devices();
    // All shares of the node, so that the next pod must get the same ones.
    let full = |name: &str, chunks| {
        let wants = [("gpu", 1), ("memory", chunks), ("cores", 6)];
        (0..16).fold(PodSpec::new(name), |pod, n| pod.with(&format!("c{n}"), Role::Main, &wants))
    };
    let first = kubelet.admit(full("first", 2)).unwrap();
    let old = kubelet.start_container(&first, "c0").unwrap();
    kubelet.stop();
    plugin.kill();
    kubelet.start_again();
    let again = kubelet.start_container(&first, "c0").unwrap();
    assert_eq!((again.directory(), given(&again)), (old.directory(), (2, 6)));

    plugin.start();
    kubelet.wait_for_devices();
    kubelet.remove(&first);
    let second = kubelet.admit(full("second", 1)).unwrap();
    kubelet.stop();
    plugin.kill();
    kubelet.start_again();
    for n in 0..16 {
        let why = kubelet.start_container(&second, &format!("c{n}")).unwrap_err();
        assert!(why.contains("unresolvable CDI devices"), "{why}");
    }
    plugin.start();
    kubelet.wait_for_devices();
    let new = kubelet.start_container(&second, "c0").unwrap();
    assert_eq!(given(&new), (1, 6));
    assert_ne!(new.directory(), old.directory());
}

/// A pod of a stateful set is replaced by one with the same name and devices.
#[test]
fn the_same_name_is_not_the_same_pod() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let all = |name: &str| {
        let wants = [("gpu", 1), ("memory", 2), ("cores", 6)];
        (0..16).fold(PodSpec::new(name), |pod, n| pod.with(&format!("c{n}"), Role::Main, &wants))
    };
    let start = |pod: &Pod| -> BTreeSet<PathBuf> {
        let one = |n: usize| kubelet.start_container(pod, &format!("c{n}")).unwrap().directory();
        (0..16).map(one).collect()
    };
    let before = kubelet.admit(all("web-0")).unwrap();
    let old = start(&before);
    kubelet.remove(&before);
    let after = kubelet.admit(all("web-0")).unwrap();
    let new = start(&after);
    assert_eq!((old.len(), new.len()), (16, 16));
    assert!(old.is_disjoint(&new));
}
