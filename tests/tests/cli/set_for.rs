//! `vcuda set --for`: a quota that goes back by itself, whatever happens to the manager meanwhile.

use std::time::Duration;

use serde_json::Value;
use vcuda_tests::{Commanded, Door, Fixture, GIB, MIB, Manager, app, eventually, holding, soon, text};

/// Shown as an hour in its first minute, since whole minutes are.
const HOUR: &str = "3659s";

fn grant(fixture: &Fixture, name: &str) -> Value {
    let shown: Value = serde_json::from_str(&fixture.stdout(["grant", "show", name, "--json"])).unwrap();
    shown["grants"][0].clone()
}

fn has_memory(fixture: &Fixture, name: &str, gib: u64) -> bool {
    grant(fixture, name)["memory_bytes"] == gib * GIB
}

/// A node with the grant web of 2 GiB and 20 %, and a program that runs in it.
fn started(fixture: &Fixture) -> (Manager<'_>, Commanded) {
    let manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB", "--cores", "20"]);
    let program = Commanded::start(&mut fixture.in_grant("web", app("obey", Door::Dlsym)));
    (manager, program)
}

#[test]
fn a_quota_goes_back_when_its_time_is_over_and_running_programs_follow() {
    let fixture = Fixture::new();
    let (_manager, mut program) = started(&fixture);
    let said = fixture.stdout(["set", "web", "--memory", "4GiB", "--for", HOUR]);
    assert!(
        said.starts_with("web-1 resized to 4 GiB, 20 % fixed, for 1 h, then 2 GiB, 20 % fixed"),
        "{said}"
    );
    assert_eq!(program.info().1, 4 * GIB);
    // It is shown how long it holds.
    let tenant = &fixture.smi()["gpus"][0]["tenants"][0];
    let temporary = &tenant["temporary"];
    assert!((3600..=3659).contains(&temporary["remaining_seconds"].as_u64().unwrap()), "{tenant}");
    assert_eq!(temporary["then_memory_bytes"], 2 * GIB);
    for args in [&["smi"][..], &["smi", "-q"], &["grant", "list"]] {
        let shown = fixture.stdout(args);
        assert!(shown.contains("for 1 h, then 2 GiB"), "{shown}");
    }
    // A later change replaces it, and begins at the lasting quota.
    let said = fixture.stdout(["set", "web", "--cores", "30", "--for", "2s"]);
    assert!(said.contains("resized to 2 GiB, 30 % fixed, for 2 s, then 2 GiB, 20 % fixed"), "{said}");
    assert_eq!(program.info().1, 2 * GIB);
    soon("the time is over", || grant(&fixture, "web")["cores_permille"] == 200);
    assert_eq!(grant(&fixture, "web")["temporary"], Value::Null);
    soon("it is told", || fixture.events().contains("VcudaChangeEnded"));
    // One without a time ends it for good.
    fixture.stdout(["set", "web", "--memory", "4GiB", "--for", "1h"]);
    let said = fixture.stdout(["set", "web", "--memory", "3GiB"]);
    assert!(said.starts_with("web-1 resized to 3 GiB, 20 % fixed\n"), "{said}");
    assert_eq!(grant(&fixture, "web")["temporary"], Value::Null);
    assert_eq!(program.info().1, 3 * GIB);
    // A release ends both.
    fixture.stdout(["set", "web", "--memory", "4GiB", "--for", "1h"]);
    fixture.stdout(["grant", "release", "web", "--force"]);
    fixture.grant("web", &["--memory", "1GiB"]);
    assert_eq!(grant(&fixture, "web")["temporary"], Value::Null);
}

#[test]
fn a_killed_manager_forgets_no_time() {
    let fixture = Fixture::new();
    let (mut manager, mut program) = started(&fixture);
    fixture.stdout(["set", "web", "--memory", "4GiB", "--for", "1h"]);
    let before = grant(&fixture, "web")["temporary"]["until_unix_ms"].clone();
    manager.kill_and_restart();
    assert_eq!(grant(&fixture, "web")["temporary"]["until_unix_ms"], before);
    assert_eq!(program.info().1, 4 * GIB);
    // The time ends while no manager runs.
    fixture.stdout(["set", "web", "--memory", "5GiB", "--for", "1s"]);
    manager.kill();
    std::thread::sleep(Duration::from_millis(1100));
    manager.start_again();
    soon("the quota is back", || has_memory(&fixture, "web", 2));
    assert_eq!(program.info().1, 2 * GIB);
    // A rebuilt ledger knows it too, from the tenant's directory.
    fixture.stdout(["set", "web", "--memory", "4GiB", "--for", "1h"]);
    manager.kill();
    std::fs::write(manager.state().join("ledger.json"), "damaged").unwrap();
    manager.start_again();
    assert_eq!(grant(&fixture, "web")["temporary"]["then_memory_bytes"], 2 * GIB);
}

#[test]
fn room_for_the_lasting_quota_is_kept() {
    let fixture = Fixture::with_gpus(1, "16GiB");
    let _manager = fixture.manager();
    fixture.grant("large", &["--memory", "12GiB", "--cores", "60"]);
    fixture.stdout(["set", "large", "--memory", "2GiB", "--cores", "10", "--for", "1h"]);
    for args in [["--memory", "6GiB"], ["--cores", "50"]] {
        let refused = fixture
            .vcuda(["grant", "create", "other", "--memory", "1GiB"].iter().take(3).chain(&args))
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    }
    // Within what is kept, nothing is refused.
    fixture.stdout(["set", "large", "--memory", "12GiB", "--cores", "60", "--for", "1s"]);
    fixture.stdout(["set", "large", "--memory", "2GiB", "--cores", "10"]);
    fixture.grant("other", &["--memory", "6GiB", "--cores", "50"]);
}

#[test]
fn a_run_gets_its_quota_back_too() {
    let fixture = Fixture::new();
    let _own = holding(
        &mut fixture.tenant(&["--name", "own", "--memory", "2GiB"], app("hold", Door::Dlsym)),
        100 * MIB,
    );
    let limit = || fixture.smi()["gpus"][0]["tenants"][0]["memory_limit_bytes"].clone();
    fixture.stdout(["set", "own", "--memory", "1GiB", "--for", "1s"]);
    assert_eq!(limit(), GIB);
    eventually("its quota is back", Duration::from_secs(30), || limit() == 2 * GIB);
}
