//! A process that stands still, or is killed, before any of its accesses to the table of objects.

use super::*;
use crate::primitive::counted::standing_still_after;
use crate::process::ProcessView;
use crate::slots::Usage;

/// A process is stopped (or killed) before any of its accesses to objects. The tenant never counts less than is in use,
/// nor more than was ever granted. Others go on. Once the dead are cleared, only what others hold is counted.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn killed_or_stopped_anywhere() {
    let run = |usage: &Usage| {
        let slot = usage.claim(&dead_process(1)).unwrap();
        // Imports what the survivor exports, exports 20 of its own, joins 10 from outside, and parts with all of it.
        let imported = slot.join(key(1)).unwrap();
        let exported = export(&slot, 2, 20);
        let foreign = slot.join_foreign(key(3), device(), 10, LIMIT).unwrap();
        slot.part(imported);
        slot.part(exported);
        slot.part(foreign);
    };
    for accesses in 0.. {
        let usage = Usage::in_memory().unwrap();
        let other = usage.claim(&survivor()).unwrap();
        let own = export(&other, 1, 60);
        let finished = standing_still_after(accesses, || run(&usage)).is_some();
        let used = usage.used_bytes(device());
        assert!([60, 80, 90, 70].contains(&used), "{used} after {accesses}");
        // Stopped, it holds up no other process, which joins known and foreign objects, and finds all the room that is
        // left.
        let joined = other.join(key(2));
        let foreign = other.join_foreign(key(3), device(), 10, LIMIT).unwrap();
        let now = usage.used_bytes(device());
        assert!(now <= used + 10 && now >= 70, "{now}, {used} before, after {accesses}");
        // Unless it stands within what it does with it itself, the 10 from outside are counted once.
        assert!(usage.unpaid_bytes(device()) >= 10);
        assert!(allocate(&other, LIMIT - now), "{now} after {accesses}");
        assert!(!allocate(&other, 1), "after {accesses}");
        other.release(device(), LIMIT - now);
        other.part(own);
        // It is killed, and so are processes that clear it.
        for cleaner in [3, 10, 40, 100, 250] {
            standing_still_after(cleaner, || usage.reap_dead_and_wait(&ProcessView::new(survivor())));
        }
        usage.reap_dead_and_wait(&ProcessView::new(survivor()));
        let left = if joined.is_some() { 30 } else { 10 };
        assert_eq!(usage.used_bytes(device()), left, "after {accesses}");
        if let Some(joined) = joined {
            other.part(joined);
        }
        other.part(foreign);
        assert_eq!(usage.used_bytes(device()), 0, "after {accesses}");
        assert_eq!([1, 2, 3].map(|number| other.join(key(number))), [None, None, None]);
        assert!(usage.objects().all().all(|(_, word, _)| {
            state::State(word.load(crate::primitive::Ordering::Relaxed)).status() == state::FREE
        }));
        assert!(allocate(&other, LIMIT));
        if finished {
            assert!(accesses > 150, "{accesses}");
            break;
        }
    }
}

/// Room for one: if a process stands still in joining an object, another one joins it all the same.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn stopped_in_joining_it_refuses_no_other_the_same_object() {
    for accesses in 0.. {
        let usage = Usage::in_memory().unwrap();
        let [first, second] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
        assert!(allocate(&second, 90));
        let finished =
            standing_still_after(accesses, || first.join_foreign(key(1), device(), 10, LIMIT).unwrap())
                .is_some();
        let object = second.join_foreign(key(1), device(), 10, LIMIT);
        assert!(object.is_ok(), "after {accesses}");
        assert_eq!(usage.used_bytes(device()), 100, "after {accesses}");
        assert_eq!(usage.unpaid_bytes(device()), 10, "after {accesses}");
        first.leave();
        assert_eq!(usage.used_bytes(device()), 100, "after {accesses}");
        second.part(object.unwrap());
        assert_eq!(usage.used_bytes(device()), 90, "after {accesses}");
        if finished {
            assert!(accesses > 30, "{accesses}");
            break;
        }
    }
}
