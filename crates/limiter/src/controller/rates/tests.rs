use super::*;
use proptest::prelude::*;

fn contender(policy: Policy, guarantee: u32, cap: u32, demand: u32) -> Contender {
    Contender {
        policy,
        guarantee_permille: guarantee,
        cap_permille: cap,
        weight: guarantee.max(1),
        priority: Priority::Normal,
        demand_permille: demand,
    }
}

fn fixed(cap: u32, demand: u32) -> Contender {
    contender(Policy::Fixed, cap, cap, demand)
}

fn burst(guarantee: u32, cap: u32, demand: u32) -> Contender {
    contender(Policy::Burst, guarantee, cap, demand)
}

fn effort(demand: u32) -> Contender {
    contender(Policy::BestEffort, 0, 1000, demand)
}

fn with(priority: Priority, one: Contender) -> Contender {
    Contender { priority, ..one }
}

#[test]
fn fixed_shares_that_fit_are_kept_whatever_anybody_does() {
    assert_eq!(rates(&[fixed(300, 1000), fixed(700, 1000)]), [300, 700]);
    assert_eq!(rates(&[fixed(300, 0), fixed(400, 30), fixed(100, 1000)]), [300, 400, 100]);
    let others = [burst(300, 1000, 1000), with(Priority::High, effort(1000))];
    assert_eq!(rates(&[&[fixed(300, 1000)][..], &others].concat())[0], 300);
}

#[test]
fn burst_borrows_what_is_idle_up_to_its_cap() {
    assert_eq!(rates(&[fixed(300, 1000), burst(200, 800, 1000)]), [300, 700]);
    assert_eq!(rates(&[fixed(300, 0), burst(200, 800, 1000)]), [300, 800]);
    // By weight beyond the guarantees.
    assert_eq!(rates(&[burst(200, 1000, 1000), burst(100, 1000, 1000)]), [667, 333]);
    // Most of a hardly used guarantee goes to others; its owner gets it back at once.
    assert_eq!(rates(&[burst(600, 1000, 100), burst(200, 1000, 1000)]), [750, 900]);
}

#[test]
fn best_effort_comes_after_all_others() {
    assert_eq!(rates(&[fixed(300, 1000), effort(1000)]), [300, 700]);
    assert_eq!(rates(&[fixed(300, 0), burst(200, 800, 1000), effort(1000)]), [297, 800, 200]);
    assert_eq!(rates(&[fixed(300, 1000), burst(200, 800, 1000), effort(1000)]), [297, 693, 10]);
}

#[test]
fn a_hundred_percent_is_all_that_others_leave() {
    assert_eq!(rates(&[fixed(1000, 1000)]), [1000]);
    assert_eq!(rates(&[fixed(1000, 1000), fixed(300, 1000)]), [700, 300]);
    assert_eq!(rates(&[fixed(1000, 1000), burst(300, 1000, 1000)]), [700, 300]);
    assert_eq!(rates(&[fixed(1000, 1000), fixed(1000, 1000)]), [500, 500]);
    assert_eq!(rates(&[fixed(1000, 1000), effort(1000)]), [990, 10]);
    assert_eq!(rates(&[fixed(1000, 1000), fixed(300, 0)]), [1000, 300]);
}

#[test]
fn a_low_priority_yields_and_is_not_starved() {
    let [low, high] = [Priority::Low, Priority::High].map(|priority| with(priority, fixed(1000, 1000)));
    assert_eq!(rates(&[low, high]), [10, 990]);
    assert_eq!(rates(&[low, fixed(1000, 1000), high]), [5, 5, 990]);
    // Guarantees that fit are met; the lower priority loses the rest.
    assert_eq!(
        rates(&[with(Priority::Low, fixed(300, 1000)), with(Priority::High, fixed(700, 1000))]),
        [300, 700]
    );
    assert_eq!(
        rates(&[with(Priority::Low, fixed(600, 1000)), with(Priority::High, fixed(700, 1000))]),
        [300, 700]
    );
    // A higher priority with little demand takes little.
    let light = with(Priority::High, fixed(1000, 150));
    assert_eq!(rates(&[low, light]), [850, 990]);
}

#[test]
fn promises_beyond_the_gpu_are_cut_in_proportion() {
    assert_eq!(rates(&[fixed(800, 1000), fixed(800, 1000)]), [500, 500]);
    assert_eq!(rates(&[fixed(900, 1000), burst(300, 1000, 1000)]), [750, 250]);
}

#[test]
fn weights_divide_what_nobody_was_promised() {
    let weighted = |weight, one| Contender { weight, ..one };
    assert_eq!(rates(&[weighted(100, effort(1000)), weighted(300, effort(1000))]), [250, 750]);
    assert_eq!(
        rates(&[weighted(1, burst(200, 1000, 1000)), weighted(2, burst(200, 1000, 1000))]),
        [400, 600]
    );
}

fn any_contender() -> impl Strategy<Value = Contender> {
    (
        (0..3_usize, 0..3_usize),
        (0..=1000_u32, 1..=1000_u32),
        1..=10_000_u32,
        prop_oneof![Just(0_u32), Just(1000), 1..=1000_u32],
    )
        .prop_map(|((policy, priority), (guarantee, cap), weight, demand)| Contender {
            policy: Policy::ALL[policy],
            guarantee_permille: guarantee.min(cap),
            cap_permille: cap,
            weight,
            priority: Priority::ALL[priority],
            demand_permille: demand,
        })
}

/// Least part of a share that remains after the deduction for starving tenants.
fn kept(share: u32) -> u32 {
    (share * (1000 - FLOOR_PERMILLE) / 1000).saturating_sub(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]

    /// The use never exceeds the GPU, and each rate is between 1 and the tenant's cap.
    #[test]
    fn no_more_is_given_than_there_is(contenders in prop::collection::vec(any_contender(), 0..10)) {
        let rates = rates(&contenders);
        let mut used = 0;
        for (rate, one) in rates.iter().zip(&contenders) {
            prop_assert!((1..=one.cap_permille).contains(rate));
            used += rate.min(&one.demand_permille);
        }
        prop_assert!(used <= 1000 + FLOOR_PERMILLE, "{used} {rates:?}");
        if contenders.iter().all(|one| matches!(one.demand_permille, 0 | 1000)) {
            prop_assert!(used <= 1000, "{used} {rates:?}");
        }
    }

    /// A guarantee is met beside any other tenants, as long as the demanded guarantees fit: to 99 percent if another tenant would
    /// starve, else in full.
    #[test]
    fn promises_that_fit_are_kept(contenders in prop::collection::vec(any_contender(), 0..10)) {
        let rates = rates(&contenders);
        for (place, (rate, one)) in rates.iter().zip(&contenders).enumerate() {
            let others: u32 = contenders
                .iter()
                .enumerate()
                .filter(|(other, two)| *other != place && two.priority >= one.priority)
                .map(|(_, two)| two.promise().min(two.demand_permille))
                .sum();
            if others + one.promise() <= 1000 {
                prop_assert!(*rate >= kept(one.promise()), "{one:?} {rates:?}");
            }
        }
    }

    /// Each tenant gets at least the lesser of its part of the floor and its demand.
    #[test]
    fn nobody_starves(contenders in prop::collection::vec(any_contender(), 1..10)) {
        let part = FLOOR_PERMILLE / u32::try_from(contenders.len()).unwrap();
        for (rate, one) in rates(&contenders).iter().zip(&contenders) {
            let demand = if one.demand_permille == 0 { 1000 } else { one.demand_permille };
            prop_assert!(*rate >= part.min(one.cap_permille).min(demand), "{one:?}");
        }
    }

    /// No time is left over that a tenant could use.
    #[test]
    fn nothing_is_left_over(contenders in prop::collection::vec(any_contender(), 1..10)) {
        let given: u32 = feed_the_starved(&contenders, allot(&contenders)).iter().sum();
        let wanted: u32 = contenders.iter().map(|one| one.demand_permille.min(one.cap_permille)).sum();
        prop_assert_eq!(given, wanted.min(1000));
    }

    /// A tenant gets more than its guarantee only if no tenant of a higher priority, or of an earlier policy of the same priority,
    /// could use it.
    #[test]
    fn the_lower_wait_for_the_higher(contenders in prop::collection::vec(any_contender(), 1..10)) {
        let given = feed_the_starved(&contenders, allot(&contenders));
        for (one, got) in contenders.iter().zip(&given) {
            if *got <= one.promise().min(one.demand_permille).max(FLOOR_PERMILLE) {
                continue;
            }
            for (two, had) in contenders.iter().zip(&given).filter(|(two, _)| two.rank() < one.rank()) {
                prop_assert!(*had >= kept(two.demand_permille.min(two.cap_permille)), "{one:?} before {two:?}: {given:?}");
            }
        }
    }

    /// A tenant does not get more by demanding less.
    #[test]
    fn asking_less_gives_no_more(contenders in prop::collection::vec(any_contender(), 1..8), less in 0..=1000_u32) {
        let before = rates(&contenders)[0];
        let mut modest = contenders;
        modest[0].demand_permille = modest[0].demand_permille.min(less);
        // By rounding, a tenant pays at most one thousandth more for starving ones.
        prop_assert!(rates(&modest)[0] <= before + 1);
    }
}
