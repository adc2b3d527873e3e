//! A counter that a tenant writes, of which no more is believed than is possible in the time that passed (I12).

use serde::{Deserialize, Serialize};

/// The last value of a counter, and how much it may still grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meter {
    /// The last value; `None` before the first one, which then counts nothing.
    last: Option<u64>,
    room: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// Since the last value.
    pub(super) since_last: u64,
    /// Before it, as counts may come late.
    pub(super) late_max: u64,
}

impl Meter {
    /// The meter of a counter that began at 0 after the last look.
    pub(super) fn from_zero() -> Self {
        Self { last: Some(0), room: 0 }
    }

    /// Forgets the last value of a counter that is not continued.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Takes the counter's value and returns its believed increase. A counter that fell has begun again at 0.
    pub(super) fn advance(&mut self, now: u64, growth: Growth) -> u64 {
        self.room = self.room.min(growth.late_max).saturating_add(growth.since_last);
        let increase = match self.last.replace(now) {
            Some(last) => now.checked_sub(last).unwrap_or(now),
            None => 0,
        };
        let believed = increase.min(self.room);
        self.room -= believed;
        believed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn growth(since_last: u64) -> Growth {
        Growth { since_last, late_max: 100 }
    }

    #[test]
    fn a_counter_counts_from_where_it_was_seen() {
        let mut known_late = Meter::default();
        assert_eq!(known_late.advance(7000, growth(10)), 0);
        assert_eq!(known_late.advance(7005, growth(10)), 5);
        let mut new = Meter::from_zero();
        assert_eq!(new.advance(4, growth(10)), 4);
        assert_eq!(new.advance(3, growth(10)), 3, "it has begun again");
        new.forget();
        assert_eq!(new.advance(50, growth(10)), 0);
    }

    #[test]
    fn late_counts_are_believed_and_impossible_ones_are_not() {
        let mut meter = Meter::from_zero();
        for _ in 0..5 {
            assert_eq!(meter.advance(0, growth(10)), 0);
        }
        assert_eq!(meter.advance(55, growth(10)), 55, "a long kernel has ended");
        assert_eq!(meter.advance(u64::MAX, growth(10)), 15);
        assert_eq!(meter.advance(u64::MAX, growth(10)), 0);
    }

    proptest! {
        #[test]
        fn no_sum_is_greater_than_the_time(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut meter = Meter::from_zero();
            let sum: u64 = values.iter().map(|value| meter.advance(*value, growth(10))).sum();
            prop_assert!(sum <= 10 * values.len() as u64);
        }
    }
}
