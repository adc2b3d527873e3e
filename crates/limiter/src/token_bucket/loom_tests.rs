//! Two threads that change the bucket at the same time.
#![expect(clippy::cast_possible_wrap, reason = "small numbers, and a wrong one fails the test")]

use super::*;
use crate::primitive::counted::{self, standing_still_after};
use loom::sync::Arc;

#[derive(Default)]
struct Shared {
    bucket: TokenBucket,
    meter: Meter,
}

fn settled(shared: &Shared) -> i64 {
    shared.bucket.level_ns() - shared.meter.lease().left_ns
}

#[test]
fn loom_a_launch_while_the_reaper_gives_the_lease_back() {
    counted::model(3, || {
        let shared = Arc::new(Shared::default());
        assert!(!shared.meter.spend(100));
        shared.meter.take(&shared.bucket, 100);
        let reaper = Arc::clone(&shared);
        let reaper = loom::thread::spawn(move || reaper.meter.give_back(&reaper.bucket));
        if !shared.meter.spend(50) {
            shared.meter.take(&shared.bucket, 50);
        }
        reaper.join().unwrap();
        assert_eq!(settled(&shared), 150);
        assert_eq!((shared.meter.in_flight_ns(), shared.meter.launches()), (150, 2));
    });
}

#[test]
fn loom_a_charge_while_another_clamps_is_not_lost() {
    counted::model(3, || {
        let shared = Arc::new(Shared::default());
        let other = Arc::clone(&shared);
        let pace = Pace {
            epoch_ns: 0,
            credit_ns: 1000,
            rate_permille: 0,
            scale_permille: 1000,
            window_ns: 0,
            metered: true,
            contended: false,
        };
        let thread = loom::thread::spawn(move || other.bucket.clamp(&pace, 300, 1000, 0));
        shared.bucket.charge(500);
        thread.join().unwrap();
        // If charged before the clamp, at least 700; if after it, 700 and 500 more.
        assert!(matches!(shared.bucket.level_ns(), 700 | 1200), "{}", shared.bucket.level_ns());
    });
}

#[test]
fn loom_a_kill_between_the_steps_of_a_portion_costs_the_tenant_only() {
    for accesses in 0..6 {
        counted::model(3, move || {
            let shared = Arc::new(Shared::default());
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                standing_still_after(accesses, || {
                    if !other.meter.spend(100) {
                        other.meter.take(&other.bucket, 100);
                    }
                })
            });
            shared.bucket.charge(7);
            thread.join().unwrap();
            shared.meter.give_back(&shared.bucket);
            assert!(settled(&shared) >= 7, "never given");
            assert!(
                settled(&shared) <= 7 + 2 * 100 + LEASE_PART_NS as i64,
                "at most the launch twice and a part"
            );
        });
    }
}

/// Two launches of the tenant that have waited for so long: only one of them goes.
#[test]
fn loom_one_launch_of_two_proceeds_on_debt() {
    counted::model(3, || {
        let shared = Arc::new(Shared::default());
        shared.bucket.admit_on_debt(1_000, 100).unwrap();
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || other.bucket.admit_on_debt(1_100, 100));
        let answers = [shared.bucket.admit_on_debt(1_100, 100), thread.join().unwrap()];
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        assert!(answers.contains(&Err(1_200)), "{answers:?}");
    });
}
