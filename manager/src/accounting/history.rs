//! Sums by hour. The number of rows is bounded: the oldest hours go first.

use std::collections::{BTreeMap, BTreeSet};

use super::{By, Figures, KEPT_S, Rows};

/// Length of a period (s).
pub(super) const HOUR_S: u64 = 3600;
const DAY_HOURS: u64 = 24;
/// Maximum number of rows of one kind in an hour. The others share one.
const HOUR_ROWS_MAX: usize = 1000;
/// Maximum number of rows of a report, which has to fit into an answer of the API. The others share one.
const REPORT_ROWS_MAX: usize = 10_000;
/// Maximum number of rows (about 10 MiB).
const ROWS_MAX: usize = 50_000;
/// Key of the row that all others share.
const OTHERS: &str = "(others)";

/// Usage by hour. Hours and days are numbered since 1970-01-01 UTC.
#[derive(Debug, Default)]
pub(super) struct History {
    hours: BTreeMap<u64, Rows>,
    /// Days that have changed since they were written.
    changed_days: BTreeSet<u64>,
}

/// Hours of a day, as they are stored.
pub(super) type Day = BTreeMap<u64, Rows>;

pub(super) fn day_of(hour: u64) -> u64 {
    hour / DAY_HOURS
}

impl History {
    /// Adds what was used up to `unix_s`.
    pub(super) fn add(&mut self, unix_s: u64, used: &Rows) {
        let hour = unix_s / HOUR_S;
        let rows = self.hours.entry(hour).or_default();
        let changes = [
            add_later(&mut rows.tenants, &used.tenants, HOUR_ROWS_MAX),
            add_later(&mut rows.namespaces, &used.namespaces, HOUR_ROWS_MAX),
            add_later(&mut rows.users, &used.users, HOUR_ROWS_MAX),
        ];
        if changes.contains(&true) {
            self.changed_days.insert(day_of(hour));
        }
        self.forget_old(hour);
    }

    /// Drops hours that are too old, or further in the future than that, as the clock was wrong; then the oldest beyond [`ROWS_MAX`].
    fn forget_old(&mut self, now: u64) {
        let kept = KEPT_S / HOUR_S;
        self.hours.retain(|hour, _| hour.abs_diff(now) <= kept);
        let mut rows: usize = self.hours.values().map(Rows::len).sum();
        while rows > ROWS_MAX && self.hours.len() > 1 {
            let Some((_, dropped)) = self.hours.pop_first() else {
                return;
            };
            rows -= dropped.len();
        }
    }

    /// Rows since the beginning of the hour of `since_s` (s since 1970), with the time from which they are (s).
    pub(super) fn report(&self, by: By, since_s: u64) -> (u64, BTreeMap<String, Figures>) {
        let first = since_s / HOUR_S;
        let mut rows = BTreeMap::new();
        for of_hour in self.hours.range(first..).map(|(_, rows)| rows) {
            add_later(&mut rows, of_hour.of(by), REPORT_ROWS_MAX);
        }
        let oldest = self.hours.keys().next().copied().unwrap_or(first);
        (first.max(oldest).saturating_mul(HOUR_S), rows)
    }

    pub(super) fn restore(&mut self, day: Day) {
        self.hours.extend(day);
    }

    /// The days that are to be written, the oldest first. They count as written then.
    pub(super) fn take_changed(&mut self) -> Vec<(u64, Day)> {
        let days = core::mem::take(&mut self.changed_days);
        let of_day = |day: u64| {
            let hours = self.hours.range(day * DAY_HOURS..(day + 1) * DAY_HOURS);
            hours.map(|(hour, rows)| (*hour, rows.clone())).collect()
        };
        days.into_iter().map(|day| (day, of_day(day))).collect()
    }

    pub(super) fn mark_changed(&mut self, day: u64) {
        self.changed_days.insert(day);
    }

    /// The oldest day that is still kept.
    pub(super) fn oldest_day(&self) -> Option<u64> {
        self.hours.keys().next().map(|hour| day_of(*hour))
    }
}

/// Adds what the same keys used at another time; keys beyond `rows_max` share a row. Returns whether that changed a sum.
fn add_later(
    sums: &mut BTreeMap<String, Figures>,
    used: &BTreeMap<String, Figures>,
    rows_max: usize,
) -> bool {
    let mut has_changed = false;
    for (key, figures) in used {
        let is_room = sums.contains_key(key) || sums.len() < rows_max;
        let key = if is_room { key.as_str() } else { OTHERS };
        match sums.get_mut(key) {
            Some(sum) => {
                let before = *sum;
                sum.add_later(figures);
                has_changed |= *sum != before;
            }
            None => {
                sums.insert(key.to_owned(), *figures);
                has_changed = true;
            }
        }
    }
    has_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 24 * HOUR_S;

    fn used(key: &str, gpu_ns: u64, bytes: u64) -> Rows {
        let figures = Figures { gpu_ns, requested_bytes: 2 * bytes, peak_bytes: bytes, ..Figures::default() };
        Rows { tenants: [(key.to_owned(), figures)].into(), ..Rows::default() }
    }

    #[test]
    fn counts_are_summed_and_memory_is_the_most_at_once() {
        let mut history = History::default();
        history.add(HOUR_S, &used("a", 5, 10));
        history.add(HOUR_S + 7, &used("a", 6, 30));
        history.add(2 * HOUR_S, &used("a", 7, 20));
        history.add(2 * HOUR_S, &used("b", 1, 1));
        let (from, rows) = history.report(By::Tenant, 0);
        assert_eq!(from, HOUR_S);
        assert_eq!((rows["a"].gpu_ns, rows["a"].peak_bytes), (18, 30));
        let (from, rows) = history.report(By::Tenant, 2 * HOUR_S + 5);
        assert_eq!((from, rows["a"].gpu_ns, rows.len()), (2 * HOUR_S, 7, 2));
        assert!(history.report(By::User, 0).1.is_empty());
    }

    #[test]
    fn old_hours_and_those_of_a_wrong_clock_are_dropped() {
        let mut history = History::default();
        history.add(1000 * DAY_S, &used("future", 1, 1));
        history.add(100 * DAY_S, &used("a", 1, 1));
        history.add(101 * DAY_S, &used("b", 1, 1));
        assert_eq!(history.oldest_day(), Some(100));
        history.add(131 * DAY_S + HOUR_S, &used("c", 1, 1));
        let (_, rows) = history.report(By::Tenant, 0);
        assert_eq!(rows.into_keys().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn the_number_of_rows_is_bounded() {
        let mut history = History::default();
        for hour in 0..60 {
            for tenant in 0..HOUR_ROWS_MAX + 20 {
                history.add(hour * HOUR_S, &used(&format!("{hour}-{tenant}"), 1, 1));
            }
        }
        let (from, rows) = history.report(By::Tenant, 0);
        let all: usize = history.hours.values().map(Rows::len).sum();
        assert!(all <= ROWS_MAX && from > 0, "{all}");
        assert!((REPORT_ROWS_MAX..=REPORT_ROWS_MAX + 1).contains(&rows.len()));
        let (_, last) = history.hours.last_key_value().unwrap();
        assert_eq!((last.len(), last.tenants[OTHERS].gpu_ns), (HOUR_ROWS_MAX + 1, 20));
    }

    #[test]
    fn only_changed_days_are_written() {
        let mut history = History::default();
        history.add(0, &used("a", 1, 1));
        history.add(DAY_S, &used("a", 1, 1));
        let changed = history.take_changed();
        assert_eq!(changed.iter().map(|(day, _)| *day).collect::<Vec<_>>(), [0, 1]);
        let mut idle = used("a", 0, 1);
        idle.tenants.get_mut("a").unwrap().requested_bytes = 1;
        history.add(DAY_S, &idle);
        assert!(history.take_changed().is_empty());
        let mut restored = History::default();
        for (_, day) in changed {
            restored.restore(day);
        }
        assert_eq!(restored.report(By::Tenant, 0), history.report(By::Tenant, 0));
    }
}
