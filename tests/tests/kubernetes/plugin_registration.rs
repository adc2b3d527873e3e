//! The device plugin stays registered with kubelet, whatever happens to either, and no pod notices.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use vcuda_machine::{Faults, Machine};
use vcuda_tests::kubelet::{Authority, Kubelet, PodSpec, RESOURCES, Started};
use vcuda_tests::{Fixture, GIB, Plugin, eventually, text};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Time within which docs/kubernetes.md promises registration.
const PROMISED: Duration = Duration::from_secs(3);

fn gone(kubelet: &Kubelet) {
    eventually("kubelet has seen the end of the lists", SOON, || {
        RESOURCES.iter().all(|name| kubelet.allocatable(name) == 0)
    });
}

/// Inode of its limits.
fn inode(started: &Started) -> u64 {
    fs::metadata(started.directory().join("limits")).unwrap().ino()
}

#[test]
fn kubelet_finds_it_by_itself_whatever_it_calls_itself() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    for authority in [Authority::Localhost, Authority::Path, Authority::Escaped] {
        let kubelet = fixture.kubelet_calling(authority);
        let _plugin = fixture.plugin();
        kubelet.wait_for_devices();
    }
}

#[test]
fn a_kubelet_that_restarts_has_it_back_and_pods_run_on() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let mut kubelet = fixture.kubelet();
    let _plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    let before = (started.limits(), inode(&started));
    for round in 0..3 {
        kubelet.stop();
        // With and without a time of absence.
        std::thread::sleep(Duration::from_millis(300 * round));
        kubelet.start_again();
        kubelet.wait_for_devices();
    }
    assert_eq!((started.limits(), inode(&started)), before);
    assert_eq!(kubelet.started(&pod).directory(), started.directory());
}

#[test]
fn a_plugin_that_is_killed_comes_back_and_pods_run_on() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let mut plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    plugin.kill();
    gone(&kubelet);
    assert!(kubelet.counts(RESOURCES[1]).1 > 0, "capacity is kept");
    let why = kubelet.start_container(&pod, "c").unwrap_err();
    assert!(why.contains("has been stopped"), "{why}");
    assert!(kubelet.knows(RESOURCES[0], Duration::from_secs(200)));
    assert!(!kubelet.knows(RESOURCES[0], Duration::from_secs(301)));
    plugin.start();
    kubelet.wait_for_devices();
    assert_eq!(kubelet.started(&pod).limits()[0].1, 4 * GIB);
    assert_eq!(kubelet.started(&pod).directory(), started.directory());
}

/// After a loss of power, or if the plugin was killed before kubelet's restart, kubelet finds dead sockets. It dials these paths again
/// only after up to two minutes.
#[test]
fn dead_sockets_that_kubelet_has_dialled_delay_nothing() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let mut kubelet = fixture.kubelet();
    let mut plugin = fixture.plugin();
    kubelet.wait_for_devices();
    kubelet.has_waited_long();
    // The second time, the dead sockets have the other names.
    for _ in 0..2 {
        kubelet.stop();
        plugin.kill();
        kubelet.start_again();
        std::thread::sleep(Duration::from_secs(1));
        plugin.start();
        kubelet.wait_for_devices();
        let sockets = fs::read_dir(fixture.kubelet_directory().join("plugins_registry")).unwrap().count();
        assert_eq!(sockets, RESOURCES.len(), "each resource has one socket");
    }
}

#[test]
fn of_two_plugins_on_one_node_the_second_waits() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let mut first = fixture.plugin();
    kubelet.wait_for_devices();
    let mut second = fixture.plugin_named("second", "");
    eventually("the second says that it waits", SOON, || {
        second.log().contains("another device plugin or driver is at work")
    });
    kubelet.wait_for_devices();
    // A rollout with `maxSurge` ends the old pod when the new one is ready.
    eventually("the second is ready to take over", SOON, || {
        get(&second.address(), "/readyz").contains("200 OK")
    });
    eventually("the second knows the node's GPUs", SOON, || {
        second.log().contains("the node's shares, chunks and percents")
    });
    // As a rolling upgrade ends the old one.
    first.running().signal(libc::SIGTERM);
    assert_eq!(first.running().finish().code(), Some(0), "{}", first.log());
    eventually("the second has taken over", SOON, || second.log().contains("kubelet reads the list"));
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 1, 1)).unwrap();
    kubelet.started(&pod);
    second.kill();
}

/// A rollout ends the old plugin when the new one is ready, which must then register at once.
#[test]
fn one_that_waits_is_ready_when_it_knows_the_gpus() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let first = fixture.plugin();
    eventually("the first is at work", SOON, || first.log().contains("ready"));
    let second = fixture.plugin_named("second", "");
    eventually("the second waits", SOON, || {
        second.log().contains("another device plugin or driver is at work")
    });
    eventually("the second says what it waits for besides", SOON, || {
        let page = get(&second.address(), "/readyz");
        page.contains("503") && page.contains("the manager has not said yet which GPUs there are")
    });
    let _manager = fixture.manager_with_shim();
    eventually("the second is ready to take over", SOON, || {
        get(&second.address(), "/readyz").contains("200 OK")
    });
}

/// Kubelet admits a pod that was bound while the plugin was away, and refuses it for good (Kubernetes issue 118559).
#[test]
fn what_is_lost_while_the_plugin_is_away_is_replaced_by_a_new_pod() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let mut plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("web-1", 16, 30)).unwrap();
    let before = kubelet.started(&pod).directory();
    plugin.kill();
    gone(&kubelet);
    let why = kubelet.admit(PodSpec::share("web-2", 16, 30)).unwrap_err();
    assert!(
        why.contains("UnexpectedAdmissionError")
            && why.contains("cannot allocate unhealthy devices vcuda.io/"),
        "{why}"
    );
    plugin.start();
    kubelet.wait_for_devices();
    // As its controller makes it.
    let instead = kubelet.admit(PodSpec::share("web-3", 16, 30)).unwrap();
    assert_ne!(kubelet.started(&instead).directory(), before);
    assert!(before.exists());
}

/// Number of the plugin's registrations over its resources.
fn registrations(plugin: &Plugin<'_>) -> u64 {
    let metrics = get(&plugin.address(), "/metrics");
    let done = metrics
        .lines()
        .filter(|line| line.starts_with("vcuda_registrations_total{") && line.contains("result=\"done\""));
    done.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// All three resources are registered again within seconds: after kubelet's restart, after their sockets were deleted, and
/// after the plugin's restart. The soak test does each 20 times, with a kubelet that is away for up to 2 s, within the 3 s
/// that docs/kubernetes.md promises.
#[test]
fn all_three_are_registered_again_within_seconds() {
    let is_long = std::env::var_os("VCUDA_SOAK").is_some();
    let rounds = if is_long { 20 } else { 1 };
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let mut kubelet = fixture.kubelet();
    let mut plugin = fixture.plugin();
    kubelet.wait_for_devices();
    for what in ["kubelet restarts", "sockets are deleted", "the plugin restarts"] {
        let mut times: Vec<Duration> = Vec::new();
        for round in 0..rounds {
            let mut before = registrations(&plugin);
            let since;
            match what {
                "kubelet restarts" => {
                    kubelet.stop();
                    std::thread::sleep(Duration::from_millis(100 * round));
                    since = SystemTime::now();
                    kubelet.start_again();
                }
                "sockets are deleted" => {
                    since = SystemTime::now();
                    for name in ["gpu", "memory", "cores"] {
                        let socket = format!("plugins_registry/vcuda.io-{name}-reg.sock");
                        fs::remove_file(fixture.kubelet_directory().join(socket)).unwrap();
                    }
                }
                _ => {
                    plugin.kill();
                    gone(&kubelet);
                    before = 0;
                    since = SystemTime::now();
                    plugin.start();
                    kubelet.wait_for_devices();
                }
            }
            eventually("the plugin is registered anew", SOON, || registrations(&plugin) >= before + 3);
            kubelet.wait_for_devices();
            times.push(since.elapsed().unwrap());
        }
        times.sort();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{what}: median {median:.2?}, longest {longest:.2?} of {rounds}");
        assert!(!is_long || longest < PROMISED, "{what}: {longest:?}");
    }
}

#[test]
fn kubelet_and_manager_may_come_later() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut plugin = fixture.plugin();
    eventually("it waits", SOON, || plugin.log().contains("ready"));
    let mut kubelet = fixture.kubelet();
    // Nothing is registered while the GPUs are unknown, as a short list is final for pods.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(kubelet.counts(RESOURCES[0]), (0, 0));
    let manager = fixture.manager_with_shim();
    kubelet.wait_for_devices();
    // Known GPUs stay while the manager is away.
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let socket = manager.socket();
    drop(manager);
    let why = kubelet.start_container(&pod, "c").unwrap_err();
    assert!(why.contains(&socket.display().to_string()), "{why}");
    kubelet.restart();
    kubelet.wait_for_devices();
    let _manager = fixture.manager_with_shim();
    assert_eq!(kubelet.started(&pod).limits()[0].1, 4 * GIB);
    plugin.kill();
}

#[test]
fn health_and_metrics_say_how_it_is() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_with_shim();
    let mut kubelet = fixture.kubelet();
    let plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let page = |path: &str| get(&plugin.address(), path);
    eventually("it is ready", SOON, || page("/readyz").contains("200 OK"));
    assert!(page("/healthz").contains("200 OK"));
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    kubelet.started(&pod);
    let metrics = page("/metrics");
    for series in [
        "vcuda_registrations_total{resource=\"gpu\",result=\"done\"} 1",
        "vcuda_allocate_duration_seconds_count{resource=\"memory\",result=\"done\"} 1",
        "vcuda_prestart_duration_seconds_count{resource=\"gpu\",result=\"done\"} 1",
        "vcuda_plugin_devices{resource=\"cores\",result=\"healthy\"} 100",
        "vcuda_plugin_registered{resource=\"gpu\"} 1",
        "vcuda_plugin_build_info{version=",
    ] {
        assert!(metrics.contains(series), "{series}: {metrics}");
    }
    kubelet.stop();
    eventually("it says that kubelet is away", SOON, || {
        let page = page("/readyz");
        page.contains("503") && page.contains("vcuda.io/gpu: kubelet does not read the list")
    });
}

/// A rollout waits for the new pod to be ready: one ill GPU must not keep a release from all nodes.
#[test]
fn beside_a_gpu_that_cannot_be_opened_manager_and_plugin_are_ready() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let gpus = Machine::open(&fixture.machine()).unwrap().config().gpus.clone();
    let lose = |lost: &[usize]| {
        let lost = lost.iter().map(|gpu| gpus[*gpu].uuid.clone()).collect();
        let faults = Faults { lost, ..Faults::default() };
        faults.write(&fixture.machine()).unwrap();
    };
    lose(&[0]);
    let manager = fixture.manager_with_shim();
    let kubelet = fixture.kubelet();
    let plugin = fixture.plugin();
    kubelet.wait_for_devices();
    let pages = || [manager.metrics_address(), plugin.address()].map(|at| get(&at, "/readyz"));
    eventually("both are ready", SOON, || pages().iter().all(|page| page.contains("200 OK")));
    lose(&[0, 1]);
    eventually("both say that NVML has no GPU to give out", SOON, || {
        pages().iter().all(|page| page.contains("503") && page.contains("cannot be opened"))
    });
}

fn get(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn a_wrong_configuration_starts_nothing() {
    let fixture = Fixture::new();
    let file = fixture.runtime().join("p.toml");
    for check in [&["--check"][..], &[]] {
        fs::write(&file, "\n[resources]\nchunk = \"many\"\n").unwrap();
        let mut command = fixture.plugin_command("p");
        let output = command.arg("--config").arg(&file).args(check).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with("vcuda-kubernetes: ") && said.contains("p.toml:3: 'many'"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    fs::write(&file, "").unwrap();
    let mut command = fixture.plugin_command("p");
    let output = command.arg("--config").arg(&file).arg("--check").output().unwrap();
    assert_eq!(text(&output).trim(), "exit status: 0");
}
