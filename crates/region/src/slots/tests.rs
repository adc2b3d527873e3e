//! Claiming, taking over, clearing: also by and for processes that stop before any of their accesses.

use super::*;
use crate::primitive::counted::standing_still_after;
use crate::process::Liveness;
use vcuda_limiter::queue::Member;

const GIB: u64 = 1 << 30;

/// Processes that do not exist; all numbers above the kernel's largest PID.
fn dead_process(number: u32) -> Identity {
    Identity {
        pid: 4_200_000 + number,
        start_ticks: 7,
        pid_namespace: 1,
        time_namespace: 0,
        name: *b"unknown\0\0\0\0\0\0\0\0\0",
    }
}

/// A view from the namespace of these processes, in which every one of them is found dead.
fn survivor() -> ProcessView {
    ProcessView::new(Identity { pid: std::process::id(), ..dead_process(0) })
}

fn device() -> DeviceIndex {
    DeviceIndex::new(3).unwrap()
}

#[test]
fn a_slot_knows_its_owner_and_is_taken_over_by_the_same_process_only() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    slot.reserve(device(), GIB, 4 * GIB).unwrap().commit();
    slot.charge_overhead(device(), 5);
    assert_eq!(usage.processes().collect::<Vec<_>>(), [(0, dead_process(1))]);
    assert_eq!(usage.processes().next().unwrap().1.command(), "unknown");
    assert_eq!(usage.used_bytes(device()), GIB + 5);
    assert_eq!(usage.used_and_peak_bytes(device(), 0), (GIB + 5, GIB + 5));
    assert_eq!(usage.used_and_peak_bytes(device(), MAX_SLOTS), (0, 0), "there is no such slot");
    let later = Identity { start_ticks: 8, ..dead_process(1) };
    assert_eq!(usage.claim(&later).unwrap().index(), 1, "the same number, another process");
    let after_exec = Identity { name: *b"another\0\0\0\0\0\0\0\0\0", ..dead_process(1) };
    let again = usage.claim(&after_exec).unwrap();
    assert_eq!((again.index(), usage.used_bytes(device())), (0, 0));
    assert_eq!(usage.processes().collect::<Vec<_>>(), [(0, after_exec), (1, later)], "it is held");
    again.leave();
    assert_eq!(usage.processes().count(), 1);
}

#[test]
fn a_claim_touches_the_tenants_devices_only() {
    let usage = Usage::in_memory().unwrap();
    let [own, other] = [0, 1].map(|index| DeviceIndex::new(index).unwrap());
    for device in [own, other] {
        usage.queue(device).wait(&Member::new(0), 1, 1);
    }
    usage.claim_on(&dead_process(1), 1).unwrap();
    assert_eq!(usage.queue(own).first(1, 1), None, "the last owner's place is gone");
    assert_eq!(usage.queue(other).first(1, 1), Some(0));
}

#[test]
fn overhead_goes_up_and_down() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    slot.charge_overhead(device(), 100);
    slot.charge_overhead(device(), 50);
    slot.release_overhead(device(), 30);
    assert_eq!((slot.overhead_bytes(device()), slot.used_bytes(device())), (120, 120));
    slot.reserve(device(), 10, 130).unwrap().commit();
    slot.set_overhead(device(), 10_000);
    let denied = slot.reserve(device(), 1, 130).unwrap_err();
    slot.set_overhead(device(), 0);
    assert_eq!(slot.used_bytes(device()), 10);
    assert_eq!(usage.bucket(device()).denied(), 0, "the caller may try again");
    slot.count_denied(device(), &denied);
    let bucket = usage.bucket(device());
    assert_eq!((bucket.denied(), bucket.denied_used_bytes.load(Ordering::Relaxed)), (1, 10_010));
}

#[test]
fn a_reservation_follows_what_the_driver_took_and_is_dropped_whole() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    let mut reservation = slot.reserve(device(), 100, 200).unwrap();
    reservation.resize(150, 200).unwrap();
    assert_eq!(usage.used_bytes(device()), 150);
    assert!(reservation.resize(201, 200).is_err());
    reservation.resize(20, 200).unwrap();
    assert_eq!((usage.used_bytes(device()), reservation.bytes()), (20, 20));
    drop(reservation);
    assert_eq!(usage.used_bytes(device()), 0);
    slot.reserve(device(), 200, 200).unwrap().commit();
    slot.release(device(), 200);
    assert_eq!(usage.used_bytes(device()), 0);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn when_all_slots_are_held_by_the_dead_there_is_room() {
    let usage = Usage::in_memory().unwrap();
    for number in 0..MAX_SLOTS {
        let slot = usage.claim(&dead_process(u32::try_from(number).unwrap())).unwrap();
        assert_eq!(slot.index(), number);
        slot.reserve(device(), 1, GIB).unwrap().commit();
    }
    assert_eq!(usage.used_bytes(device()), MAX_SLOTS as u64);
    // From another namespace none of them can be told dead.
    let blind = Identity { pid_namespace: 2, pid: std::process::id(), ..dead_process(0) };
    if !ProcessView::new(blind).sees_all() {
        assert_eq!(usage.claim(&blind).unwrap_err(), SlotsFull);
    }
    let newcomer = Identity { pid: std::process::id(), ..dead_process(0) };
    let slot = usage.claim(&newcomer).unwrap();
    slot.reserve(device(), GIB, GIB).unwrap().commit();
    assert_eq!(usage.processes().count(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn killed_anywhere_between_claim_and_release() {
    let run = |usage: &Usage| {
        let slot = usage.claim(&dead_process(1)).unwrap();
        let meter = slot.meter(device());
        if !meter.spend(1000) {
            meter.take(usage.bucket(device()), 1000);
        }
        slot.reserve(device(), 3 * GIB, 4 * GIB).unwrap().commit();
        let _ = slot.reserve(device(), 2 * GIB, 4 * GIB);
        slot.release(device(), GIB);
        slot.reserve(device(), GIB, 4 * GIB).unwrap().commit();
        slot.leave();
    };
    for accesses in 0.. {
        let usage = Usage::in_memory().unwrap();
        let neighbour = Identity { pid: std::process::id(), ..dead_process(0) };
        let other = usage.claim(&neighbour).unwrap();
        other.reserve(device(), GIB, 4 * GIB).unwrap().commit();
        let finished = standing_still_after(accesses, || run(&usage)).is_some();
        assert!(usage.used_bytes(device()) <= 4 * GIB);
        // The process that clears is killed too, at each of its first accesses.
        for cleaner in [5, 20, 60] {
            standing_still_after(cleaner, || usage.reap_dead_and_wait(&survivor()));
        }
        usage.reap_dead_and_wait(&survivor());
        assert_eq!(usage.processes().count(), 1, "after {accesses}");
        assert_eq!(usage.used_bytes(device()), GIB, "after {accesses}");
        let level = usage.bucket(device()).level_ns();
        // Killed while it takes a lease, it costs the tenant that much, and never gives it anything.
        assert!((0..=2 * 1000 + 200_000).contains(&level), "{level} after {accesses}");
        // The next one gets the place, clean, and all of the memory.
        let next = usage.claim(&dead_process(2)).unwrap();
        assert_eq!(next.index(), 1, "after {accesses}");
        assert_eq!(next.meter(device()).launches(), 0);
        next.reserve(device(), 3 * GIB, 4 * GIB).unwrap().commit();
        if finished {
            assert!(accesses > 100, "{accesses}");
            break;
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel about processes")]
fn a_death_that_was_seen_is_not_that_of_the_slots_next_owner() {
    let usage = Usage::in_memory().unwrap();
    let slow = usage.claim(&dead_process(1)).unwrap();
    slow.reserve(device(), 3 * GIB, 4 * GIB).unwrap().commit();
    let record = &usage.mapping.identities[slow.index()];
    let state = record.state();
    assert_eq!(survivor().liveness(&dead_process(1)), Liveness::Dead);
    // Between the look and the clearing another process clears the slot, and a living process takes it.
    assert_eq!(usage.reap_dead_and_wait(&survivor()).cleared, 1);
    let neighbour = Identity { pid: std::process::id(), ..dead_process(0) };
    let next = usage.claim(&neighbour).unwrap();
    assert_eq!(next.index(), slow.index());
    next.reserve(device(), GIB, 4 * GIB).unwrap().commit();
    assert!(!usage.clear(next.index(), record, state));
    assert_eq!(usage.used_bytes(device()), GIB);
    assert_eq!(usage.processes().count(), 1);
}

#[test]
fn threads_of_one_process_share_its_slot() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    let rounds = if cfg!(miri) { 5 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    slot.reserve(device(), 25, 100).expect("four times 25 of 100 fit").commit();
                    slot.release(device(), 25);
                }
            });
        }
    });
    assert_eq!(usage.used_bytes(device()), 0);
}

/// A process that waits for what is in flight would else wait for one that was stopped.
#[test]
fn work_of_a_process_that_says_nothing_is_not_in_flight() {
    let usage = Usage::in_memory().unwrap();
    let now_ns = 10 * SILENT_NS;
    let slots = [1, 2].map(|number| usage.claim(&dead_process(number)).unwrap());
    for slot in &slots {
        slot.meter(device()).take(usage.bucket(device()), 1_000_000);
        assert!(slot.meter(device()).spend(1_000_000));
    }
    assert_eq!(usage.in_flight(device(), now_ns), (2_000_000, 2), "they never told");
    for slot in &slots {
        slot.tell_settled(now_ns);
    }
    assert_eq!(usage.in_flight(device(), now_ns + SILENT_NS), (2_000_000, 2));
    slots[0].tell_settled(now_ns + 1);
    assert_eq!(usage.in_flight(device(), now_ns + SILENT_NS + 1), (1_000_000, 1));
}
