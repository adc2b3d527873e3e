//! Charging of GPU time: copies and memsets within the device are charged like kernels, host copies are only counted.
//! Judged by the simulator's exact record.

use std::time::Duration;

use vcuda_tests::virtual_time::{lab, shares};
use vcuda_tests::{Door, Fixture, Running, app};

/// A machine on which a copy of 1 MiB takes half a millisecond, within the device and from the host.
const SLOW_COPIES: &str = "device_copy_bytes_per_us = 2000\ncopy_bytes_per_us = 2000\n";
const CAP_PERCENT: f64 = 40.0;

/// Checks the share of each way of keeping the GPU busy, on a separate machine each.
fn all_get_their_cap(ways: &[&str]) {
    let program = app("transfers", Door::Dlsym);
    for how in ways {
        let share = shares(&lab(SLOW_COPIES, &program, &[(&["--cores", "40"], &["60", how])]))[0];
        assert!((share - CAP_PERCENT).abs() <= 2.0, "{how}: {share:.1} %");
    }
}

#[test]
fn copies_within_the_device_are_charged() {
    all_get_their_cap(&["within", "within-async", "any", "any-async", "rows", "graph"]);
}

#[test]
fn sets_are_charged() {
    all_get_their_cap(&["set", "set-async", "set-rows"]);
}

#[test]
fn copies_of_the_host_are_counted_and_not_charged() {
    // Half of the time is spent on copies: if they were charged, the kernels would get 20 %.
    all_get_their_cap(&["host"]);
    let fixture = Fixture::with_config(SLOW_COPIES);
    let program = app("transfers", Door::ProcAddress);
    let mut one = Running::start(fixture.tenant(&["--cores", "40"], &program).args(["60", "host"]));
    one.wait_for("started");
    std::thread::sleep(Duration::from_millis(300));
    let smi = fixture.smi();
    let tenant = &smi["gpus"][0]["tenants"][0];
    let (copies, bytes) = (&tenant["host_copies"], &tenant["host_copied_bytes"]);
    assert!(copies.as_u64().unwrap() > 10, "{tenant}");
    assert_eq!(bytes.as_u64().unwrap(), copies.as_u64().unwrap() << 20);
}
