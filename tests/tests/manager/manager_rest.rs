//! The node daemon while it is idle, and the moment at which work arrives.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use vcuda_region::DeviceIndex;
use vcuda_region::clock::now_ns;
use vcuda_region::limits::Limits;
use vcuda_region::usage_reader::UsageReader;
use vcuda_tests::{Door, Fixture, Running, app, eventually, succeeded};

/// Time after which an idle tenant rests (two seconds), and a little more. It is real time, as the manager does not take part in
/// virtual time.
const REST: Duration = Duration::from_secs(3);
/// Time limit from a first launch to the arbiter's notice on a busy machine: well below the ten seconds after which it
/// would check a resting tenant by itself.
const NOTICED: Duration = Duration::from_secs(4);

fn grant(fixture: &Fixture, key: &str, quota: &[&str]) {
    let mut command = fixture.vcuda(["grant", "create", key]);
    succeeded(&command.args(quota).output().unwrap());
}

/// A program in the grant of this key.
fn run(fixture: &Fixture, key: &str, program: &str, arguments: &[&str], says: &str) -> Running {
    let mut running = Running::start(fixture.in_grant(key, app(program, Door::Dlsym)).args(arguments));
    running.wait_for(says);
    running
}

/// Number of times that threads of a process went to sleep, for counted thread names.
fn sleeps(pid: u32, is_counted: impl Fn(&str) -> bool) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_thread = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_counted = is_counted(field("Name:")?);
        let switches: u64 = field("voluntary_ctxt_switches:")?.parse().ok()?;
        is_counted.then_some(switches)
    };
    tasks.filter_map(of_thread).sum()
}

#[test]
fn a_daemon_of_idle_tenants_sleeps() {
    const SPAN: Duration = Duration::from_secs(3);
    let fixture = Fixture::with_gpus(2, "40GiB");
    let manager = fixture.manager();
    let keys: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let mut idle = Vec::new();
    for key in &keys {
        grant(&fixture, key, &["--memory", "1GiB", "--cores", "4"]);
        idle.push(run(&fixture, key, "hold", &["1048576"], "holding"));
    }
    sleep(REST);
    let arbiter = || sleeps(manager.pid(), |name| name == "controller");
    // That thread asks for XIDs with a time-out of a second: it is not the tenants that wake it.
    let all = || sleeps(manager.pid(), |name| name != "nvml-xids");
    let before = (arbiter(), all());
    sleep(SPAN);
    let (arbiter, all) = (arbiter() - before.0, all() - before.1);
    // A heartbeat each 600 ms. Earlier versions had some 50 and 80 sleeps a second.
    assert!(arbiter <= 20, "the arbiter slept {arbiter} times");
    assert!(all <= 60, "the daemon slept {all} times");
}

#[test]
fn answers_are_of_now_after_a_long_rest() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    grant(&fixture, "a", &["--memory", "1GiB"]);
    sleep(REST);
    let _one = run(&fixture, "a", "hold", &["104857600"], "holding");
    // A look before it allocated may be 50 ms old.
    sleep(Duration::from_millis(60));
    let used = manager.metric("vcuda_container_memory_used_bytes", "container=\"a-1\"");
    assert!(used >= 104_857_600.0, "{used}");
}

#[test]
fn tenants_that_begin_after_a_long_rest_are_held_and_arbitrated_at_once() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    let keys = ["a", "b"];
    let mut waiting = Vec::new();
    for key in keys {
        grant(&fixture, key, &["--memory", "1GiB", "--cores", "30"]);
        waiting.push(run(&fixture, key, "hold", &["1048576"], "holding"));
    }
    sleep(REST);
    let directory = |key: &str| {
        let number = 1 + keys.iter().position(|one| *one == key).unwrap();
        fixture.runtime().join(format!("vcuda/containers/{key}-{number}"))
    };
    let beat = |key: &str| Limits::read(&directory(key)).unwrap().arbiter_beat_ns();
    // A tenant that waits for work gets some four beats a second. The one that may come here is of the ten-second reading.
    let mut beats: BTreeSet<u64> = BTreeSet::new();
    for _ in 0..40 {
        beats.insert(beat("a"));
        sleep(Duration::from_millis(50));
    }
    assert!(beats.len() <= 3, "beats while dormant: {beats:?}");
    let device = DeviceIndex::new(0).unwrap();
    let began_ns = now_ns();
    let _busy = keys.map(|key| run(&fixture, key, "saturate", &["600", "1000000"], "started"));
    let is_arbitrated = |path: &Path| Limits::read(path).unwrap().pace(device).unwrap().contended;
    eventually("the arbiter sees that they compete", NOTICED, || {
        keys.iter().all(|key| is_arbitrated(&directory(key)))
    });
    assert!(keys.iter().all(|key| beat(key) > began_ns), "no beat since they began");
    sleep(Duration::from_secs(2));
    for key in keys {
        let reader = UsageReader::open(&directory(key)).unwrap();
        let served = Duration::from_nanos(reader.bucket(device).unwrap().served_ns);
        let elapsed = Duration::from_nanos(now_ns() - began_ns);
        let most = elapsed.mul_f64(0.33) + Duration::from_millis(150);
        assert!(served <= most, "{key}: {served:?} of {most:?}");
        assert!(served >= Duration::from_millis(300), "{key}: {served:?}");
    }
}
