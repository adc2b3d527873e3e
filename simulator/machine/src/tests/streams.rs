//! Tests of queues, waits, gates, stamps, and the end of streams and contexts.

use super::*;

#[test]
fn a_queue_of_1024_and_no_more() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    for _ in 0..1024 {
        client.submit(stream, kernel(US)).unwrap();
    }
    assert!(client.submit(stream, kernel(US)).is_err());
    machine.step_clock(US);
    let last = client.submit(stream, kernel(US)).unwrap();
    assert!(client.submit(stream, kernel(US)).is_err());
    machine.step_clock(1024 * US);
    assert!(client.is_done(last));
    assert_eq!(service(&machine, 1), 1025 * US);
    assert_eq!(machine.report().processes[0].launches, 1025);
}

#[test]
fn rings_go_round() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let first = client.mark(stream);
    for _ in 0..5000 {
        let ticket = client.submit(stream, kernel(US)).unwrap();
        machine.step_clock(US);
        assert!(client.is_done(ticket));
    }
    assert_eq!(client.stamp_ns(&first), Some(0));
    assert_eq!(service(&machine, 1), 5 * MS);
}

#[test]
fn a_stamp_survives_the_ring() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    machine.step_clock(7);
    let stamp = client.mark(stream);
    machine.step_clock(US);
    for _ in 0..3000 {
        client.submit_blocking(stream, kernel(10));
        machine.step_clock(20);
    }
    assert_eq!(client.stamp_ns(&stamp), Some(7));
    client.stream_destroy(stream);
    assert_eq!(client.stamp_ns(&stamp), Some(7));
    assert!(client.is_done(stamp.ticket()));
}

#[test]
fn a_stream_waits_for_another() {
    let machine = machine();
    let (client, one) = tenant(&machine, 1);
    let context = client.context_create(0).unwrap();
    let two = client.stream_create(context, 0).unwrap();
    let ticket = client.submit(two, copy(100 * US)).unwrap();
    client.submit(one, Command::Wait { ticket }).unwrap();
    let stamp = client.mark(one);
    machine.step_clock(99 * US);
    assert_eq!(client.stamp_ns(&stamp), None);
    machine.step_clock(50 * US);
    // The other context was never resident before, so only the first switch costs time.
    assert_eq!(client.stamp_ns(&stamp), Some(100 * US));
}

#[test]
fn streams_of_two_gpus_wait_for_each_other() {
    let mut config = config();
    config.gpus.push(config.gpus[0].clone());
    let machine = Machine::in_memory(config).unwrap();
    let client = machine.attach(1, "a").unwrap();
    let streams: Vec<StreamId> =
        (0..2).map(|gpu| client.stream_create(client.context_create(gpu).unwrap(), 0).unwrap()).collect();
    let mut last = client.submit(streams[0], kernel(10 * US)).unwrap();
    for turn in 1..6 {
        client.submit(streams[turn % 2], Command::Wait { ticket: last }).unwrap();
        last = client.submit(streams[turn % 2], kernel(10 * US)).unwrap();
    }
    assert_eq!(client.predict_ns(last), Some(60 * US));
    machine.step_clock(60 * US);
    assert!(client.is_done(last));
}

#[test]
fn a_gate_holds_its_stream_until_it_is_opened() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let gate = client.submit(stream, Command::Gate).unwrap();
    let after = client.submit(stream, kernel(10 * US)).unwrap();
    machine.step_clock(MS);
    assert!(!client.is_done(gate));
    assert_eq!(client.predict_ns(after), None);
    client.open_gate(gate);
    machine.step_clock(10 * US);
    assert!(client.is_done(after));
    assert_eq!(done(&client, gate), MS);
    assert_eq!(done(&client, after), MS + 10 * US);
    // Opening a passed gate again is harmless.
    client.open_gate(gate);
}

#[test]
fn a_gate_opened_early_does_not_hold() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    client.submit(stream, kernel(10 * US)).unwrap();
    let gate = client.submit(stream, Command::Gate).unwrap();
    client.open_gate(gate);
    machine.step_clock(10 * US);
    assert_eq!(done(&client, gate), 10 * US);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let stamp = client.submit(stream, kernel(MS)).map(|_| client.mark(stream)).unwrap();
    client.stream_destroy(stream);
    assert!(client.submit(stream, kernel(MS)).is_err());
    machine.step_clock(MS);
    assert_eq!(client.stamp_ns(&stamp), Some(MS));
    assert_eq!(service(&machine, 1), MS);
    assert_eq!(machine.report().processes[0].launches, 1);
}

#[test]
fn rings_of_destroyed_streams_are_used_again() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let context = client.context_create(0).unwrap();
    client.stream_destroy(stream);
    for _ in 0..3000 {
        let stream = client.stream_create(context, 0).unwrap();
        let ticket = client.submit(stream, kernel(US)).unwrap();
        machine.step_clock(2 * US);
        assert!(client.is_done(ticket));
        client.stream_destroy(stream);
    }
    assert_eq!(machine.report().processes[0].launches, 3000);
}

#[test]
fn a_destroyed_context_drops_its_work() {
    let machine = machine();
    let client = machine.attach(1, "a").unwrap();
    let context = client.context_create(0).unwrap();
    let stream = client.stream_create(context, 0).unwrap();
    client.submit(stream, kernel(u64::MAX)).unwrap();
    let stamp = client.mark(stream);
    machine.step_clock(MS);
    client.context_destroy(context);
    assert!(client.is_done(stamp.ticket()));
    assert_eq!(client.stamp_ns(&stamp), Some(MS));
    machine.step_clock(MS);
    assert_eq!(service(&machine, 1), MS);
    assert_eq!(machine.memory(0).used_bytes, 0);
    assert!(client.stream_create(context, 0).is_err());
}

#[test]
fn waiting_in_virtual_time_needs_a_step() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let ticket = client.submit(stream, kernel(MS)).unwrap();
    assert!(!client.wait_timeout(ticket, 1_000_000));
    let stepper = machine.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| client.wait(ticket));
        stepper.step_clock(MS);
    });
}
