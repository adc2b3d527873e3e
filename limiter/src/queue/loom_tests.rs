//! Processes that come to the queue at once, in every order of accesses that the memory model allows, as far as loom knows
//! it. They use it as the shim does: who is held says that it waits, then that it sleeps, then looks once more; who went
//! leaves, and wakes the first of those who wait.
//!
//! That holds in all of them: of those who wait somebody goes; who sleeps behind another is woken, so nothing that was said
//! is lost; whoever dies or stands still, and wherever, is waited for until what it said is too old, and no longer. That
//! looks at `places` are sequentially consistent is not told apart from that they acquire: loom cannot.

use super::*;
use crate::primitive::counted::{self, standing_still_after};
use crate::primitive::fence;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as Plain;

const SLOTS: usize = 3;
const NOW_NS: u64 = 10_000_000_000;
/// No word of [`NOW_NS`] is believed any more.
const LATER_NS: u64 = NOW_NS + BELIEVED_NS + (1 << UNTIL_SHIFT);
const COST_NS: u64 = 400_000;

/// A device's queue, and which of its processes sleep: bits, as `waiters` of the bucket has them.
struct Device {
    queue: Queue,
    asleep: Plain,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::default(),
            asleep: Plain::new(0),
        })
    }

    /// A launch is held, and goes if nobody is ahead. Whether it went; else its process sleeps.
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

    /// Nobody sleeps who is the first of those who wait.
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
            // A quantum, and the next, before which it goes no more.
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
    // A launch is ten accesses of the queue, and looks at as many places as there are slots.
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
                // Who slept was woken by whoever went and ended, or waits until the word is too old.
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
        assert!(
            matches!(clock_ns, n if n == 2 * QUANTUM_NS || n == 5 * QUANTUM_NS),
            "{clock_ns}"
        );
        // Behind for a moment, if the one that had less came last: the next that has had more puts that right.
        device.queue.take(&had(5 * QUANTUM_NS), COST_NS);
        assert_eq!(device.queue.clock_ns.load(Ordering::Relaxed), 5 * QUANTUM_NS);
    });
}
