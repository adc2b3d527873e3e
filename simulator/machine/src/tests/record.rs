//! Tests of the record and of NVML's view.

use super::*;

#[test]
fn the_dead_stay_in_the_record() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 41);
    a.submit(on_a, kernel(MS)).unwrap();
    a.submit(on_a, kernel(u64::MAX)).unwrap();
    a.take(0, 5).unwrap();
    machine.step_clock(3 * MS);
    drop(a);
    machine.step_clock(3 * MS);
    let report = machine.report();
    let dead = &report.processes[0];
    assert!(!dead.alive);
    assert_eq!((dead.pid, dead.service_ns, dead.launches), (41, 3 * MS, 2));
    assert_eq!((dead.first_ns, dead.last_ns), (0, 3 * MS));
    assert_eq!((dead.memory_used_bytes, dead.memory_peak_bytes), (0, (10 << 20) + 5));
    assert_eq!((report.gpus[0].memory_used_bytes, report.gpus[0].busy_ns), (0, 3 * MS));
}

#[test]
fn the_report_is_the_documented_json() {
    let machine = machine();
    let (_a, _) = tenant(&machine, 3);
    let json = serde_json::to_value(machine.report()).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["gpus", "processes"]);
    let mut gpu =
        ["uuid", "memory_total_bytes", "memory_used_bytes", "memory_peak_bytes", "busy_ns", "switched_ns"];
    gpu.sort_unstable();
    assert_eq!(keys(&json["gpus"][0]), gpu);
    let mut process = [
        "pid",
        "gpu_uuid",
        "alive",
        "first_ns",
        "last_ns",
        "service_ns",
        "memory_used_bytes",
        "memory_peak_bytes",
        "launches",
        "denied_allocations",
    ];
    process.sort_unstable();
    assert_eq!(keys(&json["processes"][0]), process);
}

#[test]
fn samples_are_late_and_integer() {
    let mut config = config();
    config.sample_ns = 100 * MS;
    let machine = Machine::in_memory(config).unwrap();
    let (a, on_a) = tenant(&machine, 1);
    let (_idle, _) = tenant(&machine, 2);
    a.submit(on_a, kernel(25_500 * US)).unwrap();
    machine.step_clock(99 * MS);
    assert!(machine.samples(0, 0).is_empty());
    machine.step_clock(MS);
    let samples = machine.samples(0, 0);
    assert_eq!(
        samples,
        [crate::Sample {
            pid: 1,
            seen: crate::SeenAs { here: Some(1), on_host: 1 },
            percent: 25,
            timestamp_ns: 100 * MS
        }]
    );
    assert!(machine.samples(0, 100 * MS).is_empty());
    assert_eq!(machine.utilization(0), 25);
    machine.step_clock(100 * MS);
    assert_eq!(machine.utilization(0), 0);
    machine.step_clock(10_000 * MS);
    assert!(machine.samples(0, 0).is_empty());
}

#[test]
fn a_process_without_context_is_not_listed() {
    let machine = machine();
    let client = machine.attach(1, "a").unwrap();
    assert!(machine.processes(0).is_empty());
    let context = client.context_create(0).unwrap();
    assert_eq!(machine.processes(0).len(), 1);
    client.context_destroy(context);
    assert!(machine.processes(0).is_empty());
}
