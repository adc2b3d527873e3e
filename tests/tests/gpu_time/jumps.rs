//! Threads that leave a waiting call by a jump, or call the driver within one, are managed like any other (I19): caps by the
//! simulator's record, quotas by what the program gets.

use std::time::Duration;

use vcuda_tests::{Door, Fixture, Running, app, succeeded};

const QUOTA_MIB: u32 = 1024;

/// By the simulator's record, in real time: a jump out of a wait of the virtual clock would stop that. What may be saved before is a
/// few points.
fn keeps_to_its_cap(how: &str) {
    let fixture = Fixture::new();
    let mut tenant = fixture.tenant(&["--cores", "10"], app("jumps", Door::Dlsym));
    let mut running = Running::start(tenant.arg(how));
    running.wait_for("started");
    let now_ns = || vcuda_region::clock::now_ns();
    let (began_ns, before_ns) = (now_ns(), fixture.service_ns(running.0.id()));
    std::thread::sleep(Duration::from_secs(4));
    let served_ns = fixture.service_ns(running.0.id()) - before_ns;
    let percent = served_ns * 100 / (now_ns() - began_ns);
    println!("{how}: {percent} % under a cap of 10");
    assert!((4..=16).contains(&percent), "{how}: {percent} % under a cap of 10");
}

fn keeps_to_its_quota(how: &str) {
    let fixture = Fixture::new();
    let program = app("jumps", Door::Dlsym);
    let mut tenant = fixture.tenant(&["--memory", "1GiB", "--cores", "10"], program);
    let said = succeeded(&tenant.args([how, "memory"]).output().unwrap());
    let held = said.lines().find_map(|line| line.strip_prefix("holds ")).unwrap();
    println!("{how}: holds {held} MiB of {QUOTA_MIB}");
    // Less the context's own part.
    let held: u32 = held.parse().unwrap();
    assert!((QUOTA_MIB / 4..QUOTA_MIB).contains(&held), "{how}: {held} MiB of {QUOTA_MIB}");
}

fn holds(how: &str) {
    keeps_to_its_cap(how);
    keeps_to_its_quota(how);
}

#[test]
fn a_thread_that_jumps_out_of_a_waiting_launch_stays_limited() {
    holds("jump");
}

#[test]
fn a_thread_that_calls_from_deeper_frames_after_a_jump_stays_limited() {
    holds("deeper");
}

#[test]
fn a_signal_handler_that_calls_the_driver_within_a_call_is_limited() {
    holds("handler");
    holds("alternate");
}

#[test]
fn a_child_with_its_parents_thread_local_storage_is_limited() {
    holds("clone");
}
