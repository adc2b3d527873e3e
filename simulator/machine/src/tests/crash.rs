//! SIGKILL and SIGSTOP before each store of a process.

use super::processes::{Place, Process};
use super::*;
use crate::{ObjectId, crash};
use std::os::unix::process::ExitStatusExt;

const CHILD: u32 = 4711;
const HEIR: u32 = 4712;
const MIB: u64 = 1 << 20;
/// The first object of the machine, held by the neighbour.
const NEIGHBOURS: ObjectId = ObjectId::of_number(1);

/// All operations, interrupted at store `at`: commits with completions, memory, a new stream, the end of a stream and of a
/// context, and leaving the machine (which writes a record).
pub(super) fn scenario(machine: &Machine, at: u64, signal: i32) {
    crash::arm(at, signal);
    let client = machine.attach(CHILD, "child").unwrap();
    let context = client.context_create(0).unwrap();
    let stream = client.stream_create(context, 0).unwrap();
    let stamp = client.mark(stream);
    let tickets: Vec<Ticket> = (0..3).map(|_| client.submit(stream, kernel(1)).unwrap()).collect();
    client.wait(tickets[2]);
    assert!(client.stamp_ns(&stamp).is_some());
    client.take(0, 5 << 20).unwrap();
    let other = client.stream_create(context, 0).unwrap();
    let gate = client.submit(other, Command::Gate).unwrap();
    client.open_gate(gate);
    client.wait(gate);
    client.stream_destroy(other);
    client.give(0, 2 << 20);
    // Objects: the neighbour's, one made of taken bytes, and a new one that a descriptor holds for a while.
    client.object_hold(NEIGHBOURS, None).unwrap();
    let plain = client.object_make(0, MIB, 0).unwrap();
    let new = client.object_create(0, MIB, 0).unwrap();
    let descriptor = client.object_export(new).unwrap();
    client.object_release(new);
    client.object_hold(new, None).unwrap();
    drop(descriptor);
    let heir = machine.attach(HEIR, "heir").unwrap();
    heir.object_hold(new, Some(client.id())).unwrap();
    client.object_release(new);
    drop(heir);
    assert!(client.object_unmake(plain));
    client.context_destroy(context);
    // This is the last hold if the neighbour has released its own.
    client.object_release(NEIGHBOURS);
    drop(client);
    // Status 9: that store was never reached.
    let exit = if crash::disarm() { 0 } else { 9 };
    // SAFETY: ends this process without the test harness's own output; nothing is left to be dropped.
    unsafe { libc::_exit(exit) };
}

fn place(name: &str) -> Place {
    let mut config = config();
    config.clock = ClockKind::Real;
    Place::new(name, &config)
}

/// Work of the neighbour's stream while a child commits.
fn work_of_neighbour(client: &Client, stream: StreamId) -> [Ticket; 3] {
    [Command::Marker, kernel(US), Command::Marker].map(|command| client.submit(stream, command).unwrap())
}

/// The child committed most completions. If no process applied them, their times are not in the ring.
fn check_times(client: &Client, tickets: [Ticket; 3], at: u64) {
    client.wait(tickets[2]);
    let times = tickets.map(|ticket| client.done_ns(ticket));
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "store {at}: completion lost: {times:?}");
}

/// Fills every entry of the ring with a waiting command.
fn fill(client: &Client, stream: StreamId) -> Vec<Ticket> {
    let rest = std::iter::repeat_n(Command::Marker, 1023);
    std::iter::once(Command::Gate)
        .chain(rest)
        .map(|command| client.submit_blocking(stream, command))
        .collect()
}

fn children(report: &crate::Report) -> impl Iterator<Item = &crate::ProcessReport> {
    let is_child = |process: &&crate::ProcessReport| process.pid == CHILD && !process.alive;
    report.processes.iter().filter(is_child)
}

/// Number of objects with contents. Leftovers of a process are removed when the next one joins.
fn object_files(place: &Place) -> usize {
    drop(place.machine().attach(1, "sweeper").unwrap());
    super::objects::files(place)
}

/// Checks that all operations of a neighbour work at once.
fn neighbour_works(machine: &Machine, client: &Client, stream: StreamId) {
    let start = crate::sys::monotonic_ns();
    let ticket = client.submit(stream, kernel(1)).unwrap();
    client.wait(ticket);
    client.take(0, 900 << 20).unwrap();
    client.give(0, 900 << 20);
    assert!(machine.report().processes.iter().any(|process| process.alive));
    let spent = crate::sys::monotonic_ns() - start;
    assert!(spent < 2000 * MS, "a neighbour was held for {spent} ns");
}

#[test]
fn killed_at_every_store() {
    let place = place("kill");
    let (client, stream) = tenant(place.machine(), 1);
    assert_eq!(client.object_create(0, 20 * MIB, 0), Ok(NEIGHBOURS));
    let (mut stores, mut records) = (0, 0);
    for at in 1.. {
        let tickets = work_of_neighbour(&client, stream);
        let status = place.start("kill", at).end();
        check_times(&client, tickets, at);
        neighbour_works(place.machine(), &client, stream);
        let report = place.machine().report();
        assert_eq!(
            report.gpus[0].memory_used_bytes,
            30 << 20,
            "store {at}: the dead hold memory, or the neighbour's is gone"
        );
        assert_eq!(object_files(&place), 1, "store {at}: a file is left or lost");
        let living = report.processes.iter().filter(|process| process.alive);
        assert_eq!(living.count(), 1, "store {at}");
        let dead: Vec<_> = children(&report).collect();
        // A process that was killed before it used the GPU leaves no record.
        assert!(dead.len() == records || dead.len() == records + 1, "store {at}: {dead:?}");
        if dead.len() > records {
            let record = dead[dead.len() - 1];
            assert!(
                record.pid == CHILD && record.service_ns <= 3 && record.launches <= 3,
                "{at}: {record:?}"
            );
            assert!(
                record.service_ns <= record.launches && record.denied_allocations == 0,
                "{at}: {record:?}"
            );
        }
        records = dead.len();
        if status.code() == Some(9) {
            let record = dead[dead.len() - 1];
            assert_eq!((record.service_ns, record.launches, record.memory_peak_bytes), (3, 3, 15 << 20));
            break;
        }
        assert_eq!(status.signal(), Some(libc::SIGKILL), "store {at}");
        stores = at;
    }
    println!("killed before each of {stores} stores");
    assert!(stores > 500, "the scenario commits several times");
}

#[test]
fn stopped_at_every_store() {
    let place = place("stop");
    let (client, stream) = tenant(place.machine(), 1);
    assert_eq!(client.object_create(0, 20 * MIB, 0), Ok(NEIGHBOURS));
    let mut stores = 0;
    for at in 1.. {
        let tickets = work_of_neighbour(&client, stream);
        let mut child: Process = place.start("stop", at);
        match child.end_or_stop() {
            None => {
                check_times(&client, tickets, at);
                neighbour_works(place.machine(), &client, stream);
                let queue = fill(&client, stream);
                child.signal(libc::SIGCONT);
                let status = child.end();
                assert!(queue.iter().all(|ticket| !client.is_done(*ticket)), "store {at}: a late store hit");
                client.open_gate(queue[0]);
                client.wait(queue[1023]);
                assert_eq!(status.code(), Some(0), "store {at}: the stopped one did not go on rightly");
                stores = at;
            }
            Some(status) => {
                assert_eq!(status.code(), Some(9));
                break;
            }
        }
        let report = place.machine().report();
        let record = children(&report).nth(usize::try_from(at - 1).unwrap()).unwrap();
        assert!(!record.alive, "store {at}: still in the machine");
        assert_eq!(
            (record.service_ns, record.launches, record.memory_peak_bytes),
            (3, 3, 15 << 20),
            "store {at}"
        );
        assert_eq!(report.gpus[0].memory_used_bytes, 30 << 20, "store {at}");
        assert_eq!(object_files(&place), 1, "store {at}: a file is left or lost");
    }
    println!("stopped before each of {stores} stores");
    assert!(stores > 500, "the scenario commits several times");
}

/// Stops two processes, lets a third one work, then continues the two in either order.
#[test]
fn two_stopped_at_once() {
    let place = place("two");
    let (client, stream) = tenant(place.machine(), 1);
    assert_eq!(client.object_create(0, 20 * MIB, 0), Ok(NEIGHBOURS));
    for round in 0..40u64 {
        // Stores spread over the run, another pair each time.
        let mut pair = [1 + round * 29 % 1150, 1 + round * 397 % 1150].map(|at| place.start("stop", at));
        let stopped = pair.each_mut().map(|child| child.end_or_stop().is_none());
        let tickets = work_of_neighbour(&client, stream);
        check_times(&client, tickets, round);
        neighbour_works(place.machine(), &client, stream);
        if round % 2 == 0 {
            pair.reverse();
        }
        if stopped == [true, true] {
            for child in &mut pair {
                child.signal(libc::SIGCONT);
                assert_eq!(child.end().code(), Some(0), "round {round}");
            }
        }
    }
    drop(client);
    // A child that another test starts first is a copy of this process, with the driver's descriptors.
    super::processes::until("all memory is back", || place.machine().memory(0).used_bytes == 0);
    let report = place.machine().report();
    assert!(report.processes.iter().all(|process| !process.alive));
    let children = report.processes.iter().filter(|process| process.pid == CHILD);
    assert!(children.clone().count() == 80, "{}", children.count());
    let service: u64 = report.processes.iter().map(|process| process.service_ns).sum();
    assert_eq!(service, report.gpus[0].busy_ns);
}

/// Makes a machine, interrupted at store `at`.
pub(super) fn creation(dir: &std::path::Path, at: u64) {
    crash::arm(at, libc::SIGKILL);
    Machine::create(dir, &config()).unwrap();
    let exit = if crash::disarm() { 0 } else { 9 };
    // SAFETY: as in `scenario`.
    unsafe { libc::_exit(exit) };
}

#[test]
fn killed_while_a_machine_is_made() {
    for at in 1.. {
        let place = Place::none("birth");
        let status = place.start("create", at).end();
        let machine = Machine::create(&place.dir, &config()).unwrap();
        let (client, stream) = tenant(&machine, 1);
        let ticket = client.submit(stream, kernel(US)).unwrap();
        machine.step_clock(US);
        assert!(client.is_done(ticket));
        if status.code() == Some(9) {
            println!("killed before each of {} stores of a machine's making", at - 1);
            assert!(at > 20);
            return;
        }
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}

/// A process that has read the state takes over the slot of one that has committed since and died: no commit is lost.
#[test]
fn the_heir_of_a_slot_loses_no_commit_of_its_owner_before() {
    use crate::commit::Change;
    let place = place("heir-of-slot");
    let (dying, heir) = (Machine::open(&place.dir).unwrap(), Machine::open(&place.dir).unwrap());
    // It gets its slot beforehand.
    drop(dying.attach(CHILD, "dying").unwrap());
    let (dying, heir) = (dying.shared(), heir.shared());
    let slot = dying.local.lock().writer.unwrap().slot;
    let next_context = heir.local.lock().base.next_context;
    let mut is_first = true;
    let local = &mut *heir.local.lock();
    assert!(local.writer.is_none());
    let committed = heir.transact(local, None, |core| {
        if std::mem::take(&mut is_first) {
            let its_local = &mut *dying.local.lock();
            let last = dying.transact(its_local, None, |core| {
                core.next_context += 100;
                Change::Made(())
            });
            last.unwrap();
            dying.liveness.release(slot);
        }
        core.next_client += 100;
        Change::Made(core.next_context)
    });
    assert_eq!(local.writer.unwrap().slot, slot);
    assert!(committed.unwrap() >= next_context + 100, "its last commit is lost");
    assert_eq!(local.base.next_context, committed.unwrap());
}
