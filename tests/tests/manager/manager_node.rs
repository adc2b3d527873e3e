//! A node with a manager: granted tenants, quota changes while they run, a killed manager, and what `vcuda` and the metrics
//! report. `VCUDA_SOAK` kills it 100 times instead of 10.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vcuda_limiter::controller::STALE_BEAT_NS;
use vcuda_tests::{Commanded, Door, Fixture, GIB, MIB, Manager, Running, app, eventually, succeeded, text};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Additional waiting time on a busy machine (ns).
const SLACK_NS: u64 = 1_000_000_000;

/// A command inside a grant.
fn in_grant(fixture: &Fixture, grant: &str, program: &std::path::Path) -> Command {
    let mut command = fixture.vcuda(["run", "--sim", "--grant", grant, "--"]);
    command.arg(program);
    command
}

fn create(fixture: &Fixture, args: &[&str]) -> String {
    let args = [&["grant", "create"], args].concat();
    succeeded(&fixture.vcuda(args).output().unwrap())
}

fn refused(fixture: &Fixture, args: &[&str]) -> (Option<i32>, String) {
    let output = fixture.vcuda(args).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said)
}

fn tenant(fixture: &Fixture, id: &str) -> Value {
    let smi = fixture.smi();
    let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
    let found = tenants.iter().find(|tenant| tenant["name"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {smi}")).clone()
}

#[test]
fn two_tenants_by_grant_keep_their_quotas_through_kills_of_the_manager() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["a", "--memory", "2GiB", "--cores", "30"]);
    create(&fixture, &["b", "--memory", "4GiB", "--cores", "60"]);
    let obey = app("obey", Door::Dlsym);
    let mut a = Commanded::start(&mut in_grant(&fixture, "a", &obey));
    let mut b = Commanded::start(&mut in_grant(&fixture, "b", &obey));
    let mut busy =
        Running::start(in_grant(&fixture, "b", &app("saturate", Door::Dlsym)).args(["3600", "1000000"]));
    busy.wait_for("started");
    let mut steady = in_grant(&fixture, "a", &app("longest", Door::Dlsym));
    let mut steady = Running::start(steady.arg("1000000").stdin(Stdio::piped()));
    steady.wait_for("started");
    let (left, _) = a.info();
    assert_eq!((a.alloc(left + 1), a.alloc(GIB)), (Some(2), Some(0)));

    let is_soak = std::env::var_os("VCUDA_SOAK").is_some();
    let mut longest_ns: u64 = 0;
    for round in 0..if is_soak { 100 } else { 10 } {
        manager.kill_and_restart();
        a.lives();
        b.lives();
        // Its own memory, its neighbour's, and no more than both were granted.
        assert_eq!(a.alloc(2 * GIB), Some(2), "round {round}");
        assert_eq!(b.alloc(GIB), Some(0), "round {round}");
        b.free();
        assert!(busy.0.try_wait().unwrap().is_none(), "round {round}");
        eventually("the processes registered again by themselves", SOON, || {
            manager.metric("vcuda_shim_attached", "container=\"a-1\"") > 0.5
                && manager.metric("vcuda_shim_attached", "container=\"b-2\"") > 0.5
        });
        let used = tenant(&fixture, "a-1")["memory_used_bytes"].as_u64().unwrap();
        assert!((GIB..2 * GIB).contains(&used), "round {round}: {used}");
        // No launch waited longer than a shim needs to notice a missing arbiter, and none was refused.
        writeln!(steady.0.stdin.as_mut().unwrap(), "longest").unwrap();
        let said = steady.wait_for("longest ");
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!(words[3], "0", "round {round}: {said}");
        longest_ns = longest_ns.max(words[1].parse().unwrap());
        assert!(longest_ns < STALE_BEAT_NS + SLACK_NS, "round {round}: {said}");
    }
    println!("the longest launch took {} ms", longest_ns / 1_000_000);
    drop(steady);
    a_new_limit_holds_and_stays(&fixture, &mut manager, &mut a);

    // Dead processes are in no figure.
    a.0.signal(libc::SIGKILL);
    a.0.finish();
    eventually("the memory of the killed process is not counted", SOON, || {
        tenant(&fixture, "a-1")["memory_used_bytes"] == 0
            && manager.metric("vcuda_container_memory_used_bytes", "container=\"a-1\"") == 0.0
    });
}

/// A quota changed live is also in the ledger.
fn a_new_limit_holds_and_stays(fixture: &Fixture, manager: &mut Manager<'_>, a: &mut Commanded) {
    succeeded(&fixture.vcuda(["set", "a", "--memory", "3GiB"]).output().unwrap());
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    manager.kill_and_restart();
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    let listed = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["grants"][0]["memory_bytes"], 3 * GIB);
    assert_eq!(
        manager.metric("vcuda_container_memory_limit_bytes", "container=\"a-1\""),
        3.0 * 1024.0 * 1024.0 * 1024.0
    );
}

#[test]
fn admission_is_exact_and_says_what_is_free() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let _manager = fixture.manager();
    create(&fixture, &["whole", "--gpus", "1"]);
    create(&fixture, &["half", "--memory", "12GiB", "--cores", "50"]);
    let (status, said) =
        refused(&fixture, &["grant", "create", "more", "--memory", "12GiB", "--cores", "50"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("free"), "{said}");
    let (status, said) = refused(&fixture, &["grant", "create", "half/x", "--memory", "1GiB"]);
    assert_eq!(status, Some(64), "{said}");
    let (status, said) = refused(&fixture, &["grant", "resize", "unknown", "--memory", "1GiB"]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("half-2") && said.contains("whole-1"), "{said}");
    succeeded(&fixture.vcuda(["grant", "release", "whole"]).output().unwrap());
    create(&fixture, &["more", "--memory", "12GiB", "--cores", "50"]);
}

#[test]
fn a_grant_outlives_its_programs_and_is_not_released_under_them() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    create(&fixture, &["web", "--memory", "2GiB"]);
    let obey = app("obey", Door::Dlsym);
    for _ in 0..2 {
        let mut program = Commanded::start(&mut in_grant(&fixture, "web", &obey));
        program.fills_to_the_byte();
        let (_, said) = refused(&fixture, &["grant", "release", "web"]);
        assert!(said.contains("web-1"), "{said}");
        program.0.signal(libc::SIGKILL);
        program.0.finish();
    }
    // Commands that remove dead runs do not remove a grant.
    succeeded(&fixture.tenant(&["--memory", "1GiB"], "true").output().unwrap());
    assert!(fixture.runtime().join("vcuda/containers/web-1/limits").exists());
    eventually("no process uses it", SOON, || {
        fixture.vcuda(["grant", "release", "web"]).output().unwrap().status.success()
    });
    assert!(!fixture.runtime().join("vcuda/containers/web-1").exists());
}

#[test]
fn vcuda_shows_the_node() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["web", "--memory", "2GiB", "--cores", "50"]);
    let hold = app("hold", Door::Dlsym);
    let mut granted = Running::start(in_grant(&fixture, "web", &hold).arg((64 * MIB).to_string()));
    granted.wait_for("holding");
    // A process without a grant is shown beside it.
    let mut own = Running::start(fixture.tenant(&["--memory", "1GiB", "--name", "own"], &hold).arg("1024"));
    own.wait_for("holding");
    let ps = || -> Value {
        serde_json::from_str(&succeeded(&fixture.vcuda(["ps", "--json"]).output().unwrap())).unwrap()
    };
    let has = |seen: &Value, tenant: &str, pid: u32| {
        let lines = seen["processes"].as_array().unwrap();
        lines.iter().any(|line| line["tenant"] == tenant && line["pid"] == pid)
    };
    eventually("ps has both", SOON, || {
        let seen = ps();
        has(&seen, "web-1", granted.0.id()) && has(&seen, "own", own.0.id())
    });

    // A request above its limit is refused, and the manager reports it.
    let mut denied = Running::start(in_grant(&fixture, "web", &hold).arg((3 * GIB).to_string()));
    denied.wait_for("holding 0 denied 1");
    let events = || succeeded(&fixture.vcuda(["events", "--container", "web-1"]).output().unwrap());
    eventually("the refusal is an event, with the size of the request", SOON, || {
        events().contains("VcudaMemoryDenied web-1: 1 refusal(s) of memory, the last of 3 GiB")
    });

    let doctor = fixture.vcuda(["doctor", "--sim"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("manager") && said.contains(manager.socket().to_str().unwrap()), "{said}");

    manager.signal(libc::SIGKILL);
    manager.finish();
    without_the_manager_files_are_readable(&fixture);
}

/// The same files are readable, and a grant cannot be changed.
fn without_the_manager_files_are_readable(fixture: &Fixture) {
    assert_eq!(tenant(fixture, "web-1")["memory_limit_bytes"], 2 * GIB);
    let (status, said) = refused(fixture, &["set", "web-1", "--memory", "1GiB"]);
    assert_eq!(status, Some(69), "{said}");
    let (status, said) = refused(fixture, &["grant", "list"]);
    assert_eq!(status, Some(69), "{said}");
    assert!(said.contains("not running"), "{said}");
    let doctor = fixture.vcuda(["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("-> start it again"), "{said}");
}

/// Memory that a tenant keeps after its quota was lowered on purpose is no breach of the quota.
#[test]
fn a_shrink_below_the_use_warns_and_raises_no_alarm() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, &["web", "--memory", "4GiB"]);
    let hold = app("hold", Door::Dlsym);
    let sizes = [2 * GIB, 3 * GIB].map(|bytes| bytes.to_string());
    let mut program = Running::start(in_grant(&fixture, "web", &hold).args(sizes));
    program.wait_for("holding");
    let events = || succeeded(&fixture.vcuda(["events"]).output().unwrap());
    // The audit has seen the limit of now once it tells of the refused piece.
    eventually("the refusal is an event", SOON, || events().contains("VcudaMemoryDenied web-1"));
    let set = fixture.vcuda(["set", "web", "--memory", "1GiB"]).output().unwrap();
    assert_eq!(succeeded(&set), "web-1 resized to 1 GiB, no guarantee (what is left)\n");
    let warning = String::from_utf8_lossy(&set.stderr).into_owned();
    assert!(warning.contains("more than 1 GiB: it keeps that"), "{warning}");
    eventually("the shrink is noted", SOON, || events().contains("VcudaLimitBelowUse web-1"));
    assert!(!events().contains("VcudaOverLimit"), "{}", events());
    let over = manager.metric("vcuda_audit_over_bytes", "container=\"web-1\"");
    assert!(over < 0.5, "{over}");
}

#[test]
fn two_managers_on_one_root_are_refused() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, &["web", "--memory", "2GiB"]);
    // It names the first manager, not the port that both would use.
    let own = fixture.manager_command(&[]);
    let mut second = Command::new(own.get_program());
    fixture.environment(&mut second);
    let port = manager.metrics_address();
    let args = own.get_args().map(|arg| if arg == "127.0.0.1:0" { port.as_ref() } else { arg });
    let second = second.args(args).output().unwrap();
    assert_eq!(second.status.code(), Some(69), "{}", text(&second));
    let named = format!("another manager runs under this root (process {})", manager.pid());
    assert!(text(&second).contains(&named), "{}", text(&second));
    // The first manager continues.
    assert!(fs::exists(manager.socket()).unwrap());
    succeeded(&fixture.vcuda(["grant", "list"]).output().unwrap());
}

/// As a rollout with `maxSurge` starts the new pod before it ends the old one.
#[test]
fn a_manager_that_waits_takes_over_with_all_grants() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["web", "--memory", "2GiB"]);
    let log = fixture.home().join("second.log");
    let written = fs::File::create(&log).unwrap();
    let mut second = fixture.manager_command(&["--wait".to_owned()]);
    let mut second = Running::start(second.stderr(written));
    let says = |word: &str| fs::read_to_string(&log).unwrap().contains(word);
    eventually("it waits", SOON, || says("this one waits for its end"));
    succeeded(&fixture.vcuda(["grant", "list"]).output().unwrap());
    assert!(second.is_alive());
    manager.signal(libc::SIGTERM);
    manager.finish();
    eventually("it has taken over", SOON, || says("ready"));
    assert_eq!(tenant(&fixture, "web-1")["memory_limit_bytes"], 2 * GIB);
    succeeded(&fixture.vcuda(["set", "web-1", "--memory", "1GiB"]).output().unwrap());
    // A waiting manager ends like any other.
    let mut third = Running::start(&mut fixture.manager_command(&["--wait".to_owned()]));
    assert!(!third.prints_within(Duration::from_millis(300)));
    third.signal(libc::SIGTERM);
    assert_eq!(third.finish().code(), Some(0));
    second.signal(libc::SIGTERM);
    assert_eq!(second.finish().code(), Some(0));
}

#[test]
fn a_cordoned_gpu_gets_nothing_new_and_stays_so() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let mut manager = fixture.manager();
    create(&fixture, &["first", "--memory", "1GiB", "--cores", "10", "--gpu", "0"]);
    let shown = || -> Value {
        let out = succeeded(&fixture.vcuda(["gpu", "list", "--json"]).output().unwrap());
        serde_json::from_str(&out).unwrap()
    };
    let uuid = shown()["gpus"][0]["uuid"].as_str().unwrap().to_owned();
    let (status, said) = refused(&fixture, &["gpu", "cordon", "0", "7"]);
    assert!(status == Some(64) && said.contains("no such GPU") && said.contains(&uuid), "{said}");
    assert_eq!(shown()["gpus"][0]["cordoned"], false);
    succeeded(&fixture.vcuda(["gpu", "cordon", &uuid[..12]]).output().unwrap());
    for _ in 0..2 {
        assert_eq!(shown()["gpus"][0]["cordoned"], true);
        assert_eq!(shown()["gpus"][1]["cordoned"], false);
        let (_, said) = refused(&fixture, &["grant", "create", "x", "--memory", "1GiB", "--gpu", "0"]);
        assert!(said.contains("cordoned"), "{said}");
        let table = succeeded(&fixture.vcuda(["gpu", "list"]).output().unwrap());
        assert!(table.contains(" cordoned"), "{table}");
        manager.kill_and_restart();
    }
    // The existing grant continues, and can be changed.
    succeeded(&fixture.vcuda(["set", "first", "--memory", "2GiB"]).output().unwrap());
    succeeded(&fixture.vcuda(["gpu", "uncordon", "0"]).output().unwrap());
    create(&fixture, &["x", "--memory", "1GiB", "--cores", "10", "--gpu", "0"]);
}
