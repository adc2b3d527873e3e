//! Tests with several real processes on one machine.

use super::processes::{Place, until};
use super::*;
use std::time::Duration;

fn place(name: &str) -> Place {
    let mut config = config();
    config.clock = ClockKind::Real;
    Place::new(name, &config)
}

/// Takes 100 MiB, runs an endless kernel, and stays alive.
pub(super) fn holder(machine: &Machine) {
    let (client, stream) = tenant(machine, std::process::id());
    client.take(0, 100 << 20).unwrap();
    client.submit(stream, kernel(u64::MAX)).unwrap();
    loop {
        client.advance();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Allocates, frees, launches and waits `rounds` times, then leaves.
pub(super) fn worker(machine: &Machine, rounds: u64) {
    let (client, stream) = tenant(machine, std::process::id());
    for round in 0..rounds {
        client.take(0, 1 << 20).unwrap();
        let ticket = client.submit(stream, kernel(100)).unwrap();
        if round % 16 == 0 {
            client.wait(ticket);
        }
        client.give(0, 1 << 20);
    }
    client.wait_stream(stream);
}

/// Keeps its queue full of kernels of half a millisecond.
pub(super) fn busy(machine: &Machine) {
    let (client, stream) = tenant(machine, std::process::id());
    loop {
        client.submit_blocking(stream, kernel(500 * US));
    }
}

/// Launches, and ends normally some time later without playing the machine or dropping anything.
pub(super) fn careless(machine: &Machine, ms: u64) {
    let (client, stream) = tenant(machine, std::process::id());
    client.submit(stream, kernel(ms * MS / 2)).unwrap();
    std::mem::forget(client);
    std::thread::sleep(Duration::from_millis(ms));
}

/// Blocks its stream by a gate, and opens it after `ms`; never for 0.
pub(super) fn gate(machine: &Machine, ms: u64) {
    let (client, stream) = tenant(machine, std::process::id());
    let gate = client.submit(stream, Command::Gate).unwrap();
    let after = client.submit(stream, kernel(1000)).unwrap();
    if ms == 0 {
        client.wait(after);
    }
    std::thread::sleep(Duration::from_millis(ms));
    client.open_gate(gate);
    client.wait(after);
}

#[test]
fn memory_of_a_killed_process_is_back_at_once() {
    let place = place("killed");
    let child = place.start("holder", 0);
    until("the child works", || place.machine().memory(0).used_bytes == 110 << 20);
    let (client, _) = tenant(place.machine(), 1);
    assert!(client.take(0, 900 << 20).is_err());
    until("the child is served", || place.machine().report().processes[0].service_ns > 10 * MS);
    child.kill();
    client.take(0, 990 << 20).unwrap();
    let report = place.machine().report();
    assert!(!report.processes[0].alive && report.processes[0].launches == 1);
    assert!(place.machine().processes(0).iter().all(|process| process.pid == 1));
}

#[test]
fn a_stopped_process_keeps_its_memory_and_hinders_no_other() {
    let place = place("stopped");
    let child = place.start("holder", 0);
    until("the child works", || place.machine().memory(0).used_bytes == 110 << 20);
    child.signal(libc::SIGSTOP);
    let (client, stream) = tenant(place.machine(), 1);
    let ticket = client.submit(stream, kernel(100 * US)).unwrap();
    assert!(client.wait_timeout(ticket, 5_000_000_000));
    assert!(client.take(0, 900 << 20).is_err());
    child.signal(libc::SIGCONT);
}

#[test]
fn processes_that_commit_all_at_once_lose_nothing() {
    let place = place("crowd");
    let mut crowd: Vec<_> = (0..4).map(|_| place.start("worker", 2000)).collect();
    for child in &mut crowd {
        assert!(child.end().success());
    }
    let report = place.machine().report();
    assert_eq!((report.gpus[0].memory_used_bytes, report.processes.len()), (0, 4));
    for process in &report.processes {
        assert_eq!((process.launches, process.service_ns, process.denied_allocations), (2000, 200_000, 0));
        assert_eq!(process.memory_peak_bytes, 11 << 20);
    }
    assert_eq!(report.gpus[0].busy_ns, 4 * 200_000);
}

#[test]
fn two_saturating_processes_share_evenly_in_real_time() {
    let place = place("share");
    let _crowd = [place.start("busy", 0), place.start("busy", 0)];
    // Service times and the time of reading: one of the two processes ran, or the GPU was switching.
    let look = || {
        let processes = place.machine().report().processes;
        let services: Vec<u64> = processes.iter().map(|process| process.service_ns).collect();
        (services, processes.iter().map(|process| process.last_ns).max())
    };
    until("both are served", || look().0.len() == 2 && look().0.iter().all(|service| *service > 0));
    let (before, start) = look();
    std::thread::sleep(Duration::from_millis(500));
    let (after, end) = look();
    let served = [after[0] - before[0], after[1] - before[1]];
    assert!(served[0].abs_diff(served[1]) <= 4 * MS, "{served:?}");
    // All time but the switches: 20 us after every 2 ms.
    let elapsed = end.unwrap() - start.unwrap();
    let lost = elapsed.abs_diff(served[0] + served[1]);
    assert!(lost <= elapsed / 100 + 100 * US, "{lost} of {elapsed}");
}

#[test]
fn work_of_a_process_that_never_looks_is_counted() {
    let place = place("careless");
    assert!(place.start("careless", 200).end().success());
    let record = place.machine().report().processes[0].clone();
    assert_eq!((record.alive, record.service_ns, record.launches), (false, 100 * MS, 1));
}

#[test]
fn a_stream_waiting_for_its_host_hinders_no_other() {
    let place = place("gate");
    let mut child = place.start("gate", 300);
    let stopped = place.start("gate", 0);
    until("both wait", || place.machine().processes(0).len() == 2);
    stopped.signal(libc::SIGSTOP);
    let (client, stream) = tenant(place.machine(), 1);
    for _ in 0..20 {
        let ticket = client.submit(stream, kernel(100 * US)).unwrap();
        assert!(client.wait_timeout(ticket, 2_000_000_000));
    }
    assert!(child.end().success());
    drop(stopped);
    let report = place.machine().report();
    let served: Vec<u64> = report.processes.iter().filter(|p| !p.alive).map(|p| p.service_ns).collect();
    // The process whose gate stayed closed ran nothing.
    assert!(served.len() == 2 && served.contains(&1000) && served.contains(&0), "{served:?}");
}

/// Command that becomes PID 1 of a new PID namespace, if that is permitted.
fn unshare() -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [
        &["unshare", "--pid", "--fork", "--kill-child"],
        &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
    ];
    WAYS.into_iter().find(|way| {
        let try_it = std::process::Command::new(way[0]).args(&way[1..]).arg("true").output();
        try_it.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn two_processes_that_are_pid_1_are_two() {
    let Some(unshare) = unshare() else {
        println!("skipped: new PID namespaces are not permitted here");
        return;
    };
    let place = place("namespaces");
    let one = place.start_by(unshare, "holder", 0);
    let two = place.start_by(unshare, "holder", 0);
    let working = || place.machine().processes(0).iter().filter(|process| process.pid == 1).count();
    until("both work", || place.machine().memory(0).used_bytes == 220 << 20 && working() == 2);
    until("both are served", || {
        let report = place.machine().report();
        report.processes.len() == 2 && report.processes.iter().all(|process| process.service_ns > 5 * MS)
    });
    one.kill();
    until("one is gone", || place.machine().memory(0).used_bytes == 110 << 20);
    assert_eq!(working(), 1);
    let (client, stream) = tenant(place.machine(), 7);
    let ticket = client.submit(stream, kernel(100 * US)).unwrap();
    assert!(client.wait_timeout(ticket, 5_000_000_000));
    two.kill();
    until("both are gone", || place.machine().memory(0).used_bytes == 10 << 20);
    let report = place.machine().report();
    assert_eq!(report.processes.iter().filter(|process| process.pid == 1 && !process.alive).count(), 2);
}

#[test]
fn a_crowd_of_namespaces_loses_nothing() {
    let Some(unshare) = unshare() else {
        println!("skipped: new PID namespaces are not permitted here");
        return;
    };
    let place = place("crowd-of-namespaces");
    let mut crowd: Vec<_> = (0..3).map(|_| place.start_by(unshare, "worker", 500)).collect();
    assert!(crowd.iter_mut().all(|child| child.end().success()));
    let report = place.machine().report();
    assert_eq!((report.gpus[0].memory_used_bytes, report.gpus[0].busy_ns), (0, 3 * 50_000));
}

/// Stress test: processes are killed at random times for a minute, and the accounts stay consistent. Run by `cargo test
/// --release -p vcuda-machine -- --ignored`.
#[test]
#[ignore = "takes a minute"]
fn killed_at_random_for_a_minute() {
    let place = place("random");
    let (client, stream) = tenant(place.machine(), 1);
    let end = crate::sys::monotonic_ns() + 60_000 * MS;
    let (mut crowd, mut kills, mut random) = (Vec::new(), 0u64, 12_345u64);
    while crate::sys::monotonic_ns() < end {
        while crowd.len() < 4 {
            crowd.push(place.start("worker", 1_000_000));
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(2_000 + random % 8_000));
        crowd.swap_remove(usize::try_from(random >> 33).unwrap() % 4).kill();
        kills += 1;
        let ticket = client.submit(stream, kernel(10 * US)).unwrap();
        assert!(client.wait_timeout(ticket, 5_000_000_000));
        let report = place.machine().report();
        let used: u64 = report.processes.iter().map(|process| process.memory_used_bytes).sum();
        let service: u64 = report.processes.iter().map(|process| process.service_ns).sum();
        assert_eq!((used, service), (report.gpus[0].memory_used_bytes, report.gpus[0].busy_ns));
        assert!(report.processes.iter().filter(|process| process.alive).count() <= 5);
        assert!(used <= 5 * (11 << 20));
    }
    drop(crowd);
    assert_eq!(place.machine().memory(0).used_bytes, 10 << 20);
    println!("{kills} processes killed");
}
