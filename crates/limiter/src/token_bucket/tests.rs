//! The bucket's arithmetic, in virtual time.
#![expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers, and a wrong one fails the test"
)]

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn pace(rate_permille: u32) -> Pace {
    Pace {
        epoch_ns: 1000,
        credit_ns: 0,
        rate_permille,
        scale_permille: 1000,
        window_ns: 2 * MS,
        metered: true,
        contended: false,
    }
}

#[test]
fn credit_is_a_line_and_a_new_rate_continues_it() {
    let line = pace(300);
    assert_eq!(line.credit_at(0), 0);
    assert_eq!(line.credit_at(1000 + 10 * MS), 3 * MS as i64);
    let steeper = line.with_rate(700, 1000 + 10 * MS);
    assert_eq!(steeper.credit_at(1000 + 20 * MS), 10 * MS as i64);
    assert_eq!(steeper.with_rate(0, u64::MAX).rate_permille, 0);
    let extreme = Pace { credit_ns: i64::MAX, rate_permille: 1000, ..line };
    assert_eq!(extreme.credit_at(u64::MAX), i64::MAX);
}

#[test]
fn idle_time_is_not_banked_and_hopeless_debt_is_forgiven() {
    let (bucket, line) = (TokenBucket::default(), pace(500));
    let later = 1000 + 1000 * MS;
    assert_eq!(bucket.clamp(&line, 5 * MS, 100 * MS, later), 0);
    assert_eq!(bucket.tokens(&line, later), 5 * MS as i64);
    bucket.charge(200 * MS as i64);
    assert_eq!(bucket.clamp(&line, 5 * MS, 100 * MS, later), 95 * MS);
    assert_eq!(bucket.tokens(&line, later), -100 * MS as i64);
    assert_eq!(bucket.forgiven_ns(), 95 * MS);
    assert_eq!(bucket.clamp(&line, 5 * MS, 100 * MS, later), 0);
}

#[test]
fn settling_replaces_the_prediction_by_the_scaled_truth() {
    let bucket = TokenBucket::default();
    bucket.charge(100);
    bucket.settle(100, 400, 500);
    assert_eq!(bucket.level_ns(), 200);
    bucket.settle(u64::MAX, u64::MAX, u32::MAX);
}

#[test]
fn one_launch_proceeds_on_debt_in_each_period() {
    let bucket = TokenBucket::default();
    assert_eq!(bucket.admit_on_debt(10 * MS, 4 * MS), Ok(()));
    for now_ns in [10 * MS, 12 * MS, 14 * MS - 1] {
        assert_eq!(bucket.admit_on_debt(now_ns, 4 * MS), Err(14 * MS));
    }
    assert_eq!(bucket.admit_on_debt(14 * MS, 4 * MS), Ok(()));
    assert_eq!(bucket.admit_on_debt(14 * MS, 4 * MS), Err(18 * MS));
}

/// A tenant can write the word, so a time in the future must not block its launches, and must not free them of the limit.
#[test]
fn a_future_time_of_the_last_launch_on_debt_counts_as_none() {
    for written_ns in [10 * MS + 1, u64::MAX] {
        let bucket = TokenBucket::default();
        bucket.debt_admitted_ns.store(written_ns, Ordering::Relaxed);
        assert_eq!(bucket.admit_on_debt(10 * MS, 4 * MS), Ok(()));
        assert_eq!(bucket.admit_on_debt(11 * MS, 4 * MS), Err(14 * MS));
    }
}

#[test]
fn a_portion_is_at_most_a_part_and_may_be_nothing() {
    for (portion_ns, taken_ns) in [
        (0, 0),
        (LEASE_PART_NS - 1, LEASE_PART_NS - 1),
        (LEASE_PART_NS + 1, LEASE_PART_NS),
        (u64::MAX, LEASE_PART_NS),
    ] {
        let (bucket, meter) = (TokenBucket::default(), Meter::default());
        assert!(!meter.spend(500));
        meter.take_with(&bucket, 500, portion_ns);
        assert_eq!(meter.lease().left_ns, taken_ns as i64);
        assert_eq!(bucket.level_ns(), 500 + taken_ns as i64);
        assert_eq!(meter.in_flight_ns(), 500);
    }
}

#[test]
fn a_lease_pays_many_launches_and_counts_them() {
    let (bucket, meter) = (TokenBucket::default(), Meter::default());
    assert!(!meter.spend(10_000));
    meter.take(&bucket, 10_000);
    for _ in 0..20 {
        assert!(meter.spend(10_000));
    }
    assert_eq!((meter.launches(), meter.lease().left_ns), (21, 0));
    assert_eq!((meter.in_flight_ns(), meter.in_flight_launches()), (210_000, 21));
    assert!(!meter.spend(1));
    assert_eq!(meter.lease(), Lease { left_ns: -1, launches: 22 });
    meter.refund(1);
    meter.finish(210_000, 21);
    assert_eq!((meter.in_flight_ns(), meter.in_flight_launches(), meter.launches()), (0, 0, 21));
    assert_eq!(bucket.level_ns(), 210_000);
}

#[test]
fn the_count_of_launches_outlives_its_bits() {
    let (bucket, meter) = (TokenBucket::default(), Meter::default());
    let rounds = if cfg!(miri) { 0 } else { 3 << 18 };
    for _ in 0..rounds {
        if !meter.spend(3) {
            meter.take(&bucket, 3);
        }
        meter.finish(3, 1);
    }
    for _ in 0..rounds {
        if !meter.spend(3) {
            meter.take(&bucket, 3);
        }
    }
    assert_eq!(meter.launches(), 2 * rounds);
    assert_eq!(u64::from(meter.in_flight_launches()), rounds);
    assert_eq!(meter.in_flight_ns(), 3 * rounds);
}

#[test]
fn a_prediction_beyond_all_bounds_is_cut() {
    let (bucket, meter) = (TokenBucket::default(), Meter::default());
    assert!(!meter.spend(u64::MAX));
    meter.take(&bucket, u64::MAX);
    assert_eq!(meter.lease(), Lease { left_ns: LEASE_PART_NS as i64, launches: 1 });
    assert_eq!(meter.in_flight_ns(), PREDICTION_MAX_NS);
}

#[test]
fn the_next_owner_of_a_meter_starts_at_zero_and_the_lease_goes_back() {
    let (bucket, meter) = (TokenBucket::default(), Meter::default());
    assert!(!meter.spend(500));
    meter.take(&bucket, 500);
    meter.charged_ns.store(7, Ordering::Relaxed);
    meter.begin(&bucket);
    assert_eq!(bucket.level_ns(), 500, "what was launched stands charged");
    assert_eq!((meter.launches(), meter.in_flight_ns(), meter.lease().left_ns), (0, 0, 0));
    assert_eq!(meter.charged_ns.load(Ordering::Relaxed), 0);
}

#[derive(Debug, Clone)]
enum Act {
    Wait(u64),
    Launch(usize, u64),
    GiveBack(usize),
    Die(usize),
}

const PROCESSES: usize = 3;
const LONGEST_NS: u64 = 3 * MS;
const BURST_NS: u64 = 5 * MS;

#[test]
fn what_is_like_a_known_context_is_told() {
    let bucket = TokenBucket::default();
    assert!(!bucket.is_like_a_context(8), "none is known");
    bucket.note_context(true, 300 << 20);
    assert_eq!((bucket.context_bytes(true), bucket.context_bytes(false)), (300 << 20, 0));
    assert!(bucket.is_like_a_context(304 << 20) && !bucket.is_like_a_context(500 << 20));
}

fn act() -> impl Strategy<Value = Act> {
    let process = 0..PROCESSES;
    prop_oneof![
        3 => (0..2 * MS).prop_map(Act::Wait),
        1 => (0..200 * MS).prop_map(Act::Wait),
        8 => (process.clone(), 0..=LONGEST_NS).prop_map(|(process, ns)| Act::Launch(process, ns)),
        8 => (process.clone(), 0..20_000_u64).prop_map(|(process, ns)| Act::Launch(process, ns)),
        1 => process.clone().prop_map(Act::GiveBack),
        1 => process.prop_map(Act::Die),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// In every window: admitted <= rate * T + burst + a launch and a part in debt + the leases before.
    #[test]
    fn never_more_than_the_rate_and_the_burst(
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 200 }),
        rate in 1..=1000_u32,
    ) {
        let (bucket, line) = (TokenBucket::default(), pace(rate));
        let meters: [Meter; PROCESSES] = Default::default();
        let mut now = line.epoch_ns;
        let mut admitted = vec![(now, 0_u64)];
        let mut clamped = 0;
        let mut total = 0;
        for act in acts {
            match act {
                Act::Wait(ns) => now += ns,
                Act::Launch(process, ns) => {
                    let meter = &meters[process];
                    let mut goes = meter.spend(ns);
                    if !goes {
                        let before = bucket.level_ns();
                        bucket.clamp(&line, BURST_NS, u64::MAX, now);
                        clamped += bucket.level_ns() - before;
                        goes = bucket.tokens(&line, now) > 0;
                        if goes { meter.take(&bucket, ns) } else { meter.refund(ns) }
                    }
                    total += if goes { ns } else { 0 };
                    admitted.push((now, total));
                }
                Act::GiveBack(process) => { meters[process].give_back(&bucket); }
                Act::Die(process) => meters[process].begin(&bucket),
            }
            let leases: i64 = meters.iter().map(|meter| meter.lease().left_ns).sum();
            prop_assert_eq!(bucket.level_ns() - leases, total as i64 + clamped);
            prop_assert!(meters.iter().all(|meter| meter.lease().left_ns >= 0));
        }
        let held = PROCESSES as u64 * (LONGEST_NS + LEASE_PART_NS);
        for (index, (from, before)) in admitted.iter().enumerate() {
            for (until, after) in &admitted[index..] {
                let earned = (until - from) * u64::from(rate) / 1000 + 1;
                prop_assert!(after - before <= earned + BURST_NS + LONGEST_NS + LEASE_PART_NS + held);
            }
        }
    }

    /// Whatever was predicted, in the end the consumed time is the measured time.
    #[test]
    fn the_long_run_error_is_zero(pairs in proptest::collection::vec((0..MS, 0..MS), 0..if cfg!(miri) { 10 } else { 100 })) {
        let (bucket, meter) = (TokenBucket::default(), Meter::default());
        for (predicted, _) in &pairs {
            if !meter.spend(*predicted) {
                meter.take(&bucket, *predicted);
            }
        }
        let predicted: u64 = pairs.iter().map(|pair| pair.0).sum();
        prop_assert_eq!(meter.in_flight_ns(), predicted);
        for (predicted, measured) in &pairs {
            bucket.settle(*predicted, *measured, 1000);
            meter.finish(*predicted, 1);
        }
        meter.give_back(&bucket);
        prop_assert_eq!(bucket.level_ns() as u64, pairs.iter().map(|pair| pair.1).sum::<u64>());
        prop_assert_eq!((meter.in_flight_ns(), meter.in_flight_launches()), (0, 0));
    }
}
