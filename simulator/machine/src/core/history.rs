//! Busy time by sample period, from which NVML's utilization is computed.

use super::row::row;
use crate::layout::as_index;

/// Number of periods kept, including the current one.
pub(crate) const PERIODS: u64 = 8;

row! {
    /// Busy time of the last periods. Period `n` is `n * sample_ns .. (n + 1) * sample_ns` of the machine's clock.
    Busy {
        /// The newest period with an entry.
        period: u64,
        /// Busy ns of the periods, two 32-bit numbers a word, at the period's number modulo `PERIODS`.
        packed: [u64; 4],
    }
}

impl Busy {
    /// Adds the busy time from `start` to `end`.
    pub(crate) fn add(&mut self, start: u64, end: u64, sample_ns: u64) {
        let last = end / sample_ns;
        let mut at = start.max(last.saturating_sub(PERIODS).saturating_mul(sample_ns));
        while at < end {
            let period = at / sample_ns;
            let until = end.min((period + 1).saturating_mul(sample_ns));
            self.turn_to(period);
            self.put(period, self.slot(period).saturating_add(until - at));
            at = until;
        }
    }

    /// Busy time of a period (ns); 0 if it is no longer kept or in the future.
    pub(crate) fn in_period(&self, period: u64) -> u64 {
        let known = period <= self.period && self.period - period < PERIODS;
        if known { self.slot(period) } else { 0 }
    }

    fn turn_to(&mut self, period: u64) {
        let first = self.period.max(period.saturating_sub(PERIODS)) + 1;
        for new in first..=period {
            self.put(new, 0);
        }
        self.period = self.period.max(period);
    }

    fn slot(&self, period: u64) -> u64 {
        let place = period % PERIODS;
        self.packed.get(as_index(place / 2)).map_or(0, |word| (word >> (32 * (place % 2))) & 0xffff_ffff)
    }

    fn put(&mut self, period: u64, ns: u64) {
        let place = period % PERIODS;
        let shift = 32 * (place % 2);
        if let Some(word) = self.packed.get_mut(as_index(place / 2)) {
            *word = (*word & !(0xffff_ffff << shift)) | (ns.min(0xffff_ffff) << shift);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_falls_into_its_periods() {
        let mut busy = Busy::default();
        busy.add(50, 250, 100);
        busy.add(260, 270, 100);
        assert_eq!([0, 1, 2, 3].map(|period| busy.in_period(period)), [50, 100, 60, 0]);
    }

    #[test]
    fn old_periods_are_forgotten() {
        let mut busy = Busy::default();
        busy.add(0, 10, 100);
        busy.add(1_000, 1_010, 100);
        assert_eq!(busy.in_period(0), 0);
        assert_eq!(busy.in_period(2), 0);
        assert_eq!(busy.in_period(10), 10);
        busy.add(0, 1_000_000_000, 100);
        assert_eq!(busy.in_period(9_999_999), 100);
        assert_eq!(busy.in_period(10_000_000), 0);
    }
}
