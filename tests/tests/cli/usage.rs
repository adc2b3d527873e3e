//! `vcuda usage`: what tenants used, across their ends, restarts and a SIGKILL of the manager, and with hostile figures.

use std::fs;

use serde_json::Value;
use vcuda_tests::{Door, Fixture, GIB, Running, app, soon, succeeded, text};

fn document(fixture: &Fixture, by: &str) -> Value {
    fixture.json(["usage", "--since", "1h", "--by", by, "--json"])
}

/// The row of a tenant, namespace or user.
fn row(fixture: &Fixture, by: &str, key: &str) -> Option<Value> {
    let document = document(fixture, by);
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row["key"] == key).cloned()
}

fn figure(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap()
}

fn create(fixture: &Fixture, args: &[&str]) {
    fixture.stdout(["grant", "create"].iter().chain(args));
}

/// A program that keeps the GPU busy in the grant `web` for a second, and has begun.
fn working(fixture: &Fixture) -> Running {
    let mut run =
        Running::start(fixture.in_grant("web", app("saturate", Door::Dlsym)).args(["1", "1000000"]));
    run.wait_for("started");
    run
}

/// Waits until this much GPU time of `web-1` is counted, and returns it (s).
fn counted(fixture: &Fixture, above: f64) -> f64 {
    let mut seen = 0.0;
    soon("GPU time is counted", || {
        seen = row(fixture, "tenant", "web-1").map_or(0.0, |row| figure(&row, "gpu_seconds"));
        seen > above
    });
    seen
}

#[test]
fn usage_outlives_tenants_restarts_and_a_kill() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["web", "--memory", "8GiB", "--cores", "30"]);
    working(&fixture).finish();
    let first = counted(&fixture, 0.0);
    // A SIGKILL, and a program that works on without a manager: counted once it is back.
    let mut on = working(&fixture);
    manager.kill();
    on.finish();
    manager.start_again();
    let second = counted(&fixture, first + 0.05);
    let mut hold = fixture.in_grant("web", app("hold", Door::Dlsym));
    hold.args([GIB.to_string(), (9 * GIB).to_string()]);
    let mut hold = Running::start(&mut hold);
    hold.wait_for("holding");
    soon("peak and denial are counted", || {
        let web = row(&fixture, "tenant", "web-1").unwrap();
        figure(&web, "denials") >= 1.0 && figure(&web, "memory_peak_bytes") >= GIB as f64
    });
    let user = succeeded(&std::process::Command::new("id").arg("-un").output().unwrap());
    soon("its user is known, as it has registered", || row(&fixture, "user", user.trim()).is_some());
    hold.kill();
    let released = fixture.output(["grant", "release", "web"]);
    succeeded(&released);
    // A clean end and a kill keep what was written, of the ended grant too.
    let before = row(&fixture, "tenant", "web-1").unwrap();
    manager.signal(libc::SIGTERM);
    assert!(manager.finish().success());
    manager.start_again();
    assert_eq!(row(&fixture, "tenant", "web-1").unwrap(), before);
    manager.kill_and_restart();
    assert_eq!(row(&fixture, "tenant", "web-1").unwrap(), before);
    assert_eq!(figure(&before, "memory_requested_bytes"), (8 * GIB) as f64);
    assert!(figure(&before, "memory_peak_bytes") < (2 * GIB) as f64, "{before}");
    assert!(figure(&before, "gpu_seconds") >= second, "{before}");
    assert!(row(&fixture, "user", user.trim()).is_some());
    assert_eq!(row(&fixture, "namespace", "").unwrap()["denials"], before["denials"]);
}

#[test]
fn the_probe_of_doctor_and_a_short_idle_run_are_not_told() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.stdout(["doctor", "--sim"]);
    succeeded(&fixture.tenant(&["--name", "idle", "--memory", "1GiB"], "true").output().unwrap());
    let said = fixture.stdout(["usage"]);
    assert!(said.contains("nothing was used"), "{said}");
}

/// A short run may begin and end between two looks of the manager, and leaves its slot to the next process.
#[test]
fn the_peak_of_a_process_outlives_it() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    for number in 0..4 {
        let name = format!("run-{number}");
        let twice = r#""$0" 3221225472 </dev/null; exec "$0" 1048576 </dev/null"#;
        let mut run = fixture.tenant(&["--name", &name, "--memory", "4GiB"], "sh");
        succeeded(&run.args(["-c", twice]).arg(app("ask", Door::Dlsym)).output().unwrap());
        let seen = row(&fixture, "tenant", &name).map(|row| figure(&row, "memory_peak_bytes"));
        assert!(seen.is_some_and(|peak| peak >= (3 * GIB) as f64), "{name}: {seen:?}");
    }
}

/// A short run is seen by no look of the manager while it lives, and a manager that is killed has not written for twenty seconds.
#[test]
fn a_short_run_has_its_refusals_in_events_and_its_row_after_a_kill() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    let mut run = fixture.tenant(&["--name", "short", "--memory", "2GiB"], app("ask", Door::Dlsym));
    run.arg((3 * GIB).to_string()).output().unwrap();
    soon("it is told", || fixture.events().contains("1 refusal(s) of memory, the last of 3 GiB"));
    let before = row(&fixture, "tenant", "short").unwrap();
    let usage = manager.state().join("usage");
    // The row, and not in the file that is about to replace a day's.
    let is_written = |file: fs::DirEntry| {
        let path = file.path();
        path.extension().is_some_and(|end| end == "json")
            && fs::read_to_string(path).is_ok_and(|text| text.contains(r#""short":{"gpu_ns""#))
    };
    soon("it is written", || fs::read_dir(&usage).is_ok_and(|files| files.flatten().any(is_written)));
    manager.kill_and_restart();
    assert_eq!(row(&fixture, "tenant", "short").unwrap(), before);
}

#[test]
fn a_wrong_period_is_refused_with_its_remedy() {
    let fixture = Fixture::new();
    let said = |since: &str| {
        let output = fixture.output(["usage", "--since", since]);
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
        text(&output)
    };
    assert!(said("yesterday").contains("'yesterday'"));
    assert!(said("yesterday").contains("such as 24h"));
    let _manager = fixture.manager();
    let refused = said("32d");
    let words = "--since 32d: usage is kept for 2678400 s (31 days)";
    assert!(refused.contains(words), "{refused}");
    let both = fixture.output(["usage", "--csv", "--json"]);
    assert_eq!(both.status.code(), Some(64));
    let csv = fixture.stdout(["usage", "--csv"]);
    assert_eq!(csv, "key,gpu_seconds,memory_requested_bytes,memory_peak_bytes,denials,throttled_seconds\n");
    assert!(fixture.stdout(["usage"]).contains("nothing was used"));
}

#[test]
fn a_damaged_file_is_told_and_the_others_stay() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["web", "--memory", "1GiB"]);
    assert!(row(&fixture, "tenant", "web-1").is_none(), "it is idle");
    succeeded(&fixture.in_grant("web", app("ask", Door::Dlsym)).arg("1048576").output().unwrap());
    assert!(row(&fixture, "tenant", "web-1").is_some());
    manager.end();
    let folder = manager.state().join("usage");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    manager.start_again();
    let events = fixture.events();
    assert!(events.contains("VcudaUsageForgotten"), "{events}");
    // The living grant is counted from now on.
    soon("it is counted again", || row(&fixture, "tenant", "web-1").is_some());
}
