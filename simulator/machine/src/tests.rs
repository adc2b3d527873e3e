//! Tests of the machine in virtual time.

use crate::{Client, ClockKind, Command, Config, Engine, Machine, Refused, StreamId, Ticket};

mod checkpoint;
mod crash;
mod files;
mod invariants;
mod limits;
mod memory;
mod objects;
mod processes;
mod reading;
mod record;
mod releasing;
mod schedule;
mod sharing;
mod streams;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// A machine with a GPU of 100 multiprocessors and 1000 MiB, contexts of 10 MiB, slices of 2 ms, a switch of 20 us.
pub(crate) fn config() -> Config {
    let mut config = Config::with_gpus(1, 1000 << 20);
    config.clock = ClockKind::Virtual;
    config.context_bytes = 10 << 20;
    config.slice_ns = 2 * MS;
    config.switch_ns = 20 * US;
    for gpu in &mut config.gpus {
        gpu.sms = 100;
    }
    config
}

pub(crate) fn machine() -> Machine {
    Machine::in_memory(config()).unwrap()
}

/// A process with a context and a stream.
pub(crate) fn tenant(machine: &Machine, pid: u32) -> (Client, StreamId) {
    let client = machine.attach(pid, "tenant").unwrap();
    let context = client.context_create(0).unwrap();
    let stream = client.stream_create(context, 0).unwrap();
    (client, stream)
}

pub(crate) fn kernel(duration_ns: u64) -> Command {
    Command::Kernel { duration_ns, sms: 0 }
}

pub(crate) fn copy(duration_ns: u64) -> Command {
    Command::Copy { duration_ns, engine: Engine::ToDevice }
}

/// Service time of a process, from the exact record (ns).
pub(crate) fn service(machine: &Machine, pid: u32) -> u64 {
    machine
        .report()
        .processes
        .iter()
        .filter(|process| process.pid == pid)
        .map(|process| process.service_ns)
        .sum()
}

pub(crate) fn done(client: &Client, ticket: Ticket) -> u64 {
    client.done_ns(ticket).expect("finished")
}

#[test]
fn a_kernel_runs_for_its_duration_from_its_submission() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    machine.step_clock(5 * US);
    let ticket = client.submit(stream, kernel(100 * US)).unwrap();
    machine.step_clock(100 * US - 1);
    assert!(!client.is_done(ticket));
    assert_eq!(client.predict_ns(ticket), Some(105 * US));
    machine.step_clock(1);
    assert!(client.is_done(ticket));
    assert_eq!(done(&client, ticket), 105 * US);
    machine.step_clock(MS);
    let report = machine.report();
    assert_eq!((report.gpus[0].busy_ns, service(&machine, 1)), (100 * US, 100 * US));
    let process = &report.processes[0];
    assert_eq!((process.first_ns, process.last_ns, process.launches), (5 * US, 105 * US, 1));
}

#[test]
fn an_unwatched_machine_changes_nothing_else() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    for _ in 0..3 {
        client.submit(stream, kernel(10 * US)).unwrap();
        machine.step_clock(50 * US);
    }
    let stamp = client.mark(stream);
    machine.step_clock(MS);
    assert_eq!(client.stamp_ns(&stamp), Some(150 * US));
    let process = &machine.report().processes[0];
    assert_eq!((process.service_ns, process.first_ns, process.last_ns), (30 * US, 0, 110 * US));
}

#[test]
fn memory_is_refused_and_given_back() {
    let machine = machine();
    let (client, _) = tenant(&machine, 1);
    let free = 990 << 20;
    assert_eq!(client.take(0, free + 1), Err(Refused::OutOfMemory { requested: free + 1, free }));
    client.take(0, free).unwrap();
    assert_eq!(machine.memory(0).used_bytes, 1000 << 20);
    client.give(0, free);
    assert_eq!(machine.memory(0).used_bytes, 10 << 20);
}
