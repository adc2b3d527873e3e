use super::*;
use vcuda_region::process::Identity;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const BEGIN: u64 = 100 * SECOND;

/// A process in a slot; no other incarnation of it.
fn work(slot: usize, settled_ns: u64, launches: u32) -> Work {
    Work { slot, identity: Identity::current().unwrap(), state: 7, settled_ns, launches }
}

/// Sum of the charges (ms of GPU time).
fn charged_ms(unsettled: &Unsettled) -> i64 {
    unsettled.due_ns() / 1_000_000
}

/// Looks at `now_ns`; `busy` gives the tenant's busy map, `gone` the slots of dead processes.
fn look(
    unsettled: &mut Unsettled,
    works: &[Work],
    gone: &[usize],
    busy: &dyn Fn(u64, u64) -> Vec<u64>,
    now_ns: u64,
) {
    let look = Look {
        now_ns,
        since_ns: BEGIN,
        scale_permille: 1000,
        is_gone: &|work| gone.contains(&work.slot),
        busy,
    };
    unsettled.follow(works, &look);
}

fn idle(first: u64, last: u64) -> Vec<u64> {
    vec![0; usize::try_from(last - first).unwrap()]
}

/// Looks every 10 ms for so long at the same words; the time then.
fn look_for(unsettled: &mut Unsettled, works: &[Work], from_ns: u64, ns: u64) -> u64 {
    for now_ns in (from_ns..=from_ns + ns).step_by(10_000_000) {
        look(unsettled, works, &[], &idle, now_ns);
    }
    from_ns + ns
}

#[test]
fn a_stopped_process_is_charged_for_at_most_two_seconds() {
    let mut unsettled = Unsettled::default();
    let stopped = [work(0, BEGIN, 4)];
    let now_ns = look_for(&mut unsettled, &stopped, BEGIN, 300 * MS);
    assert_eq!(charged_ms(&unsettled), 0, "its worker may just be idle");
    let now_ns = look_for(&mut unsettled, &stopped, now_ns, 700 * MS);
    assert!((978..=980).contains(&charged_ms(&unsettled)), "{unsettled:?}");
    assert!(unsettled.is_watched() && unsettled.is_at_work());
    look_for(&mut unsettled, &stopped, now_ns, 9 * SECOND);
    assert!((1999..=2000).contains(&charged_ms(&unsettled)), "{unsettled:?}");
    assert!(!unsettled.is_watched());
}

#[test]
fn a_process_that_goes_on_gets_all_back() {
    let mut unsettled = Unsettled::default();
    let now_ns = look_for(&mut unsettled, &[work(0, BEGIN, 4)], BEGIN, 5 * SECOND);
    let mut map = [0; 2];
    unsettled.enter(&mut map, word_at(BEGIN + SECOND));
    assert_eq!(map, [FULL; 2]);
    look(&mut unsettled, &[work(0, now_ns, 4)], &[], &idle, now_ns + MS);
    assert_eq!((unsettled.due_ns(), unsettled.has_changed()), (0, true));
    unsettled.enter(&mut [0; 2], word_at(BEGIN + SECOND));
    // It stops again: charged from its last look on.
    look_for(&mut unsettled, &[work(0, now_ns, 4)], now_ns, SECOND);
    assert!((977..=980).contains(&charged_ms(&unsettled)), "{unsettled:?}");
}

#[test]
fn a_dead_process_is_charged_until_its_death_was_seen() {
    let mut unsettled = Unsettled::default();
    let dead = [work(3, BEGIN + SECOND, 1)];
    for now_ns in [BEGIN + 1090 * MS, BEGIN + 1200 * MS] {
        look(&mut unsettled, &dead, &[3], &idle, now_ns);
        assert!((89..=90).contains(&charged_ms(&unsettled)), "{unsettled:?}");
    }
    // Its slot is cleared, and then another's.
    look(&mut unsettled, &[], &[], &idle, BEGIN + 2 * SECOND);
    let next = Work { state: 8, ..work(3, BEGIN + 2 * SECOND, 1) };
    look(&mut unsettled, &[next], &[], &idle, BEGIN + 2 * SECOND);
    assert!((89..=90).contains(&charged_ms(&unsettled)), "{unsettled:?}");
}

#[test]
fn a_stopped_process_whose_slot_is_cleared_between_two_looks_is_charged() {
    let mut unsettled = Unsettled::default();
    look(&mut unsettled, &[work(0, BEGIN, 1)], &[], &idle, BEGIN + 90 * MS);
    look(&mut unsettled, &[], &[], &idle, BEGIN + 190 * MS);
    assert!((189..=190).contains(&charged_ms(&unsettled)), "{unsettled:?}");
    // One that was at work just before may have ended in order.
    let mut unsettled = Unsettled::default();
    look(&mut unsettled, &[work(0, BEGIN, 1)], &[], &idle, BEGIN + 10 * MS);
    look(&mut unsettled, &[], &[], &idle, BEGIN + 20 * MS);
    assert_eq!(unsettled.due_ns(), 0);
}

#[test]
fn a_process_that_works_or_waits_is_not_charged() {
    let mut unsettled = Unsettled::default();
    for step in 0..500 {
        let now_ns = BEGIN + step * 10 * MS;
        // Its worker looks, and its work goes on and on; another is idle, and one is of a release that tells nothing.
        let works = [work(0, now_ns - 9 * MS, 1), work(1, BEGIN, 0), work(2, 0, 5)];
        look(&mut unsettled, &works, &[], &idle, now_ns);
        assert_eq!((unsettled.due_ns(), unsettled.is_watched()), (0, false));
    }
    // A worker that slept for long before the launch is no reason to charge that time.
    let now_ns = BEGIN + 6 * SECOND;
    look(&mut unsettled, &[work(1, BEGIN, 1)], &[1], &idle, now_ns);
    assert!(unsettled.due_ns() <= (1010 * MS).cast_signed(), "{unsettled:?}");
}

#[test]
fn time_that_others_of_the_tenant_pay_for_is_not_charged_again() {
    let mut unsettled = Unsettled::default();
    // Half of each word is busy; two processes have stopped.
    let half = |first: u64, last: u64| vec![(1 << 24) - 1; usize::try_from(last - first).unwrap()];
    let works = [work(0, BEGIN, 1), work(1, BEGIN, 1)];
    for now_ns in (BEGIN..=BEGIN + SECOND).step_by(10_000_000) {
        look(&mut unsettled, &works, &[], &half, now_ns);
    }
    assert!((488..=490).contains(&charged_ms(&unsettled)), "{unsettled:?}");
}

#[test]
fn an_arbiter_that_takes_over_charges_its_own_time_alone() {
    let mut unsettled = Unsettled::default();
    look_for(&mut unsettled, &[work(0, BEGIN - SECOND, 1)], BEGIN, 9 * SECOND);
    assert!((999..=1000).contains(&charged_ms(&unsettled)), "{unsettled:?}");
}
