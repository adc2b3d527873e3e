//! Tests of memory that is freed later (`driver.release_delay_ns`, `driver.child_keeps_memory`).

use super::processes::{Place, until};
use super::*;

const DELAY: u64 = 50 * MS;

fn slow() -> Config {
    let mut config = config();
    config.driver.release_delay_ns = DELAY;
    config
}

#[test]
fn memory_of_an_ended_process_comes_back_late() {
    let machine = Machine::in_memory(slow()).unwrap();
    let (a, _) = tenant(&machine, 1);
    let (b, _) = tenant(&machine, 2);
    a.take(0, 500 << 20).unwrap();
    drop(a);
    machine.step_clock(DELAY - 1);
    assert_eq!(machine.memory(0).used_bytes, 520 << 20, "its context's too");
    assert_eq!(machine.processes(0).len(), 1, "it is no process's");
    assert!(matches!(b.take(0, 600 << 20), Err(Refused::OutOfMemory { .. })));
    machine.step_clock(1);
    b.take(0, 900 << 20).unwrap();
    let report = machine.report();
    assert_eq!(report.gpus[0].memory_used_bytes, 910 << 20);
    assert_eq!(report.gpus[0].memory_peak_bytes, 910 << 20);
}

/// Runs `part` in a process of its own: a child that another test starts is at first a copy of this process, with all its
/// descriptors.
fn alone(name: &str, part: &str, config: &Config) {
    let place = Place::new(name, config);
    assert!(place.start(part, 1).end().success(), "{part}");
}

#[test]
fn memory_of_a_closed_descriptor_comes_back_late() {
    alone("late", "closed late", &slow());
}

pub(super) fn closed_late(machine: &Machine) {
    let (a, _) = tenant(machine, 1);
    let object = a.object_create(0, 100 << 20, 0).unwrap();
    let descriptor = a.object_export(object).unwrap();
    a.object_release(object);
    drop(descriptor);
    assert_eq!(machine.memory(0).used_bytes, 110 << 20);
    machine.step_clock(DELAY - 1);
    assert_eq!(machine.memory(0).used_bytes, 110 << 20);
    assert_eq!(machine.memory(0).reported_bytes, 110 << 20, "NVML sees it on the GPU");
    assert_eq!(machine.processes(0)[0].memory_used_bytes, 10 << 20);
    machine.step_clock(1);
    assert_eq!(machine.memory(0).used_bytes, 10 << 20);
}

/// The recorded peak never exceeds what processes and open descriptors held at one time.
#[test]
fn memory_of_a_closed_descriptor_is_in_no_later_peak() {
    alone("peak", "closed", &config());
}

pub(super) fn closed(machine: &Machine) {
    let (a, _) = tenant(machine, 1);
    let object = a.object_create(0, 100 << 20, 0).unwrap();
    let descriptor = a.object_export(object).unwrap();
    a.object_release(object);
    drop(descriptor);
    a.take(0, 50 << 20).unwrap();
    assert_eq!(machine.report().gpus[0].memory_peak_bytes, 110 << 20);
}

#[test]
fn without_a_delay_it_is_back_at_once() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    a.take(0, 500 << 20).unwrap();
    drop(a);
    assert_eq!(machine.memory(0).used_bytes, 0);
}

extern "C" fn pause(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: takes nothing; a signal ends the process.
        unsafe { libc::pause() };
    }
}

/// A process with 100 MiB that writes the PID of a child to a file and waits. `shares`: the child has its memory, as of `vfork`.
pub(super) fn parent(machine: &Machine, directory: &std::path::Path, shares: bool) {
    let (client, _) = tenant(machine, 1);
    client.take(0, 100 << 20).unwrap();
    let child = if shares {
        let stack = Vec::leak(vec![0_u128; 4096]).as_mut_ptr_range().end;
        // SAFETY: the child has a stack of its own, and makes system calls only.
        unsafe { libc::clone(pause, stack.cast(), libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut()) }
    } else {
        // SAFETY: the child makes system calls only.
        unsafe { libc::fork() }
    };
    if child == 0 {
        pause(std::ptr::null_mut());
    }
    std::fs::write(directory.join("new"), child.to_string()).unwrap();
    std::fs::rename(directory.join("new"), directory.join("child")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// With a driver whose memory a child `keeps`, kills such a process and then its child.
fn parent_and_child_end(name: &str, keeps: bool, shares: bool) {
    let mut config = config();
    config.driver.child_keeps_memory = keeps;
    let place = Place::new(name, &config);
    let used_bytes = || place.machine().memory(0).used_bytes;
    let parent = place.start("parent", u64::from(shares));
    let told = place.dir.join("child");
    until("the child is there", || told.exists());
    let child: i32 = std::fs::read_to_string(told).unwrap().parse().unwrap();
    parent.kill();
    assert_eq!(used_bytes(), if keeps { 110 << 20 } else { 0 });
    // SAFETY: a signal to the process that our own child has forked.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    until("the child's descriptors are closed", || used_bytes() == 0);
}

#[test]
fn a_forked_child_keeps_the_memory_of_its_dead_parent() {
    parent_and_child_end("kept", true, false);
    parent_and_child_end("not-kept", false, false);
}

/// As a process that reads the dead one's files in `/proc` for a moment: it keeps its mappings.
#[test]
fn a_process_has_ended_whose_mappings_another_one_keeps() {
    parent_and_child_end("shared", false, true);
}
