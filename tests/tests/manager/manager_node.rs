//! A node with a manager: granted tenants, quota changes while they run, a killed manager, and what `vcuda` and the metrics
//! report. `VCUDA_SOAK` kills it 100 times instead of 10.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use vcuda_limiter::controller::STALE_BEAT_NS;
use vcuda_tests::{Commanded, Door, Fixture, GIB, Manager, Running, app, soon, succeeded, text};

/// Additional waiting time on a busy machine (ns).
const SLACK_NS: u64 = 1_000_000_000;

#[test]
fn two_tenants_by_grant_keep_their_quotas_through_kills_of_the_manager() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    fixture.grant("a", &["--memory", "2GiB", "--cores", "30"]);
    fixture.grant("b", &["--memory", "4GiB", "--cores", "60"]);
    let obey = app("obey", Door::Dlsym);
    let mut a = Commanded::start(&mut fixture.in_grant("a", &obey));
    let mut b = Commanded::start(&mut fixture.in_grant("b", &obey));
    let mut busy =
        Running::start(fixture.in_grant("b", app("saturate", Door::Dlsym)).args(["3600", "1000000"]));
    busy.wait_for("started");
    let mut steady =
        Running::ready(fixture.in_grant("a", app("longest", Door::Dlsym)).arg("1000000"), "started");
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
        soon("the processes registered again by themselves", || {
            manager.metric("vcuda_shim_attached", "container=\"a-1\"") > 0.5
                && manager.metric("vcuda_shim_attached", "container=\"b-2\"") > 0.5
        });
        let used = fixture.tenant_shown("a-1")["memory_used_bytes"].as_u64().unwrap();
        assert!((GIB..2 * GIB).contains(&used), "round {round}: {used}");
        // No launch waited longer than a shim needs to notice a missing arbiter, and none was refused.
        steady.tell("longest");
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
    a.0.kill();
    soon("the memory of the killed process is not counted", || {
        fixture.tenant_shown("a-1")["memory_used_bytes"] == 0
            && manager.metric("vcuda_container_memory_used_bytes", "container=\"a-1\"") == 0.0
    });
}

/// A quota changed live is also in the ledger.
fn a_new_limit_holds_and_stays(fixture: &Fixture, manager: &mut Manager<'_>, a: &mut Commanded) {
    fixture.stdout(["set", "a", "--memory", "3GiB"]);
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    manager.kill_and_restart();
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    let listed = fixture.stdout(["grant", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["grants"][0]["memory_bytes"], 3 * GIB);
    assert_eq!(
        manager.metric("vcuda_container_memory_limit_bytes", "container=\"a-1\""),
        3.0 * 1024.0 * 1024.0 * 1024.0
    );
}

#[test]
fn a_grant_outlives_its_programs_and_is_not_released_under_them() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
    let obey = app("obey", Door::Dlsym);
    for _ in 0..2 {
        let mut program = Commanded::start(&mut fixture.in_grant("web", &obey));
        program.fills_to_the_byte();
        let said = fixture.refusal(["grant", "release", "web"], 1);
        assert!(said.contains("web-1"), "{said}");
        program.0.kill();
    }
    // Commands that remove dead runs do not remove a grant.
    succeeded(&fixture.tenant(&["--memory", "1GiB"], "true").output().unwrap());
    assert!(fixture.runtime().join("vcuda/containers/web-1/limits").exists());
    soon("no process uses it", || fixture.output(["grant", "release", "web"]).status.success());
    assert!(!fixture.runtime().join("vcuda/containers/web-1").exists());
}

#[test]
fn two_managers_on_one_root_are_refused() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
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
    fixture.stdout(["grant", "list"]);
}

/// As a rollout with `maxSurge` starts the new pod before it ends the old one.
#[test]
fn a_manager_that_waits_takes_over_with_all_grants() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
    let log = fixture.home().join("second.log");
    let written = fs::File::create(&log).unwrap();
    let mut second = fixture.manager_command(&["--wait".to_owned()]);
    let mut second = Running::start(second.stderr(written));
    let says = |word: &str| fs::read_to_string(&log).unwrap().contains(word);
    soon("it waits", || says("this one waits for its end"));
    fixture.stdout(["grant", "list"]);
    assert!(second.is_alive());
    manager.end();
    soon("it has taken over", || says("ready"));
    assert_eq!(fixture.tenant_shown("web-1")["memory_limit_bytes"], 2 * GIB);
    fixture.stdout(["set", "web-1", "--memory", "1GiB"]);
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
    fixture.grant("first", &["--memory", "1GiB", "--cores", "10", "--gpu", "0"]);
    let cordoned = || {
        let shown = fixture.json(["gpu", "list", "--json"]);
        [0, 1].map(|gpu: usize| shown["gpus"][gpu]["cordoned"] == true)
    };
    let uuid = fixture.uuid(0);
    let said = fixture.refusal(["gpu", "cordon", "0", "7"], 64);
    assert!(said.contains("no such GPU") && said.contains(&uuid), "{said}");
    assert_eq!(cordoned(), [false, false]);
    fixture.stdout(["gpu", "cordon", &uuid[..12]]);
    for _ in 0..2 {
        assert_eq!(cordoned(), [true, false]);
        let said = fixture.refusal(["grant", "create", "x", "--memory", "1GiB", "--gpu", "0"], 1);
        assert!(said.contains("cordoned"), "{said}");
        manager.kill_and_restart();
    }
    // The existing grant continues, and can be changed.
    fixture.stdout(["set", "first", "--memory", "2GiB"]);
    fixture.stdout(["gpu", "uncordon", "0"]);
    fixture.grant("x", &["--memory", "1GiB", "--cores", "10", "--gpu", "0"]);
}
