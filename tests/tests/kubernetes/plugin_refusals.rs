//! Requests that cannot be granted, or not now: refused at the right place, with an understandable reason, and granted as
//! soon as possible.

use std::fs;
use std::time::Duration;

use vcuda_machine::{Faults, Machine};
use vcuda_tests::kubelet::{Kubelet, Mood, PodSpec, RESOURCES, Role};
use vcuda_tests::{Fixture, GIB, Tmpfs, eventually};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn refused(kubelet: &Kubelet, spec: PodSpec) -> String {
    let pod = kubelet.admit(spec).unwrap();
    let why = kubelet.start_container(&pod, "c").unwrap_err();
    assert!(why.starts_with("CreateContainerConfigError: rpc error: "), "{why}");
    kubelet.remove(&pod);
    why
}

/// Inconsistent requests of GPUs, memory and cores, and kubelet's message for each.
const SENSELESS: [(&str, [usize; 3], &str); 9] = [
    ("alone", [1, 0, 0], "vcuda.io/gpu: 1 and for no vcuda.io/memory: add vcuda.io/memory: 16"),
    ("memory", [0, 16, 0], "vcuda.io/memory: 16 and for no vcuda.io/gpu: add vcuda.io/gpu: 1"),
    ("cores", [0, 0, 30], "vcuda.io/cores: 30 and for no vcuda.io/gpu: add"),
    ("no-gpu", [0, 16, 30], "and for no vcuda.io/gpu: add vcuda.io/gpu: 1"),
    ("no-cores", [1, 16, 0], "and for no vcuda.io/cores: add vcuda.io/cores: 30"),
    ("no-memory", [1, 0, 30], "and for no vcuda.io/memory: add"),
    ("time", [1, 16, 101], "vcuda.io/cores: 101 is more than 1 of 100 percent"),
    ("large", [1, 120, 30], "vcuda.io/memory: 120 is 30 GiB on each of 1 GPUs; the largest"),
    ("uneven", [2, 17, 30], "does not divide by 2: ask for 16 or 18"),
];

#[test]
fn what_makes_no_sense_together_is_said_at_the_start() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    for (name, wants, said) in SENSELESS {
        let [gpu, memory, cores] = wants;
        let wants = [("gpu", gpu), ("memory", memory), ("cores", cores)];
        let why = refused(kubelet, PodSpec::new(name).with("c", Role::Main, &wants));
        assert!(why.contains(said) && why.contains(&format!("default/{name}, container c: ")), "{why}");
    }
    // There are two GPUs, so no later try can succeed.
    let three = [("gpu", 3), ("memory", 3), ("cores", 3)];
    let why = kubelet.admit(PodSpec::new("three").with("c", Role::Main, &three)).unwrap_err();
    assert!(why.contains("UnexpectedAdmissionError") && why.contains("this node has 2"), "{why}");
}

#[test]
fn what_a_faulty_kubelet_sends_is_refused() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let long = "s-".repeat(5000);
    for (resource, ids, said) in [
        (RESOURCES[0], &["s-99"][..], "s-99 is none of the 16 that this node has now"),
        (RESOURCES[0], &["s-1", "s-1"], "\"s-1\" is named twice"),
        (RESOURCES[0], &["m-1"], "\"m-1\" is no device of this resource"),
        (RESOURCES[0], &[""], "is no device"),
        (RESOURCES[0], &[], "no device is named"),
        (RESOURCES[0], &[long.as_str()], "is no device"),
        (RESOURCES[1], &["m-100000"], "is none of the"),
        (RESOURCES[2], &["c-07"], "is no device"),
    ] {
        let why = kubelet.allocate_rubbish(resource, ids).unwrap_err();
        assert!(why.contains(said) && why.len() < 400, "{ids:?}: {why}");
        assert!(kubelet.start_rubbish(resource, ids).is_err());
    }
    // Devices that no container has.
    let why = kubelet.start_rubbish(RESOURCES[0], &["s-3"]).unwrap_err();
    assert!(why.contains("names no container that holds exactly these 1 devices"), "{why}");
    // It continues to answer.
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    kubelet.started(&pod);
}

#[test]
fn if_two_pods_may_be_starting_neither_does() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    for (mood, said) in [
        (Mood::Refuses, "does not answer: Internal error: rate limited"),
        (Mood::Hangs, "does not answer: nothing within 5s"),
        (Mood::Doubles("b".to_owned()), "default/a and default/b hold these devices"),
        // The checkpoint has a pod with these devices, and the list has none, or one with others.
        (Mood::Rubbish, ""),
    ] {
        kubelet.set_mood(mood.clone());
        match kubelet.start_container(&pod, "c") {
            Err(why) => assert!(why.contains(said), "{mood:?}: {why}"),
            Ok(started) => assert_eq!((mood, started.limits()[0].1), (Mood::Rubbish, 4 * GIB)),
        }
        kubelet.set_mood(Mood::Well);
    }
    let path = fixture.kubelet_directory().join("device-plugins/kubelet_internal_checkpoint");
    let checkpoint = fs::read_to_string(&path).unwrap();
    // Another pod in the checkpoint, by some fault: doubt.
    fs::write(&path, checkpoint.replace("\"c\"", "\"d\"")).unwrap();
    let why = kubelet.start_container(&pod, "c").unwrap_err();
    assert!(why.contains("its checkpoint to others"), "{why}");
    // A checkpoint that this release cannot read: the list suffices for listed containers.
    fs::write(&path, "{\"Data\": {\"Version\": 3}}").unwrap();
    assert_eq!(kubelet.started(&pod).limits()[0].1, 4 * GIB);
    fs::write(&path, checkpoint).unwrap();
    kubelet.started(&pod);
}

#[test]
fn no_gpu_fits_until_one_does() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    // So rarely that no regular look can help.
    let seldom = "[release]\ninterval = \"60s\"\ngrace = \"60s\"\n";
    let _plugin = fixture.plugin_named("seldom", seldom);
    kubelet.wait_for_devices();
    let half = |name: &str| kubelet.admit(PodSpec::share(name, 48, 40)).unwrap();
    let (one, two) = (half("one"), half("two"));
    kubelet.started(&one);
    // It gets another GPU, as the first has too little left.
    kubelet.started(&two);
    let large = kubelet.admit(PodSpec::share("large", 60, 20)).unwrap();
    let why = kubelet.start_container(&large, "c").unwrap_err();
    assert!(why.contains("15 GiB") && why.contains("not free on 1 GPU: GPU-"), "{why}");
    // No other pod is admitted, so that kubelet's checkpoint still contains the first.
    kubelet.remove(&one);
    let started = kubelet.start_container(&large, "c").unwrap();
    assert_eq!(started.limits()[0].1, 15 * GIB);
}

#[test]
fn a_whole_gpu_is_had_alone_and_without_the_shim() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let chunks = kubelet.allocatable(RESOURCES[1]) / 2;
    let whole = kubelet.admit(PodSpec::share("whole", chunks, 100)).unwrap();
    let started = kubelet.started(&whole);
    // The driver, and none of our files.
    for ours in ["/etc/vcuda", "/etc/vcuda/limits", "/etc/ld.so.preload"] {
        assert_eq!(started.host_path(ours), None, "{ours}");
    }
    assert!(started.host_path("/usr/lib64/libcuda.so.1").is_some());
    assert_eq!(started.edits[0]["env"], serde_json::json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    let share = kubelet.admit(PodSpec::share("share", 1, 1)).unwrap();
    let beside = kubelet.started(&share);
    assert_ne!(beside.nodes()[0], started.nodes()[0]);
    let second = kubelet.admit(PodSpec::share("second", chunks - 1, 99)).unwrap();
    let why = kubelet.start_container(&second, "c").unwrap_err();
    assert!(why.contains("not free"), "{why}");
}

#[test]
fn a_gpu_that_falls_ill_or_away_takes_its_devices_with_it() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let mut node = fixture.node();
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let gpu = kubelet.started(&pod).limits()[0].0.clone();
    let machine = Machine::open(&fixture.machine()).unwrap();
    let uuids: Vec<String> = machine.config().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    assert!(uuids.contains(&gpu));
    let lost = Faults { lost: vec![gpu.clone()], ..Faults::default() };
    lost.write(&fixture.machine()).unwrap();
    eventually("half of the devices are unhealthy", SOON, || {
        // Each resource has its own list.
        kubelet.counts(RESOURCES[0]) == (16, 32) && kubelet.counts(RESOURCES[2]) == (100, 200)
    });
    // Its container is moved to the other GPU when it starts again.
    let moved = kubelet.started(&pod);
    assert_ne!(moved.limits()[0].0, gpu);
    // A machine without the GPU: its devices belong to no pod.
    let absent = Faults { absent: vec![gpu], ..Faults::default() };
    absent.write(&fixture.machine()).unwrap();
    node.manager.kill_and_restart();
    eventually("half of the devices are left", SOON, || kubelet.counts(RESOURCES[0]) == (16, 16));
    let held = kubelet.devices_of(&pod, "c", "gpu");
    let gone = (0..32).map(|n| format!("s-{n}")).filter(|id| !held.contains(id)).nth(15);
    let why = kubelet.allocate_rubbish(RESOURCES[0], &[gone.unwrap().as_str()]).unwrap_err();
    assert!(why.contains("is none of the 16 that this node has now; has a GPU gone?"), "{why}");
}

#[test]
fn without_a_shim_in_the_manager_nothing_starts_unlimited() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with(&["--shim-library", "/nothing"]);
    let kubelet = fixture.kubelet();
    let _plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let why = refused(&kubelet, PodSpec::share("a", 16, 30));
    assert!(why.contains("no shim library installed: set shim_library"), "{why}");
}

#[test]
fn a_directory_of_specifications_that_cannot_be_used_is_named() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let node = fixture.node();
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let cdi = fixture.cdi();
    let aside = cdi.with_extension("aside");
    let why = || kubelet.start_container(&pod, "c").unwrap_err();

    fs::rename(&cdi, &aside).unwrap();
    assert!(why().contains("cdi is not there: create it"), "{}", why());
    // A refusal of Allocate would be final: a pod admitted meanwhile waits for the directory at its start.
    let other = kubelet.admit(PodSpec::share("b", 1, 1)).unwrap();
    let waits = kubelet.start_container(&other, "c").unwrap_err();
    assert!(waits.starts_with("CreateContainerConfigError") && waits.contains("is not there"), "{waits}");
    fs::rename(&aside, &cdi).unwrap();
    kubelet.started(&other);
    kubelet.remove(&other);

    let started = kubelet.started(&pod);
    let name = fs::read_dir(&cdi).unwrap().next().unwrap().unwrap().file_name();
    let foreign = "{\"cdiVersion\": \"0.6.0\", \"kind\": \"other.io/thing\", \"devices\": []}";
    fs::write(cdi.join(&name), foreign).unwrap();
    assert!(why().contains("was not written by vcuda: remove it"), "{}", why());
    assert_eq!(fs::read_to_string(cdi.join(&name)).unwrap(), foreign);
    fs::remove_file(cdi.join(&name)).unwrap();
    assert_eq!(kubelet.started(&pod).directory(), started.directory());

    for (options, said) in [("size=4k,ro", "cannot be written"), ("size=4k", "is full: free some space")] {
        let Some(disk) = Tmpfs::over(&cdi, options) else {
            return;
        };
        if !options.contains("ro") {
            // Its single page is full.
            fs::write(cdi.join("other"), vec![b'x'; 4096]).unwrap();
        }
        assert!(why().contains(said), "{}", why());
        drop(disk);
    }
    assert_eq!(kubelet.started(&pod).directory(), started.directory());
}
