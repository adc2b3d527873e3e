//! Nodes whose clock is set while the manager runs or not: ahead, back, to its beginning. Durations are measured by another
//! clock; only shown times are wrong.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use vcuda_tests::{Commanded, Door, Fixture, GIB, Manager, app, soon, succeeded, text, workspace};

const DAY: i64 = 86_400;
const YEAR: i64 = 365 * DAY;

fn grants(fixture: &Fixture) -> Vec<String> {
    let out = fixture.stdout(["grant", "list", "--json"]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    let grants = listed["grants"].as_array().unwrap().iter();
    grants.map(|grant| grant["id"].as_str().unwrap().to_owned()).collect()
}

/// The time since the last arbitration does not depend on the wall clock.
fn follows_its_arbiter(manager: &Manager<'_>) {
    let mut age = None;
    // A manager answers before its arbiter has begun.
    soon("the arbiter has begun", || {
        let page = manager.metrics();
        let line = page.lines().find(|line| line.starts_with("vcuda_arbiter_age_seconds"));
        age = line.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        age.is_some()
    });
    let age = age.unwrap();
    assert!((0.0..20.0).contains(&age), "{age}");
}

/// Seconds to the initial time of a clock that has lost its battery.
fn to_the_first_day() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    DAY - i64::try_from(since_1970.as_secs()).unwrap()
}

/// Builds a library that shifts the clock of its program by as many seconds as a file says.
fn clock_library(fixture: &Fixture) -> PathBuf {
    let library = fixture.runtime().join("shift.so");
    let built = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(workspace().join("tests/apps/clock_shift.c"))
        .output()
        .unwrap();
    succeeded(&built);
    library
}

/// Damages the ledger, and lets the manager detect that.
fn damage_the_ledger(manager: &mut Manager<'_>) {
    let ledger = manager.state().join("ledger.json");
    let mut bytes = fs::read(&ledger).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&ledger, bytes).unwrap();
    manager.kill_and_restart();
    assert!(manager.log().contains("the ledger was damaged"), "{}", manager.log());
}

#[test]
fn a_clock_that_is_set_changes_what_is_shown_and_nothing_else() {
    let fixture = Fixture::new();
    let shift = fixture.runtime().join("shift");
    let library = clock_library(&fixture);
    fs::write(&shift, "0").unwrap();
    let variables = [("LD_PRELOAD", library.as_path()), ("TEST_CLOCK_SHIFT", &shift)];
    let mut manager = fixture.manager_under(&variables);
    let create = |name: &str| {
        fixture.grant(name, &["--memory", "1GiB", "--cores", "10"]);
        let made = grants(&fixture);
        made.into_iter().find(|id| id.starts_with(name)).unwrap()
    };
    let mut ids = BTreeSet::from([create("a")]);
    let mut program = Commanded::start(&mut fixture.in_grant("a", app("obey", Door::Dlsym)));
    let mut limit_gib = 1;
    let first_day = to_the_first_day();
    // Earlier dates cannot be written.
    let before_all = first_day - 2 * YEAR;
    for seconds in [40 * YEAR, first_day, before_all, 0] {
        fs::write(&shift, seconds.to_string()).unwrap();
        // While it runs, and after a restart.
        for _ in 0..2 {
            limit_gib += 1;
            let size = format!("{limit_gib}GiB");
            fixture.stdout(["set", "a", "--memory", &size]);
            assert_eq!(program.info().1, limit_gib * GIB, "{seconds}");
            program.fills_to_the_byte();
            let id = create("b");
            assert!(ids.insert(id.clone()), "{id} was given twice: {ids:?}");
            fixture.stdout(["grant", "release", &id]);
            soon("refusals are an event, in whatever year", || {
                // Refusals before a manager's first look are not reported.
                assert_eq!(program.alloc(100 * GIB), Some(2));
                let told = fixture.output(["events", "--container", "a-1"]);
                text(&told).contains("VcudaMemoryDenied a-1")
            });
            // There are no metrics before 1970: see docs/operations.md.
            let has_metrics = seconds != before_all;
            if has_metrics {
                follows_its_arbiter(&manager);
            }
            manager.kill_and_restart();
            if has_metrics {
                soon("it has registered again", || {
                    manager.metric("vcuda_shim_attached", "container=\"a-1\"") > 0.5
                });
            }
        }
        assert_eq!(grants(&fixture), ["a-1"], "{seconds}");
    }
    // The ledger is lost while the clock is before all its numbers.
    fs::write(&shift, first_day.to_string()).unwrap();
    damage_the_ledger(&mut manager);
    let id = create("b");
    assert!(ids.insert(id.clone()), "{id} was given twice: {ids:?}");
    program.fills_to_the_byte();
}
