//! Capacity, peaks, denials, faults.

use super::*;

#[test]
fn capacity_is_shared_by_all_processes() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    let (b, _) = tenant(&machine, 2);
    a.take(0, 600 << 20).unwrap();
    assert!(b.take(0, 400 << 20).is_err());
    b.take(0, 380 << 20).unwrap();
    assert!(b.take(0, 1).is_err());
    a.give(0, 1);
    b.take(0, 1).unwrap();
    let report = machine.report();
    let denied: Vec<u64> = report.processes.iter().map(|process| process.denied_allocations).collect();
    assert_eq!(denied, [0, 2]);
    assert_eq!(report.gpus[0].memory_used_bytes, 1000 << 20);
    assert_eq!(report.gpus[0].memory_peak_bytes, 1000 << 20);
    assert_eq!(report.processes[0].memory_peak_bytes, 610 << 20);
}

#[test]
fn nvml_rounds_each_process_up() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    a.take(0, 1).unwrap();
    let memory = machine.memory(0);
    assert_eq!((memory.used_bytes, memory.reported_bytes), ((10 << 20) + 1, 12 << 20));
    let processes = machine.processes(0);
    assert_eq!(processes[0].memory_reported_bytes, 12 << 20);
    assert_eq!((processes[0].pid, processes[0].name.as_str()), (1, "tenant"));
}

#[test]
fn no_client_gives_back_more_than_it_has() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    let (b, _) = tenant(&machine, 2);
    a.give(0, u64::MAX);
    assert_eq!(machine.memory(0).used_bytes, 10 << 20);
    drop(b);
    assert_eq!(machine.memory(0).used_bytes, 0);
}

#[test]
fn the_nth_allocation_fails_once() {
    let mut config = config();
    config.faults.fail_nth_allocation = Some(2);
    let machine = Machine::in_memory(config).unwrap();
    let (a, _) = tenant(&machine, 1);
    assert_eq!(a.take(0, 1), Ok(()));
    assert_eq!(a.take(0, 1), Err(Refused::Fault));
    assert_eq!(a.take(0, 1), Ok(()));
    assert_eq!(machine.report().processes[0].denied_allocations, 1);
}

#[test]
fn a_gpu_that_is_not_there() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    assert_eq!(a.take(1, 1), Err(Refused::NoSuchGpu(1)));
    assert_eq!(a.context_create(7), Err(Refused::NoSuchGpu(7)));
    a.give(9, 1);
    assert_eq!(machine.memory(3), crate::GpuMemory::default());
    assert!(machine.samples(3, 0).is_empty() && machine.processes(3).is_empty());
}

#[test]
fn a_context_must_fit() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    a.take(0, 985 << 20).unwrap();
    let b = machine.attach(2, "b").unwrap();
    assert!(matches!(b.context_create(0), Err(Refused::OutOfMemory { .. })));
    assert!(machine.processes(0).iter().all(|process| process.pid != 2));
    assert_eq!(machine.report().processes[1].denied_allocations, 1);
}

#[test]
fn nvml_counts_managed_memory_as_the_profile_says() {
    for (is_counted, told) in [(false, 60), (true, 360)] {
        let mut config = config();
        config.driver.nvml_counts_managed = is_counted;
        let machine = Machine::in_memory(config).unwrap();
        let (a, _) = tenant(&machine, 1);
        a.take(0, 50 << 20).unwrap();
        a.take_managed(0, 300 << 20).unwrap();
        let process = &machine.processes(0)[0];
        assert_eq!(process.memory_reported_bytes, told << 20);
        assert_eq!(process.memory_used_bytes, 360 << 20);
        assert_eq!(machine.memory(0).reported_bytes, 360 << 20, "the GPU counts it in any case");
        a.give_managed(0, 300 << 20);
        assert_eq!(machine.processes(0)[0].memory_reported_bytes, 60 << 20);
    }
}
