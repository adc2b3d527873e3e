//! The ledger against a model, and each party standing still before any of its accesses.

use super::table::Table;
use super::*;
use crate::primitive::counted::standing_still_after;
use proptest::prelude::*;

#[test]
fn to_the_byte() {
    let table = Table::new(3, 0);
    assert_eq!(table.reserve(0, 60, 100), Ok(()));
    let denied = Denied { requested_bytes: 41, used_bytes: 60, limit_bytes: 100 };
    assert_eq!(table.reserve(1, 41, 100), Err(denied));
    assert_eq!(table.reserve(1, 40, 100), Ok(()));
    assert!(table.reserve(2, 1, 100).is_err());
    assert_eq!(table.reserve(2, 0, 100), Ok(()));
    table.record(0).release(1);
    assert_eq!(table.reserve(2, 1, 100), Ok(()));
    assert_eq!(table.ledger().used_bytes(), 100);
    assert_eq!(table.record(0).peak_bytes.load(Ordering::Relaxed), 60);
}

#[test]
fn absurd_amounts_neither_wrap_nor_stay() {
    let table = Table::new(2, 0);
    assert_eq!(table.reserve(0, u64::MAX, u64::MAX - 1), Ok(()));
    table.record(0).release(u64::MAX);
    let denied = table.reserve(0, u64::MAX, 1 << 40).map_err(|denied| denied.requested_bytes);
    assert_eq!(denied, Err(u64::MAX), "told as it was asked for");
    for _ in 0..600 {
        assert_eq!(table.reserve(0, u64::MAX, u64::MAX), Ok(()));
    }
    assert!(table.ledger().used_bytes() >= COUNTABLE_BYTES);
    for _ in 0..600 {
        table.record(0).release(u64::MAX);
    }
    assert_eq!(table.ledger().used_bytes(), 0);
    table.record(0).release(5);
    assert_eq!(table.ledger().used_bytes(), 0);
}

#[test]
fn overhead_is_never_refused_and_then_refuses() {
    let table = Table::new(2, 0);
    assert_eq!(table.reserve(0, 10, 100), Ok(()));
    table.record(1).set_overhead(95);
    assert_eq!(table.ledger().used_bytes(), 105);
    assert!(table.reserve(0, 1, 100).is_err());
    table.record(1).set_overhead(80);
    assert_eq!(table.reserve(0, 10, 100), Ok(()));
    assert_eq!(table.ledger().used_bytes(), 100);
}

#[test]
fn the_peak_is_the_most_ever_used_and_never_falls() {
    for limit_bytes in [1000, u64::MAX] {
        let table = Table::new(1, 0);
        let peak_bytes = || table.record(0).peak_bytes.load(Ordering::Relaxed);
        assert_eq!(table.reserve(0, 60, limit_bytes), Ok(()));
        table.record(0).release(50);
        assert_eq!(table.reserve(0, 5, limit_bytes), Ok(()));
        assert_eq!(peak_bytes(), 60);
        assert_eq!(table.reserve(0, 50, limit_bytes), Ok(()));
        assert_eq!(peak_bytes(), 65);
        // Overhead counts too.
        table.record(0).set_overhead(35);
        assert_eq!(peak_bytes(), 100);
        table.record(0).set_overhead(30);
        assert_eq!(peak_bytes(), 100);
        // The next owner of the record begins with its own.
        table.record(0).begin();
        assert_eq!(peak_bytes(), 0);
    }
}

#[test]
fn a_request_that_was_refused_leaves_the_peak() {
    let table = Table::new(1, 0);
    assert_eq!(table.reserve(0, 60, 100), Ok(()));
    assert!(table.reserve(0, 41, 100).is_err());
    assert_eq!(table.record(0).peak_bytes.load(Ordering::Relaxed), 60);
}

#[test]
fn a_dead_record_counts_nothing_and_a_late_cleaner_does_no_harm() {
    let table = Table::new(2, 0);
    assert_eq!(table.reserve(0, 70, 100), Ok(()));
    table.record(0).empty(|| true);
    assert_eq!(table.ledger().used_bytes(), 0);
    table.record(0).begin();
    assert_eq!(table.reserve(0, 30, 100), Ok(()));
    table.record(0).empty(|| false);
    assert_eq!(table.ledger().used_bytes(), 30);
}

#[test]
fn a_party_that_stands_still_anywhere_holds_up_no_other() {
    // 0 uses 20 of 100 and stands still while it asks for 50; 1 asks for 60, for 30, and reads.
    let mut granted = 0;
    let mut accesses = 0;
    loop {
        let table = Table::new(2, 0);
        assert_eq!(table.reserve(0, 20, 100), Ok(()));
        let finished = standing_still_after(accesses, || table.reserve(0, 50, 100)).is_some();
        let is_granted = table.record(0).read().counted_bytes() == 70;
        granted += u32::from(is_granted);
        assert_eq!(table.reserve(1, 60, 100).is_ok(), !is_granted, "after {accesses}");
        assert_eq!(table.reserve(1, 30, 100).is_ok(), is_granted, "after {accesses}");
        assert!(table.ledger().used_bytes() <= 100);
        // Found dead, it is emptied from wherever it stood, by any number of others that stand still in it too.
        for cleaner_accesses in 0..8 {
            standing_still_after(cleaner_accesses, || table.record(0).empty(|| true));
        }
        assert_eq!(table.reserve(1, 40, 100).is_ok(), !is_granted || table.ledger().used_bytes() == 70);
        assert!(table.ledger().used_bytes() <= 100);
        accesses += 1;
        if finished {
            break;
        }
    }
    assert!(accesses > 12 && granted > 0, "{accesses} accesses, {granted} of them after the grant");
}

#[derive(Debug, Clone)]
enum Act {
    Reserve(usize, u64),
    Release(usize, u64),
    Overhead(usize, u64),
    Die(usize),
    StandStill(usize, u64, u32),
}

fn act() -> impl Strategy<Value = Act> {
    let slot = 0..4_usize;
    prop_oneof![
        4 => (slot.clone(), 0..70_u64).prop_map(|(slot, bytes)| Act::Reserve(slot, bytes)),
        3 => (slot.clone(), 0..70_u64).prop_map(|(slot, bytes)| Act::Release(slot, bytes)),
        1 => (slot.clone(), 0..30_u64).prop_map(|(slot, bytes)| Act::Overhead(slot, bytes)),
        1 => slot.clone().prop_map(Act::Die),
        1 => (slot, 0..70_u64, 0..20_u32).prop_map(|(slot, bytes, after)| Act::StandStill(slot, bytes, after)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 5 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_plain_sum(acts in proptest::collection::vec(act(), 0..if cfg!(miri) { 15 } else { 60 }), limit in 50..150_u64) {
        let table = Table::new(4, 0);
        let mut used = [0_u64; 4];
        let mut overhead = [0_u64; 4];
        for act in acts {
            let total: u64 = used.iter().sum();
            match act {
                Act::Reserve(slot, bytes) => {
                    let fits = total + bytes <= limit;
                    prop_assert_eq!(table.reserve(slot, bytes, limit).is_ok(), fits);
                    used[slot] += if fits { bytes } else { 0 };
                }
                Act::Release(slot, bytes) => {
                    // Overhead is not released this way: callers release what they reserved.
                    let bytes = bytes.min(used[slot] - overhead[slot]);
                    table.record(slot).release(bytes);
                    used[slot] -= bytes;
                }
                Act::Overhead(slot, bytes) => {
                    table.record(slot).set_overhead(bytes);
                    used[slot] = used[slot] - overhead[slot] + bytes;
                    overhead[slot] = bytes;
                }
                Act::Die(slot) => {
                    table.record(slot).empty(|| true);
                    table.record(slot).begin();
                    (used[slot], overhead[slot]) = (0, 0);
                }
                Act::StandStill(slot, bytes, after) => {
                    standing_still_after(after, || table.reserve(slot, bytes, limit));
                    let now = table.record(slot).read().counted_bytes();
                    prop_assert!(now == used[slot] || (now == used[slot] + bytes && total + bytes <= limit));
                    used[slot] = now;
                }
            }
            prop_assert_eq!(table.ledger().used_bytes(), used.iter().sum::<u64>());
        }
    }
}
