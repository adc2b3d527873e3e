//! `vcuda usage`: what tenants used, across their ends, restarts and a SIGKILL of the manager, and with hostile figures.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, eventually, succeeded, text};

const SOON: Duration = Duration::from_secs(60);

fn document(fixture: &Fixture, by: &str) -> Value {
    let args = ["usage", "--since", "1h", "--by", by, "--json"];
    serde_json::from_str(&succeeded(&fixture.vcuda(args).output().unwrap())).unwrap()
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
    succeeded(&fixture.vcuda(["grant", "create"].iter().chain(args)).output().unwrap());
}

/// A program that keeps the GPU busy in the grant `web` for a second, and has begun.
fn working(fixture: &Fixture) -> Running {
    let mut run = fixture.vcuda(["run", "--sim", "--grant", "web", "--"]);
    let mut run = Running::start(run.arg(app("saturate", Door::Dlsym)).args(["1", "1000000"]));
    run.wait_for("started");
    run
}

/// Waits until this much GPU time of `web-1` is counted, and returns it (s).
fn counted(fixture: &Fixture, above: f64) -> f64 {
    let mut seen = 0.0;
    eventually("GPU time is counted", SOON, || {
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
    manager.signal(libc::SIGKILL);
    manager.finish();
    on.finish();
    manager.start_again();
    let second = counted(&fixture, first + 0.05);
    let mut hold = fixture.vcuda(["run", "--sim", "--grant", "web", "--"]);
    hold.arg(app("hold", Door::Dlsym)).args([GIB.to_string(), (9 * GIB).to_string()]);
    let mut hold = Running::start(&mut hold);
    hold.wait_for("holding");
    eventually("peak and denial are counted", SOON, || {
        let web = row(&fixture, "tenant", "web-1").unwrap();
        figure(&web, "denials") >= 1.0 && figure(&web, "memory_peak_bytes") >= GIB as f64
    });
    let user = succeeded(&std::process::Command::new("id").arg("-un").output().unwrap());
    eventually("its user is known, as it has registered", SOON, || {
        row(&fixture, "user", user.trim()).is_some()
    });
    hold.signal(libc::SIGKILL);
    hold.finish();
    let released = fixture.vcuda(["grant", "release", "web"]).output().unwrap();
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
fn a_hostile_tenant_gets_no_absurd_sums() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    let tenant = fixture.keep("hostile", &["--memory", "4GiB", "--cores", "30"]);
    let other = fixture.keep("other", &["--memory", "1GiB"]);
    let _holding = Running::start(other.command(app("hold", Door::Dlsym)).arg((100 * MIB).to_string()));
    let usage = tenant.directory().join("usage");
    let size = usize::try_from(fs::metadata(&usage).unwrap().len()).unwrap();
    let file = fs::File::options().write(true).open(&usage).unwrap();
    let noise: Vec<u8> = (0..size).map(|at| (at * 2_654_435_761).to_le_bytes()[1]).collect();
    for round in 0..6 {
        for bytes in [vec![0xff; size], vec![0; size], noise.clone()] {
            // All behind the header.
            file.write_all_at(&bytes[24..], 24).unwrap();
            document(&fixture, "tenant");
            std::thread::sleep(Duration::from_millis(60));
        }
        if round == 3 {
            manager.kill_and_restart();
        }
    }
    let all = document(&fixture, "tenant");
    let hostile = row(&fixture, "tenant", "hostile").unwrap();
    // The test takes less than a quarter of an hour on one GPU of 80 GiB.
    assert!(figure(&hostile, "gpu_seconds") < 900.0, "{all}");
    assert!(figure(&hostile, "throttled_seconds") < 64.0 * 900.0, "{all}");
    assert!(figure(&hostile, "denials") < 900e6, "{all}");
    assert!(figure(&hostile, "memory_peak_bytes") <= (80 * GIB) as f64, "{all}");
    assert_eq!(figure(&hostile, "memory_requested_bytes"), (4 * GIB) as f64, "{all}");
    let other = row(&fixture, "tenant", "other").unwrap();
    assert_eq!(figure(&other, "gpu_seconds"), 0.0, "{all}");
    assert!(figure(&other, "memory_peak_bytes") < GIB as f64, "{all}");
}

#[test]
fn a_wrong_period_is_refused_with_its_remedy() {
    let fixture = Fixture::new();
    let said = |since: &str| {
        let output = fixture.vcuda(["usage", "--since", since]).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
        text(&output)
    };
    assert!(said("yesterday").contains("'yesterday'"));
    assert!(said("yesterday").contains("such as 24h"));
    let _manager = fixture.manager();
    let refused = said("32d");
    let words = "--since 32d: usage is kept for 2678400 s (31 days)";
    assert!(refused.contains(words), "{refused}");
    let both = fixture.vcuda(["usage", "--csv", "--json"]).output().unwrap();
    assert_eq!(both.status.code(), Some(64));
    let csv = succeeded(&fixture.vcuda(["usage", "--csv"]).output().unwrap());
    assert_eq!(csv, "key,gpu_seconds,memory_requested_bytes,memory_peak_bytes,denials,throttled_seconds\n");
    assert!(succeeded(&fixture.vcuda(["usage"]).output().unwrap()).contains("nothing was used"));
}

#[test]
fn a_damaged_file_is_told_and_the_others_stay() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, &["web", "--memory", "1GiB"]);
    assert!(row(&fixture, "tenant", "web-1").is_some());
    manager.signal(libc::SIGTERM);
    manager.finish();
    let folder = manager.state().join("usage");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    manager.start_again();
    let events = succeeded(&fixture.vcuda(["events"]).output().unwrap());
    assert!(events.contains("VcudaUsageForgotten"), "{events}");
    // The living grant is counted from now on.
    eventually("it is counted again", SOON, || row(&fixture, "tenant", "web-1").is_some());
}
