//! Kubelet, device plugin, manager and a simulated machine: the container's files contain the pod's request.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use vcuda_tests::kubelet::{Mood, PodSpec, RESOURCES, Role};
use vcuda_tests::{Fixture, GIB, eventually};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn two_pods_share_a_gpu_each_with_what_it_asked_for() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    assert_eq!(kubelet.counts("vcuda.io/gpu"), (16, 16));
    assert_eq!(kubelet.counts("vcuda.io/cores"), (100, 100));
    // 24 GiB less the driver's part, and a reserve of 512 MiB for one container.
    let chunks = kubelet.allocatable("vcuda.io/memory");
    assert!((90..=94).contains(&chunks), "{chunks}");

    let a = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let b = kubelet.admit(PodSpec::share("b", 32, 60)).unwrap();
    let (in_a, in_b) = (kubelet.started(&a), kubelet.started(&b));
    let [(gpu, memory, cores)] = &in_a.limits()[..] else { panic!("{in_a:?}") };
    assert_eq!((*memory, *cores), (4 * GIB, 300));
    let [(same, memory, cores)] = &in_b.limits()[..] else { panic!("{in_b:?}") };
    assert_eq!((*memory, *cores, same), (8 * GIB, 600, gpu));
    assert_ne!(in_a.directory(), in_b.directory());
    assert_eq!(in_a.nodes()[..2], ["/dev/nvidia0", "/dev/nvidiactl"]);
    let preload = in_a.host_path("/etc/ld.so.preload").unwrap();
    let library = std::fs::read_to_string(preload).unwrap();
    assert!(in_a.host_path(library.trim()).unwrap().exists(), "{library}");

    // After a restart it has the same grant and directory.
    assert_eq!(kubelet.started(&a).directory(), in_a.directory());
}

#[test]
fn the_amounts_of_several_gpus_are_totals() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let wants = [("gpu", 2), ("memory", 16), ("cores", 30)];
    let pod = kubelet.admit(PodSpec::new("two").with("c", Role::Main, &wants)).unwrap();
    let limits = kubelet.started(&pod).limits();
    assert_eq!(limits.len(), 2);
    assert_ne!(limits[0].0, limits[1].0);
    assert!(limits.iter().all(|(_, memory, cores)| (*memory, *cores) == (2 * GIB, 150)), "{limits:?}");

    let wants = [("gpu", 2), ("memory", 17), ("cores", 30)];
    let uneven = kubelet.admit(PodSpec::new("uneven").with("c", Role::Main, &wants)).unwrap();
    let why = kubelet.start_container(&uneven, "c").unwrap_err();
    assert!(
        why.contains("CreateContainerConfigError")
            && why.contains("default/uneven, container c: vcuda.io/memory: 17"),
        "{why}"
    );
    assert!(why.contains("ask for 16 or 18"), "{why}");
}

#[test]
fn a_grant_ends_only_when_kubelet_says_so_for_long_and_in_both_of_its_lists() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let long = "[release]\ninterval = \"100ms\"\ngrace = \"60s\"\n";
    let patient = fixture.plugin_named("patient", long);
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let directory = kubelet.started(&pod).directory();
    let looks = |number: usize| {
        let before = kubelet.asked();
        eventually("the plugin looks who is there", SOON, || kubelet.asked() >= before + number);
    };

    // Its pod is gone, but not for long enough.
    let other = kubelet.admit(PodSpec::share("b", 16, 30)).unwrap();
    let of_other = kubelet.started(&other).directory();
    kubelet.remove(&other);
    looks(5);
    assert!(of_other.exists());
    drop(patient);

    // The grace period is zero, but the checkpoint still has it, which PodResources does not list.
    let _plugin = fixture.plugin_named("hasty", "[release]\ninterval = \"100ms\"\ngrace = \"100ms\"\n");
    eventually("the other's grant has ended", SOON, || !of_other.exists());
    for mood in [Mood::Forgets, Mood::Refuses] {
        kubelet.set_mood(mood.clone());
        looks(10);
        assert!(directory.exists(), "{mood:?}");
    }
    kubelet.set_mood(Mood::Well);
    looks(10);
    assert!(directory.exists());
    kubelet.remove(&pod);
    eventually("the grant has ended", SOON, || !directory.exists());
}

/// A node's grants end within a minute of its last pod (interval 10 s, grace 30 s).
#[test]
fn a_grant_ends_when_its_time_is_over_and_not_a_look_later() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let _plugin = fixture.plugin_named("seldom", "[release]\ninterval = \"8s\"\ngrace = \"1s\"\n");
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let directory = kubelet.started(&pod).directory();
    let begun = SystemTime::now();
    kubelet.remove(&pod);
    eventually("the grant has ended", SOON, || !directory.exists());
    let took = begun.elapsed().unwrap();
    // It is first missed after at most 8 s; the next look comes after 16 s.
    assert!(took < Duration::from_secs(12), "{took:?}");
}

/// Kubelet writes its checkpoint when it allocates devices or reads a list, but never because a pod has ended.
#[test]
fn the_last_pods_grant_ends_though_kubelets_checkpoint_keeps_it() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    // A plain init container with its own share: PodResources never lists it.
    let share = |chunks| [("gpu", 1), ("memory", chunks), ("cores", 10)];
    let with_init = PodSpec::new("init")
        .with("init", Role::Init, &[("gpu", 1), ("memory", 8), ("cores", 20)])
        .with("c", Role::Main, &[]);
    let with_init = kubelet.admit(with_init).unwrap();
    let of_init = kubelet.start_container(&with_init, "init").unwrap().directory();
    let pod = PodSpec::new("two").with("c", Role::Main, &share(16));
    let pod = kubelet.admit(pod.with("d", Role::Main, &share(4))).unwrap();
    let directories = ["c", "d"].map(|name| kubelet.start_container(&pod, name).unwrap().directory());
    kubelet.remove(&pod);
    eventually("both grants of the pod have ended", SOON, || {
        directories.iter().all(|directory| !directory.exists())
    });
    // Only the checkpoint contains it, before and after it was written again.
    std::thread::sleep(Duration::from_secs(3));
    assert!(of_init.exists());
    kubelet.remove(&with_init);
    eventually("the init container's grant has ended", SOON, || !of_init.exists());
}

#[test]
fn kubelet_is_told_the_numa_node_that_all_gpus_are_near_to() {
    for (of_second, told) in [(1, 1), (0, -1)] {
        let gpu = "[[gpus]]\nmemory_bytes = \"24GiB\"\nnuma_node";
        let fixture = Fixture::with_config(&format!("{gpu} = 1\n{gpu} = {of_second}\n"));
        let node = fixture.node();
        let kubelet = &node.kubelet;
        for resource in RESOURCES {
            assert_eq!(kubelet.numa_nodes(resource), BTreeSet::from([told]), "{resource}");
        }
        // Kubelet's checkpoint sorts by NUMA node: the starting container is found there too.
        let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
        assert_eq!(kubelet.started(&pod).limits()[0].1, 4 * GIB);
    }
}
