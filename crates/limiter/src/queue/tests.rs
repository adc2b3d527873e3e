use proptest::prelude::*;

use super::*;

/// Number of slots in use.
const SLOTS: usize = 8;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn members(count: usize) -> Vec<Member> {
    (0..count).map(Member::new).collect()
}

/// First of the waiting processes, checked from each one's view.
fn first(queue: &Queue, waiting: &[(&Member, u64)], now_ns: u64) -> usize {
    let goes =
        |(member, cost_ns): &&(&Member, u64)| queue.others_until(member, *cost_ns, SLOTS, now_ns).is_none();
    let mut first = waiting.iter().filter(goes);
    let slot = first.next().expect("somebody goes").0.slot();
    assert!(first.next().is_none(), "and nobody else");
    assert_eq!(queue.first(SLOTS, now_ns), Some(slot));
    slot
}

#[test]
fn the_least_served_goes_first_and_then_has_a_quantum() {
    let (queue, all) = (Queue::default(), members(3));
    let waiting: Vec<_> = all.iter().map(|member| (member, 100 * US)).collect();
    let mut turns = Vec::new();
    for step in 0..60 {
        for (member, cost_ns) in &waiting {
            queue.come(member, *cost_ns);
            queue.wait(member, *cost_ns, step);
        }
        let slot = first(&queue, &waiting, step);
        queue.take(&all[slot], 100 * US);
        queue.leave(slot);
        turns.push(slot);
    }
    let starts: Vec<usize> = turns.chunks(10).map(|chunk| chunk[0]).collect();
    assert_eq!(starts, [0, 1, 2, 0, 1, 2], "{turns:?}");
    assert!(turns.chunks(10).all(|turn| turn.iter().all(|slot| *slot == turn[0])));
}

#[test]
fn who_says_nothing_more_is_not_waited_for() {
    let (queue, all) = (Queue::default(), members(2));
    let now_ns = 10_000 * MS;
    queue.take(&all[1], 5 * MS);
    queue.wait(&all[0], MS, now_ns);
    let until_ns = queue.others_until(&all[1], MS, SLOTS, now_ns).unwrap();
    assert!((now_ns..=now_ns + BELIEVED_NS + MS).contains(&until_ns), "{until_ns}");
    assert_eq!(queue.others_until(&all[1], MS, SLOTS, until_ns + MS), None);
    assert_eq!(queue.first(SLOTS, until_ns + MS), None);
    // An equally served process does not wait for one that has left.
    queue.wait(&all[0], MS, now_ns);
    queue.leave(0);
    assert_eq!(queue.others_until(&all[1], MS, SLOTS, now_ns), None);
}

#[test]
fn who_was_idle_is_not_paid_for_it() {
    let (queue, all) = (Queue::default(), members(2));
    for _ in 0..1_000 {
        queue.come(&all[0], MS);
        queue.take(&all[0], MS);
    }
    // The other comes for the first time, after a second of the first one's GPU time.
    let mut alone = 0;
    for now_ns in 0..20 {
        for member in &all {
            queue.come(member, MS);
            queue.wait(member, MS, now_ns);
        }
        let waiting = [(&all[0], MS), (&all[1], MS)];
        let slot = first(&queue, &waiting, now_ns);
        queue.take(&all[slot], MS);
        queue.leave(slot);
        alone += usize::from(slot == 1);
    }
    assert!((10..=11).contains(&alone), "{alone}");
}

#[test]
fn one_of_long_launches_and_one_of_short_ones_have_the_same() {
    let (queue, all) = (Queue::default(), members(2));
    let waiting = [(&all[0], 50 * MS), (&all[1], 10 * US)];
    let mut had = [0_u64; 2];
    let mut apart = 0;
    while had[0] < 300 * MS {
        for (member, cost_ns) in &waiting {
            queue.come(member, *cost_ns);
            queue.wait(member, *cost_ns, 0);
        }
        let slot = first(&queue, &waiting, 0);
        queue.take(&all[slot], waiting[slot].1);
        queue.leave(slot);
        had[slot] += waiting[slot].1;
        apart = apart.max(had[0].abs_diff(had[1]));
    }
    // At most half of the longest launch, ahead or behind.
    assert!((24 * MS..=27 * MS).contains(&apart), "{apart}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any launches and any start of the counters: of processes that always wait, none is ahead by more than a quantum and a
    /// longest launch.
    #[test]
    fn nobody_is_left_behind(
        costs in proptest::collection::vec(proptest::collection::vec(1..5 * MS, 1..20), 2..8),
        start_ns in any::<u64>(),
        now_ns in 0..u64::MAX / 2,
    ) {
        let (queue, all) = (Queue::default(), members(costs.len()));
        queue.clock_ns.store(start_ns, Ordering::Relaxed);
        for member in &all {
            member.had_ns.store(start_ns, Ordering::Relaxed);
        }
        let mut had = vec![0_u64; costs.len()];
        let mut turn = vec![0_usize; costs.len()];
        for _ in 0..if cfg!(miri) { 30 } else { 200 } {
            let waiting: Vec<_> = all.iter().zip(&costs).zip(&turn)
                .map(|((member, costs), turn)| (member, costs[turn % costs.len()]))
                .collect();
            for (member, cost_ns) in &waiting {
                queue.come(member, *cost_ns);
                queue.wait(member, *cost_ns, now_ns);
            }
            let slot = first(&queue, &waiting, now_ns);
            queue.take(&all[slot], waiting[slot].1);
            queue.leave(slot);
            had[slot] += waiting[slot].1;
            turn[slot] += 1;
            let apart = had.iter().max().unwrap() - had.iter().min().unwrap();
            prop_assert!(apart <= QUANTUM_NS + 5 * MS, "{apart}");
        }
    }

    /// Invalid words delay a process only for a bounded time.
    #[test]
    fn nonsense_is_not_believed_for_long(
        words in proptest::collection::vec(any::<u64>(), 1..8),
        clock_ns in any::<u64>(),
        now_ns in 0..u64::MAX / 2,
        cost_ns in any::<u64>(),
    ) {
        let (queue, all) = (Queue::default(), members(8));
        queue.clock_ns.store(clock_ns, Ordering::Relaxed);
        for (word, value) in queue.places.iter().zip(&words) {
            word.store(*value, Ordering::Relaxed);
        }
        let member = &all[7];
        queue.come(member, cost_ns);
        queue.wait(member, cost_ns, now_ns);
        let longest_ns = 2 * BELIEVED_NS + (1 << UNTIL_SHIFT);
        if let Some(until_ns) = queue.others_until(member, cost_ns, SLOTS, now_ns) {
            prop_assert!(until_ns <= now_ns + longest_ns);
        }
        let later_ns = now_ns + longest_ns;
        queue.wait(member, cost_ns, later_ns);
        prop_assert_eq!(queue.others_until(member, cost_ns, SLOTS, later_ns), None);
        prop_assert_eq!(queue.first(SLOTS, later_ns), Some(7));
        queue.take(member, cost_ns);
    }
}
