//! Processes that use the queue at the same time, in every order of accesses that loom knows of the memory model. They use it as
//! the shim does: a process that has to wait publishes that it waits, then that it sleeps, then checks the queue once more. A
//! process that has proceeded leaves, and wakes the first waiting one.
//!
//! In all orders one of the waiting processes proceeds. A process that sleeps behind another is woken, so no wake-up is lost. A
//! process that dies or stops at any access delays the others only until its word expires. Loom does not distinguish
//! sequentially consistent loads of `places` from acquire loads.

use super::*;
use crate::primitive::counted::{self, standing_still_after};
use crate::primitive::fence;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as Plain;

const SLOTS: usize = 3;
const NOW_NS: u64 = 10_000_000_000;
/// Time at which all words of [`NOW_NS`] have expired.
const LATER_NS: u64 = NOW_NS + BELIEVED_NS + (1 << UNTIL_SHIFT);
const COST_NS: u64 = 400_000;

/// A device's queue, and a bit for each sleeping process, as in `waiters` of the bucket.
struct Device {
    queue: Queue,
    asleep: Plain,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self { queue: Queue::default(), asleep: Plain::new(0) })
    }

    /// Asks for a launch, which proceeds if no other process is ahead. Returns whether it did; else its process sleeps.
    fn launch(&self, member: &Member) -> bool {
        self.queue.come(member, COST_NS);
        self.queue.wait(member, COST_NS, NOW_NS);
        self.asleep.fetch_or(1 << member.slot(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(until_ns) = self.queue.others_until(member, COST_NS, SLOTS, NOW_NS) {
            assert!(until_ns <= LATER_NS, "waits no longer than is believed");
            return false;
        }
        self.queue.take(member, COST_NS);
        self.leave(member);
        true
    }

    fn leave(&self, member: &Member) {
        self.queue.leave(member.slot());
        if let Some(next) = self.queue.first(SLOTS, NOW_NS) {
            fence(Ordering::SeqCst);
            self.asleep.fetch_and(!(1 << next), Ordering::Relaxed);
        }
    }

    /// The first waiting process does not sleep.
    fn nobody_is_forgotten(&self) {
        if let Some(first) = self.queue.first(SLOTS, NOW_NS) {
            let asleep = self.asleep.load(Ordering::Relaxed);
            assert_eq!(asleep & 1 << first, 0, "{first} goes next, and nobody woke it");
        }
    }
}

#[test]
fn loom_of_two_that_say_that_they_wait_one_sees_the_other() {
    counted::model(3, || {
        let device = Device::new();
        let says = |device: &Device, slot| {
            device.queue.wait(&Member::new(slot), COST_NS, NOW_NS);
            device.queue.waiting(SLOTS, NOW_NS).count() == 2
        };
        let other = Arc::clone(&device);
        let thread = loom::thread::spawn(move || says(&other, 1));
        let sees = says(&device, 0);
        assert!(thread.join().unwrap() || sees);
    });
}

#[test]
fn loom_of_those_who_come_at_once_somebody_goes_and_wakes_the_next() {
    for others in [1, 2] {
        counted::model(2, move || {
            let device = Device::new();
            let threads: Vec<_> = (1..=others)
                .map(|slot| {
                    let device = Arc::clone(&device);
                    loom::thread::spawn(move || device.launch(&Member::new(slot)))
                })
                .collect();
            let mut went = device.launch(&Member::new(0));
            for thread in threads {
                went |= thread.join().unwrap();
            }
            assert!(went, "each waits for another");
            device.nobody_is_forgotten();
        });
    }
}

#[test]
fn loom_who_comes_again_and_again_forgets_nobody() {
    counted::model(3, || {
        let device = Device::new();
        let other = Arc::clone(&device);
        let thread = loom::thread::spawn(move || {
            let member = Member::new(1);
            // Launches of a quantum, and of the next one, before which it has to wait.
            (0..4).take_while(|_| other.launch(&member)).count()
        });
        let went = device.launch(&Member::new(0));
        let others = thread.join().unwrap();
        assert!(went || others > 0);
        device.nobody_is_forgotten();
    });
}

#[test]
fn loom_whoever_dies_or_stands_still_anywhere_is_not_waited_for_for_ever() {
    // A launch makes ten accesses of the queue, and loads each slot's place.
    for accesses in 0..18 {
        counted::model(2, move || {
            let device = Device::new();
            let other = Arc::clone(&device);
            let thread =
                loom::thread::spawn(move || standing_still_after(accesses, || other.launch(&Member::new(0))));
            let member = Member::new(1);
            let went = device.launch(&member);
            let ended = thread.join().unwrap();
            if went || ended == Some(true) {
                // A sleeping process was woken by one that proceeded, or waits until the word expires.
                if ended.is_some() {
                    device.nobody_is_forgotten();
                }
            } else {
                assert_eq!(ended, None, "each waits for another");
            }
            device.queue.wait(&member, COST_NS, LATER_NS);
            let until_ns = device.queue.others_until(&member, COST_NS, SLOTS, LATER_NS);
            assert_eq!(until_ns, None);
        });
    }
}

#[test]
fn loom_the_clock_is_never_ahead_of_who_went() {
    counted::model(3, || {
        let device = Device::new();
        let other = Arc::clone(&device);
        let had = |ns| {
            let member = Member::new(0);
            member.had_ns.store(ns, Ordering::Relaxed);
            member
        };
        let thread = loom::thread::spawn(move || other.queue.take(&had(5 * QUANTUM_NS), COST_NS));
        let least = had(2 * QUANTUM_NS);
        device.queue.take(&least, COST_NS);
        thread.join().unwrap();
        let clock_ns = device.queue.clock_ns.load(Ordering::Relaxed);
        assert!(matches!(clock_ns, n if n == 2 * QUANTUM_NS || n == 5 * QUANTUM_NS), "{clock_ns}");
        // The clock may be behind if the less served process stored last; the next launch of the other corrects it.
        device.queue.take(&had(5 * QUANTUM_NS), COST_NS);
        assert_eq!(device.queue.clock_ns.load(Ordering::Relaxed), 5 * QUANTUM_NS);
    });
}
