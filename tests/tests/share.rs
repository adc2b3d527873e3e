//! The share of GPU time by the simulator's exact record: alone, side by side, for every kind of launch, changed live.
//! Behaviour within the five points that the design promises; precise figures are benchmarks.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::Duration;

use vcuda_tests::{Bed, Door, Running, app, succeeded};

/// Runs the program as a tenant and returns its share of GPU time over two seconds in the middle, in percent.
fn shares(bed: &Bed, tenants: &[(&str, &[&str])]) -> Vec<f64> {
    let program = app("saturate", Door::ProcAddress);
    let mut running: Vec<_> = tenants
        .iter()
        .map(|(cores, args)| Running::start(bed.tenant(&["--cores", cores], &program).args(*args)))
        .collect();
    running.iter_mut().for_each(|r| drop(r.wait_for("started")));
    std::thread::sleep(Duration::from_millis(1500));
    let pids: Vec<u32> = running.iter().map(|r| r.0.id()).collect();
    let service = |report: &serde_json::Value, pid: u32| -> (f64, f64) {
        let row = report["processes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["pid"] == pid)
            .unwrap();
        (
            row["service_ns"].as_f64().unwrap(),
            row["last_ns"].as_f64().unwrap(),
        )
    };
    let before = bed.report();
    let clock = std::time::SystemTime::now();
    std::thread::sleep(Duration::from_secs(2));
    let after = bed.report();
    let elapsed = clock.elapsed().unwrap().as_nanos() as f64;
    pids.iter()
        .map(|&pid| (service(&after, pid).0 - service(&before, pid).0) / elapsed * 100.0)
        .collect()
}

fn near(got: f64, cap: f64) {
    assert!((got - cap).abs() <= 5.0, "{got:.1} % instead of {cap} %");
}

#[test]
fn a_tenant_alone_gets_its_cap() {
    for cap in ["20", "60"] {
        let bed = Bed::new();
        near(shares(&bed, &[(cap, &["6", "1000000"])])[0], cap.parse().unwrap());
    }
}

#[test]
fn two_tenants_get_their_caps() {
    let bed = Bed::new();
    let got = shares(&bed, &[("30", &["6", "500000"]), ("60", &["6", "500000"])]);
    near(got[0], 30.0);
    near(got[1], 60.0);
}

#[test]
fn every_kind_of_launch_is_charged() {
    for how in ["graph", "ex", "cooperative", "sync"] {
        let bed = Bed::new();
        near(shares(&bed, &[("40", &["6", "500000", how])])[0], 40.0);
    }
}

#[test]
fn streams_that_overlap_are_paid_once() {
    let bed = Bed::new();
    near(shares(&bed, &[("50", &["6", "1000000", "kernel", "4"])])[0], 50.0);
}

#[test]
fn without_a_cap_nothing_is_held() {
    let bed = Bed::new();
    assert!(shares(&bed, &[("100", &["6", "1000000"])])[0] > 90.0);
}

#[test]
fn a_changed_share_is_felt() {
    let bed = Bed::new();
    let program = app("saturate", Door::Dlsym);
    let mut tenant = Running::start(
        bed.tenant(&["--cores", "20", "--name", "s"], &program)
            .args(["20", "1000000"]),
    );
    tenant.wait_for("started");
    std::thread::sleep(Duration::from_millis(1000));
    succeeded(&bed.vcuda(["set", "s", "--cores", "70"]).output().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    let pid = tenant.0.id();
    let before = bed.service_ns(pid);
    std::thread::sleep(Duration::from_secs(2));
    let share = (bed.service_ns(pid) - before) as f64 / 2e7;
    near(share, 70.0);
}

#[test]
fn waiting_for_the_host_is_not_charged() {
    let bed = Bed::new();
    let fed = app("fed", Door::Dlsym);
    for by in ["value", "function"] {
        succeeded(
            &bed.tenant(&["--cores", "10"], &fed)
                .args([by, "2", "10"])
                .output()
                .unwrap(),
        );
    }
}
