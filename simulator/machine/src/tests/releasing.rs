//! Memory whose last holder is gone, and that the GPU has back later (`driver.release_delay_ns`).

use super::processes::Place;
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

#[test]
fn memory_of_a_closed_descriptor_comes_back_late() {
    let place = Place::new("late", &slow());
    let machine = place.machine();
    let (a, _) = tenant(machine, 1);
    let object = a.object_create(0, 100 << 20, 0).unwrap();
    let descriptor = a.object_export(object).unwrap();
    a.object_release(object);
    drop(descriptor);
    assert_eq!(machine.memory(0).used_bytes, 110 << 20);
    machine.step_clock(DELAY - 1);
    assert_eq!(machine.memory(0).used_bytes, 110 << 20);
    assert_eq!(
        machine.memory(0).reported_bytes,
        110 << 20,
        "NVML sees it on the card"
    );
    assert_eq!(machine.processes(0)[0].memory_used_bytes, 10 << 20);
    machine.step_clock(1);
    assert_eq!(machine.memory(0).used_bytes, 10 << 20);
}

#[test]
fn without_a_delay_it_is_back_at_once() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    a.take(0, 500 << 20).unwrap();
    drop(a);
    assert_eq!(machine.memory(0).used_bytes, 0);
}
