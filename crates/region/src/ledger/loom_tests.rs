//! The ledger's code under every order of accesses that the memory model allows, as far as loom knows it.

use super::*;
use crate::primitive::counted::{self, standing_still_after};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Plain;

const LIMIT: u64 = 10;

struct Table {
    inner: super::table::Table,
    granted: Plain,
}

impl Table {
    fn new(slots: u32) -> Arc<Self> {
        Arc::new(Self { inner: super::table::Table::new(slots, 0), granted: Plain::new(0) })
    }

    fn record(&self, slot: usize) -> &Record {
        self.inner.record(slot)
    }

    fn reserve(&self, slot: usize, bytes: u64) -> bool {
        let granted = self.inner.reserve(slot, bytes, LIMIT).is_ok();
        if granted {
            let before = self.granted.fetch_add(bytes, Ordering::Relaxed);
            assert!(before + bytes <= LIMIT, "over the limit");
        }
        granted
    }

    fn release(&self, slot: usize, bytes: u64) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
        self.record(slot).release(bytes);
    }

    fn used_bytes(&self) -> u64 {
        self.inner.ledger().used_bytes()
    }
}

fn model(check: impl Fn() + Clone + Sync + Send + 'static) {
    counted::model(2, check);
}

#[test]
fn loom_two_ask_for_the_last_bytes() {
    model(|| {
        let table = Table::new(2);
        let other = Arc::clone(&table);
        let thread = loom::thread::spawn(move || other.reserve(1, 6));
        let mine = table.reserve(0, 6);
        let theirs = thread.join().unwrap();
        assert!(mine != theirs, "one of two fits, and one is granted");
        assert_eq!(table.used_bytes(), 6);
    });
}

#[test]
fn loom_another_process_comes_while_one_is_alone() {
    model(|| {
        let table = Table::new(2);
        table.inner.slots_used.store(1, Ordering::SeqCst);
        let other = Arc::clone(&table);
        let thread = loom::thread::spawn(move || {
            // As it takes its slot, before it announces anything.
            other.inner.slots_used.fetch_max(2, Ordering::SeqCst);
            other.reserve(1, 6)
        });
        let mine = table.reserve(0, 6);
        let theirs = thread.join().unwrap();
        assert!(mine != theirs, "one of two fits, and one is granted");
        assert_eq!(table.used_bytes(), 6);
    });
}

#[test]
fn loom_two_that_fit_are_both_granted() {
    model(|| {
        let table = Table::new(2);
        let other = Arc::clone(&table);
        let thread = loom::thread::spawn(move || {
            assert!(other.reserve(1, 6));
            other.release(1, 6);
            assert!(other.reserve(1, 5));
        });
        assert!(table.reserve(0, 4));
        thread.join().unwrap();
        assert_eq!(table.used_bytes(), 9);
    });
}

#[test]
fn loom_what_is_freed_is_never_counted_twice() {
    model(|| {
        let table = Table::new(3);
        let others = [1, 2].map(|slot| {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || {
                if table.reserve(slot, 9) && slot == 1 {
                    table.release(slot, 9);
                }
            })
        });
        assert!(table.reserve(0, 1), "1 of 10 fits beside the 9 of the process that has them");
        for other in others {
            other.join().unwrap();
        }
        assert!(matches!(table.used_bytes(), 1 | 10));
    });
}

#[test]
fn loom_a_reader_sees_amounts_of_one_moment() {
    model(|| {
        let table = Table::new(2);
        assert!(table.reserve(0, 8));
        let writer = Arc::clone(&table);
        let thread = loom::thread::spawn(move || {
            writer.release(0, 4);
            assert!(writer.reserve(0, 2));
            writer.release(0, 6);
        });
        let used = table.record(0).read().counted_bytes();
        assert!(matches!(used, 0 | 4 | 6 | 8), "{used}");
        thread.join().unwrap();
    });
}

#[test]
fn loom_three_ask_and_one_stands_still_anywhere() {
    for accesses in 0..24 {
        model(move || {
            let table = Table::new(3);
            let parties = [(1, 5), (2, 6)].map(|(slot, bytes)| {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || {
                    if slot == 1 {
                        standing_still_after(accesses, || table.reserve(slot, bytes))
                            .is_some_and(|granted| granted)
                    } else {
                        table.reserve(slot, bytes)
                    }
                })
            });
            let outcomes = parties.map(|party| party.join().unwrap());
            let frozen = table.record(1).read().counted_bytes();
            assert!(!outcomes[0] || frozen == 5);
            assert_eq!(outcomes[1], frozen == 0, "granted unless the other was");
            // What is left fits for the third, to the byte, whatever the one that stands still has asked for.
            let left = LIMIT - frozen - if outcomes[1] { 6 } else { 0 };
            assert!(table.reserve(0, left));
            assert_eq!(table.used_bytes(), LIMIT);
        });
    }
}

#[test]
fn loom_emptying_a_dead_record_twice_while_its_next_owner_begins() {
    model(|| {
        let table = Table::new(2);
        assert!(table.reserve(0, 8));
        let owner = Arc::new(Plain::new(1));
        let (late, late_owner) = (Arc::clone(&table), Arc::clone(&owner));
        let late = loom::thread::spawn(move || {
            late.record(0).empty(|| late_owner.load(Ordering::Acquire) == 1);
        });
        table.record(0).empty(|| true);
        owner.store(2, Ordering::Release);
        table.granted.fetch_sub(8, Ordering::Relaxed);
        table.record(0).begin();
        assert!(table.reserve(0, 3));
        late.join().unwrap();
        assert_eq!(table.used_bytes(), 3);
    });
}
