//! Commits of other processes between the loads of a reader.

use super::processes::Place;
use super::*;
use crate::crash;
use std::sync::Arc;

/// PID of the process that commits in the middle.
const RIVAL: u32 = 3;

/// Rewrites every buffer of the core.
fn commit_another_shape(machine: &Machine) {
    let (other, on_other) = tenant(machine, RIVAL);
    other.take(0, 7 << 20).unwrap();
    let context = other.context_create(0).unwrap();
    for _ in 0..3 {
        other.stream_create(context, 0).unwrap();
    }
    other.submit(on_other, kernel(1)).unwrap();
    // Not dropped, so that the core keeps another shape than before.
    std::mem::forget(other);
}

/// Ends the client that was not dropped.
fn end_what_was_kept(machine: &Machine) {
    let shared = machine.shared();
    let local = &mut *shared.local.lock();
    shared.refresh(local).unwrap();
    let kept: Vec<(u64, u64)> = local
        .base
        .clients
        .iter()
        .filter(|row| row.pid == u64::from(RIVAL))
        .map(|row| (row.id, row.slot))
        .collect();
    for (id, slot) in kept {
        shared.end_process(local, id, machine.now_ns()).unwrap();
        shared.liveness.release(slot);
    }
}

/// While one handle reads, another one commits until all its buffers are rewritten, with a core of another shape. The
/// reader must see a state that existed.
#[test]
fn a_copy_is_whole_or_is_made_again() {
    let mut config = config();
    // A client that is not dropped keeps its descriptor of the driver.
    config.driver.child_keeps_memory = false;
    let place = Place::new("reading", &config);
    let reader = place.machine();
    let writer = Arc::new(Machine::open(&place.dir).unwrap());
    let (client, stream) = tenant(reader, 1);
    let mut at = 1;
    loop {
        let rival = Arc::clone(&writer);
        // The reader's copy is out of date, so it must read.
        writer.attach(2, "earlier").unwrap();
        crash::at_load(at, move || {
            commit_another_shape(&rival);
        });
        client.take(0, 1 << 20).unwrap();
        let ticket = client.submit(stream, Command::Marker).unwrap();
        reader.step_clock(MS);
        let _ = client.is_done(ticket);
        let has_happened = crash::forget_load();
        let mine = reader.report().processes.into_iter().find(|process| process.pid == 1).unwrap();
        assert_eq!(mine.memory_used_bytes, 11 << 20, "load {at}");
        client.give(0, 1 << 20);
        if !has_happened {
            break;
        }
        let report = reader.report();
        let of_rival = report.processes.iter().filter(|p| p.pid == RIVAL);
        let rivals: u64 = of_rival.map(|p| p.memory_used_bytes).sum();
        assert_eq!(report.gpus[0].memory_used_bytes, rivals + (10 << 20), "load {at}");
        assert_eq!(rivals, 27 << 20, "load {at}");
        end_what_was_kept(&writer);
        at += 1;
    }
    println!("interrupted before each of {} loads", at - 1);
    assert!(at > 50);
}
