//! A node with a manager: tenants by grant, their quotas changed as they run, the manager killed meanwhile, and what
//! `vcuda` and the metrics say of all that. `VCUDA_SOAK` kills it 100 times instead of 10.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vcuda_limiter::controller::STALE_BEAT_NS;
use vcuda_tests::{Bed, Door, GIB, MIB, Obedient, Running, app, eventually, succeeded, text};

/// How long what happens at once may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// What a busy machine may add to a hold (ns).
const SLACK_NS: u64 = 1_000_000_000;

/// A command inside a grant.
fn in_grant(bed: &Bed, grant: &str, program: &std::path::Path) -> Command {
    let mut command = bed.vcuda(["run", "--sim", "--grant", grant, "--"]);
    command.arg(program);
    command
}

fn create(bed: &Bed, args: &[&str]) -> String {
    let args = [&["grant", "create"], args].concat();
    succeeded(&bed.vcuda(args).output().unwrap())
}

fn refused(bed: &Bed, args: &[&str]) -> (Option<i32>, String) {
    let output = bed.vcuda(args).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said)
}

fn tenant(bed: &Bed, id: &str) -> Value {
    let smi = bed.smi();
    let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
    let found = tenants.iter().find(|tenant| tenant["name"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {smi}")).clone()
}

#[test]
fn two_tenants_by_grant_keep_their_quotas_through_kills_of_the_manager() {
    let bed = Bed::new();
    let mut manager = bed.manager();
    create(&bed, &["a", "--memory", "2GiB", "--cores", "30"]);
    create(&bed, &["b", "--memory", "4GiB", "--cores", "60"]);
    let obey = app("obey", Door::Dlsym);
    let mut a = Obedient::start(&mut in_grant(&bed, "a", &obey));
    let mut b = Obedient::start(&mut in_grant(&bed, "b", &obey));
    let mut busy =
        Running::start(in_grant(&bed, "b", &app("saturate", Door::Dlsym)).args(["3600", "1000000"]));
    busy.wait_for("started");
    let mut steady = in_grant(&bed, "a", &app("longest", Door::Dlsym));
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
        // Its own memory, its neighbour's, and no more than both were given.
        assert_eq!(a.alloc(2 * GIB), Some(2), "round {round}");
        assert_eq!(b.alloc(GIB), Some(0), "round {round}");
        b.free();
        assert!(busy.0.try_wait().unwrap().is_none(), "round {round}");
        eventually("the processes registered again by themselves", SOON, || {
            manager.metric("vcuda_shim_attached", "container=\"a-1\"") > 0.5
                && manager.metric("vcuda_shim_attached", "container=\"b-2\"") > 0.5
        });
        let used = tenant(&bed, "a-1")["memory_used_bytes"].as_u64().unwrap();
        assert!((GIB..2 * GIB).contains(&used), "round {round}: {used}");
        // Nobody was held longer than until a shim notices that nobody arbitrates, nor was a launch refused.
        writeln!(steady.0.stdin.as_mut().unwrap(), "longest").unwrap();
        let said = steady.wait_for("longest ");
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!(words[3], "0", "round {round}: {said}");
        longest_ns = longest_ns.max(words[1].parse().unwrap());
        assert!(longest_ns < STALE_BEAT_NS + SLACK_NS, "round {round}: {said}");
    }
    println!("the longest launch took {} ms", longest_ns / 1_000_000);
    drop(steady);

    // Live, and in the ledger.
    succeeded(&bed.vcuda(["set", "a", "--memory", "3GiB"]).output().unwrap());
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    manager.kill_and_restart();
    let (_, total) = a.info();
    assert_eq!(total, 3 * GIB);
    let listed = succeeded(&bed.vcuda(["grant", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["grants"][0]["memory_bytes"], 3 * GIB);
    assert_eq!(
        manager.metric("vcuda_container_memory_limit_bytes", "container=\"a-1\""),
        3.0 * 1024.0 * 1024.0 * 1024.0
    );

    // The dead are gone from every figure.
    a.0.signal(libc::SIGKILL);
    a.0.finish();
    eventually("the memory of the killed process is not counted", SOON, || {
        tenant(&bed, "a-1")["memory_used_bytes"] == 0
            && manager.metric("vcuda_container_memory_used_bytes", "container=\"a-1\"") == 0.0
    });
}

#[test]
fn admission_is_exact_and_says_what_is_free() {
    let bed = Bed::with_gpus(2, "24GiB");
    let _manager = bed.manager();
    create(&bed, &["whole", "--gpus", "1"]);
    create(&bed, &["half", "--memory", "12GiB", "--cores", "50"]);
    let (status, said) = refused(
        &bed,
        &["grant", "create", "more", "--memory", "12GiB", "--cores", "50"],
    );
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("free"), "{said}");
    let (status, said) = refused(&bed, &["grant", "create", "half/x", "--memory", "1GiB"]);
    assert_eq!(status, Some(64), "{said}");
    let (status, said) = refused(&bed, &["grant", "resize", "nobody", "--memory", "1GiB"]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("half-2") && said.contains("whole-1"), "{said}");
    succeeded(&bed.vcuda(["grant", "release", "whole"]).output().unwrap());
    create(&bed, &["more", "--memory", "12GiB", "--cores", "50"]);
}

#[test]
fn a_grant_outlives_its_programs_and_is_not_released_under_them() {
    let bed = Bed::new();
    let _manager = bed.manager();
    create(&bed, &["web", "--memory", "2GiB"]);
    let obey = app("obey", Door::Dlsym);
    for _ in 0..2 {
        let mut program = Obedient::start(&mut in_grant(&bed, "web", &obey));
        program.fills_to_the_byte();
        let (_, said) = refused(&bed, &["grant", "release", "web"]);
        assert!(said.contains("web-1"), "{said}");
        program.0.signal(libc::SIGKILL);
        program.0.finish();
    }
    // Commands that clear what dead runs left do not clear a grant.
    succeeded(&bed.tenant(&["--memory", "1GiB"], "true").output().unwrap());
    assert!(bed.runtime().join("vcuda/containers/web-1/limits").exists());
    eventually("nobody uses it", SOON, || {
        bed.vcuda(["grant", "release", "web"])
            .output()
            .unwrap()
            .status
            .success()
    });
    assert!(!bed.runtime().join("vcuda/containers/web-1").exists());
}

#[test]
fn vcuda_shows_the_node() {
    let bed = Bed::new();
    let mut manager = bed.manager();
    create(&bed, &["web", "--memory", "2GiB", "--cores", "50"]);
    let hold = app("hold", Door::Dlsym);
    let mut granted = Running::start(in_grant(&bed, "web", &hold).arg((64 * MIB).to_string()));
    granted.wait_for("holding");
    // One that asked nobody is shown beside it.
    let mut own = Running::start(
        bed.tenant(&["--memory", "1GiB", "--name", "own"], &hold)
            .arg("1024"),
    );
    own.wait_for("holding");
    let ps = || -> Value {
        serde_json::from_str(&succeeded(&bed.vcuda(["ps", "--json"]).output().unwrap())).unwrap()
    };
    let has = |seen: &Value, tenant: &str, pid: u32| {
        let lines = seen["processes"].as_array().unwrap();
        lines
            .iter()
            .any(|line| line["tenant"] == tenant && line["pid"] == pid)
    };
    eventually("ps has both", SOON, || {
        let seen = ps();
        has(&seen, "web-1", granted.0.id()) && has(&seen, "own", own.0.id())
    });

    // More than its limit, and the manager says so.
    let mut denied = Running::start(in_grant(&bed, "web", &hold).arg((3 * GIB).to_string()));
    denied.wait_for("holding 0 denied 1");
    let events = || succeeded(&bed.vcuda(["events", "--container", "web-1"]).output().unwrap());
    eventually("the refusal is an event", SOON, || {
        events().contains("VcudaMemoryDenied web-1")
    });

    let doctor = bed.vcuda(["doctor", "--sim"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        said.contains("manager") && said.contains(manager.socket().to_str().unwrap()),
        "{said}"
    );

    // Without the manager the same files tell the same, and a grant is not changed behind its back.
    manager.signal(libc::SIGKILL);
    manager.finish();
    assert_eq!(tenant(&bed, "web-1")["memory_limit_bytes"], 2 * GIB);
    let (status, said) = refused(&bed, &["set", "web-1", "--memory", "1GiB"]);
    assert_eq!(status, Some(69), "{said}");
    let (status, said) = refused(&bed, &["grant", "list"]);
    assert_eq!(status, Some(69), "{said}");
    assert!(said.contains("not running"), "{said}");
}

#[test]
fn two_managers_on_one_root_are_refused() {
    let bed = Bed::new();
    let manager = bed.manager();
    create(&bed, &["web", "--memory", "2GiB"]);
    let second = bed.manager_command(&[]).output().unwrap();
    assert_eq!(second.status.code(), Some(69), "{}", text(&second));
    assert!(text(&second).contains("another manager"), "{}", text(&second));
    // The first goes on.
    assert!(fs::exists(manager.socket()).unwrap());
    succeeded(&bed.vcuda(["grant", "list"]).output().unwrap());
}

#[test]
fn a_cordoned_gpu_gets_nothing_new_and_stays_so() {
    let bed = Bed::with_gpus(2, "24GiB");
    let mut manager = bed.manager();
    create(
        &bed,
        &["first", "--memory", "1GiB", "--cores", "10", "--gpu", "0"],
    );
    let shown = || -> Value {
        let out = succeeded(&bed.vcuda(["node", "gpus", "--json"]).output().unwrap());
        serde_json::from_str(&out).unwrap()
    };
    let uuid = shown()["gpus"][0]["uuid"].as_str().unwrap().to_owned();
    let (status, said) = refused(&bed, &["node", "cordon", "0", "7"]);
    assert!(
        status == Some(64) && said.contains("no such GPU") && said.contains(&uuid),
        "{said}"
    );
    assert_eq!(shown()["gpus"][0]["cordoned"], false);
    succeeded(&bed.vcuda(["node", "cordon", &uuid[..12]]).output().unwrap());
    for _ in 0..2 {
        assert_eq!(shown()["gpus"][0]["cordoned"], true);
        assert_eq!(shown()["gpus"][1]["cordoned"], false);
        let (_, said) = refused(&bed, &["grant", "create", "x", "--memory", "1GiB", "--gpu", "0"]);
        assert!(said.contains("cordoned"), "{said}");
        let table = succeeded(&bed.vcuda(["node", "gpus"]).output().unwrap());
        assert!(table.contains("no: cordoned"), "{table}");
        manager.kill_and_restart();
    }
    // What is there goes on, and can be changed.
    succeeded(&bed.vcuda(["set", "first", "--memory", "2GiB"]).output().unwrap());
    succeeded(&bed.vcuda(["node", "uncordon", "0"]).output().unwrap());
    create(&bed, &["x", "--memory", "1GiB", "--cores", "10", "--gpu", "0"]);
}
