//! Tests of time slices, concurrent streams and priorities.

use super::*;

#[test]
fn contexts_take_turns_and_pay_for_switching() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    let first = a.submit(on_a, kernel(5 * MS)).unwrap();
    let second = b.submit(on_b, kernel(3 * MS)).unwrap();
    machine.step_clock(20 * MS);
    // a 2, switch, b 2, switch, a 2, switch, b 1, switch, a 1.
    a.advance();
    assert_eq!(done(&b, second), 7 * MS + 60 * US);
    assert_eq!(done(&a, first), 8 * MS + 80 * US);
    assert_eq!((service(&machine, 1), service(&machine, 2)), (5 * MS, 3 * MS));
    let gpu = &machine.report().gpus[0];
    assert_eq!((gpu.busy_ns, gpu.switched_ns), (8 * MS, 80 * US));
}

#[test]
fn three_saturating_contexts_share_evenly() {
    let machine = machine();
    let tenants: Vec<_> = (1..=3).map(|pid| tenant(&machine, pid)).collect();
    for (client, stream) in &tenants {
        client.submit(*stream, kernel(u64::MAX)).unwrap();
    }
    machine.step_clock(303 * 2020 * US);
    let shares: Vec<u64> = (1..=3).map(|pid| service(&machine, pid)).collect();
    assert!(shares.iter().all(|share| share.abs_diff(101 * 2 * MS) <= 2 * MS), "{shares:?}");
    let spent: u64 = shares.iter().sum();
    // 303 slices, the first without a switch; the last switch has just begun.
    assert_eq!(spent, 303 * 2 * MS);
}

#[test]
fn a_context_alone_is_not_interrupted() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (_b, _) = tenant(&machine, 2);
    let ticket = a.submit(on_a, kernel(100 * MS)).unwrap();
    machine.step_clock(100 * MS);
    assert!(a.is_done(ticket));
}

#[test]
fn a_newcomer_waits_for_the_end_of_the_slice() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    a.submit(on_a, kernel(u64::MAX)).unwrap();
    machine.step_clock(5 * MS);
    let ticket = b.submit(on_b, kernel(100 * US)).unwrap();
    machine.step_clock(5 * MS);
    assert!(b.is_done(ticket));
    assert_eq!(done(&b, ticket), 6 * MS + 120 * US);
}

#[test]
fn a_context_without_work_is_left_at_once() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    a.submit(on_a, kernel(300 * US)).unwrap();
    let ticket = b.submit(on_b, kernel(100 * US)).unwrap();
    machine.step_clock(5 * MS);
    assert!(b.is_done(ticket));
    assert_eq!(done(&b, ticket), 420 * US);
}

#[test]
fn kernels_run_side_by_side_while_they_fit() {
    let machine = machine();
    let (client, one) = tenant(&machine, 1);
    let context = client.context_create(0).unwrap();
    let streams: Vec<_> = (0..3).map(|_| client.stream_create(context, 0).unwrap()).collect();
    let half = Command::Kernel { duration_ns: 100 * US, sms: 50 };
    let tickets: Vec<_> = streams.iter().map(|stream| client.submit(*stream, half).unwrap()).collect();
    machine.step_clock(MS);
    client.advance();
    let ends: Vec<u64> = tickets.iter().map(|ticket| done(&client, *ticket)).collect();
    assert_eq!(ends, [100 * US, 100 * US, 200 * US]);
    // Service time counts once for all streams.
    assert_eq!(service(&machine, 1), 200 * US);
    let _ = one;
}

#[test]
fn a_higher_priority_goes_first() {
    let machine = machine();
    let client = machine.attach(1, "a").unwrap();
    let context = client.context_create(0).unwrap();
    let low = client.stream_create(context, 0).unwrap();
    let high = client.stream_create(context, -5).unwrap();
    client.submit(low, kernel(10 * US)).unwrap();
    let second_low = client.submit(low, kernel(10 * US)).unwrap();
    let first_high = client.submit(high, kernel(10 * US)).unwrap();
    machine.step_clock(MS);
    client.advance();
    assert!(done(&client, first_high) < done(&client, second_low));
}

#[test]
fn copies_need_no_turn_and_are_no_service() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    a.submit(on_a, kernel(u64::MAX)).unwrap();
    let first = b.submit(on_b, copy(300 * US)).unwrap();
    let second = b.submit(on_b, copy(300 * US)).unwrap();
    machine.step_clock(700 * US);
    b.advance();
    assert_eq!((done(&b, first), done(&b, second)), (300 * US, 600 * US));
    assert_eq!(service(&machine, 2), 0);
}

#[test]
fn an_engine_takes_one_copy_at_a_time() {
    let machine = machine();
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    let first = a.submit(on_a, copy(300 * US)).unwrap();
    machine.step_clock(US);
    let second = b.submit(on_b, copy(300 * US)).unwrap();
    machine.step_clock(MS);
    a.advance();
    assert_eq!((done(&a, first), done(&b, second)), (300 * US, 600 * US));
}

#[test]
fn gpus_run_at_the_same_time() {
    let mut config = config();
    config.gpus.push(crate::GpuConfig { sms: 10, ..config.gpus[0].clone() });
    let machine = Machine::in_memory(config).unwrap();
    let client = machine.attach(1, "a").unwrap();
    let tickets: Vec<Ticket> = (0..2)
        .map(|gpu| {
            let context = client.context_create(gpu).unwrap();
            let stream = client.stream_create(context, 0).unwrap();
            client.submit(stream, kernel(MS)).unwrap()
        })
        .collect();
    machine.step_clock(MS);
    assert!(tickets.iter().all(|ticket| client.is_done(*ticket)));
    let report = machine.report();
    assert_eq!(report.processes.len(), 2);
    assert!(report.gpus.iter().all(|gpu| gpu.busy_ns == MS));
    assert_ne!(report.gpus[0].uuid, report.gpus[1].uuid);
}

#[test]
fn a_harness_can_step_from_event_to_event() {
    let machine = machine();
    assert_eq!(machine.next_event_ns(), None);
    let (a, on_a) = tenant(&machine, 1);
    let (b, on_b) = tenant(&machine, 2);
    a.submit(on_a, kernel(3 * MS)).unwrap();
    b.submit(on_b, kernel(MS)).unwrap();
    b.submit(on_b, Command::Gate).unwrap();
    let mut events = Vec::new();
    while let Some(next) = machine.next_event_ns() {
        assert!(next > machine.now_ns());
        machine.step_clock(next - machine.now_ns());
        events.push(next);
    }
    let switch = 20 * US;
    let (first, second) = (2 * MS + switch, 3 * MS + switch);
    assert_eq!(events, [2 * MS, first, second, second + switch, second + switch + MS]);
}

#[test]
fn kernels_that_meet_spin_until_all_are_there() {
    let mut config = config();
    config.gpus.push(config.gpus[0].clone());
    let machine = Machine::in_memory(config).unwrap();
    let (a, on_a) = tenant(&machine, 1);
    let b = machine.attach(2, "tenant").unwrap();
    let on_b = b.stream_create(b.context_create(1).unwrap(), 0).unwrap();
    let rendezvous = Command::Rendezvous { rendezvous: 9, parties: 2, duration_ns: 5 * US, sms: 0 };
    let first = a.submit(on_a, rendezvous).unwrap();
    let second = a.submit(on_a, rendezvous).unwrap();
    machine.step_clock(MS);
    assert!(!a.is_done(first));
    let other = b.submit(on_b, rendezvous).unwrap();
    machine.step_clock(MS);
    a.advance();
    assert_eq!((done(&a, first), done(&b, other)), (MS + 5 * US, MS + 5 * US));
    // It spun, which is service time; a later kernel finds no peer.
    assert!(!a.is_done(second));
    assert_eq!((service(&machine, 1), service(&machine, 2)), (2 * MS, 5 * US));
}

#[test]
fn a_kernel_that_spins_for_the_host_ends_with_its_gate() {
    let machine = machine();
    let (client, stream) = tenant(&machine, 1);
    let spin = client.submit(stream, Command::Spin { sms: 0 }).unwrap();
    machine.step_clock(3 * MS);
    assert!(!client.is_done(spin));
    client.open_gate(spin);
    machine.step_clock(MS);
    client.advance();
    assert_eq!(done(&client, spin), 3 * MS);
    assert_eq!(service(&machine, 1), 3 * MS);
}

/// The shortest and the longest of several slices of the first of two contexts, in steps of 100 us.
fn shortest_and_longest_slice(spread_permille: u64) -> (u32, u32) {
    let mut config = config();
    config.driver.slice_spread_permille = spread_permille;
    config.switch_ns = 0;
    let machine = Machine::in_memory(config).unwrap();
    let tenants = [1, 2].map(|pid| tenant(&machine, pid));
    for (client, stream) in &tenants {
        client.submit(*stream, kernel(u64::MAX)).unwrap();
    }
    let (mut lengths, mut steps, mut before) = (Vec::new(), 0, 0);
    for _ in 0..1000 {
        machine.step_clock(100 * US);
        tenants[0].0.advance();
        let got = service(&machine, 1);
        if got > before {
            steps += 1;
        } else if steps > 0 {
            lengths.push(steps);
            steps = 0;
        }
        before = got;
    }
    (*lengths.iter().min().unwrap(), *lengths.iter().max().unwrap())
}

#[test]
fn slices_vary_by_the_profiles_spread() {
    assert_eq!(shortest_and_longest_slice(0), (20, 20));
    let (shortest, longest) = shortest_and_longest_slice(900);
    assert!(shortest < 15 && longest > 25, "{shortest} to {longest}");
}

/// Whether b or c, which were made in this order, goes first; c has waited longer.
fn first_after_a(order: crate::SliceOrder) -> (bool, bool) {
    let mut config = config();
    config.driver.slice_order = order;
    let machine = Machine::in_memory(config).unwrap();
    let [a, b, c] = [1, 2, 3].map(|pid| tenant(&machine, pid));
    a.0.submit(a.1, kernel(u64::MAX)).unwrap();
    machine.step_clock(MS / 2);
    let of_c = c.0.submit(c.1, kernel(100 * US)).unwrap();
    machine.step_clock(MS / 2);
    let of_b = b.0.submit(b.1, kernel(100 * US)).unwrap();
    // The slice's end, a switch, one kernel.
    machine.step_clock(MS + 120 * US);
    (b.0.is_done(of_b), c.0.is_done(of_c))
}

#[test]
fn the_next_slice_goes_by_the_profiles_order() {
    assert_eq!(first_after_a(crate::SliceOrder::RoundRobin), (true, false));
    assert_eq!(first_after_a(crate::SliceOrder::Arrival), (false, true));
}
