//! Correction of a tenant's charges.
//!
//! A tenant charges itself at once, by its recent factor ([`super::Scale`]). Its exact part of the GPU is known some time later
//! ([`super::Turns`]). The difference is given back or charged. So in the long run the charge equals the GPU time to the bin, even if
//! the share changes meanwhile.

use std::collections::VecDeque;

use super::Got;
use crate::busy;

/// Delay from which on measured time is too late for the busy maps (ns). Its charge is not corrected.
const LATE_NS: i64 = 20_000_000;
/// Largest outstanding correction (ns), as a tenant may write any figures.
const MOST_NS: i64 = 50_000_000;
/// Divisor of what is owed: a look settles one such part. It is small, as a tenant that goes on after a rest has up to 120 ms of
/// tokens, and what it is charged too little meanwhile comes on top until it is settled.
const PARTS: i64 = 2;
/// Readings that are kept until the busy maps of their time are complete.
const READINGS: usize = 64;

/// Totals of a tenant's measured time and its charge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Measured time whose bins were new in the tenant's busy map (ns).
    pub fresh_ns: u64,
    /// GPU time that was charged for it (ns).
    pub charged_ns: u64,
}

/// A tenant's charges on a GPU, and the outstanding correction.
#[derive(Debug, Default)]
pub struct Settlement {
    /// Readings with their times (ns), oldest first.
    readings: VecDeque<(u64, Measured)>,
    before: Option<Measured>,
    /// Overcharge that is not given back yet (ns); negative if too little was charged.
    owed_ns: i64,
    /// Measured time in none of the evaluated bins (ns).
    unseen_ns: i64,
}

impl Settlement {
    /// Adds a reading of the tenant's totals at `now_ns`.
    pub fn read(&mut self, now_ns: u64, measured: Measured) {
        if self.readings.len() >= READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((now_ns, measured));
    }

    /// Leaves out the time up to the next reading: what was charged then, and what the tenant got, is not compared. What is
    /// owed from before stays so.
    pub fn pause(&mut self) {
        self.readings.clear();
        self.before = None;
    }

    /// Adds the tenant's part of the next bins. Readings up to `entered_ns` include these bins, unless the tenant was late.
    pub fn follow(&mut self, got: Got, entered_ns: u64) {
        let mut reading = None;
        while let Some((_, measured)) = self.readings.front().filter(|(at_ns, _)| *at_ns <= entered_ns) {
            reading = Some(*measured);
            self.readings.pop_front();
        }
        let Some(reading) = reading.or(self.before) else {
            return;
        };
        let Some(before) = self.before.replace(reading) else {
            return;
        };
        // The totals of a new directory start at 0.
        let since = |now: u64, before: u64| now.saturating_sub(before).min(i64::MAX as u64 / 4).cast_signed();
        let fresh_ns = since(reading.fresh_ns, before.fresh_ns);
        let charged_ns = since(reading.charged_ns, before.charged_ns);
        let bin_ns = busy::BIN_NS.cast_signed();
        self.owed_ns = self.owed_ns.saturating_add(charged_ns - got.permille * bin_ns / 1000);
        self.unseen_ns = self.unseen_ns.saturating_add(fresh_ns - got.bins.cast_signed() * bin_ns);
        let late_ns = self.unseen_ns - self.unseen_ns.clamp(-LATE_NS, LATE_NS);
        self.unseen_ns -= late_ns;
        let worth = i128::from(late_ns) * i128::from(charged_ns) / i128::from(fresh_ns.max(1));
        self.owed_ns = self.owed_ns.saturating_sub(i64::try_from(worth).unwrap_or(0));
        self.owed_ns = self.owed_ns.clamp(-MOST_NS, MOST_NS);
    }

    /// Amount to give back now (ns); negative if it is to be charged. It is only a part of the correction, as later bins often reverse
    /// it.
    pub fn due_ns(&self) -> i64 {
        self.owed_ns / PARTS
    }

    /// Notes that `ns` was given back.
    pub fn paid(&mut self, ns: i64) {
        self.owed_ns -= ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIN_NS: u64 = busy::BIN_NS;

    /// Runs steps of 10 ms with this number of busy bins, the tenant's part of each, and the charged part of the time (thousandths).
    /// Returns the total that was given back (ns).
    fn settled(
        settlement: &mut Settlement,
        steps: u64,
        bins: u64,
        permille: i64,
        charged_permille: u64,
    ) -> i64 {
        let mut measured = settlement.before.unwrap_or_default();
        let mut back_ns = 0;
        for step in 1..=steps {
            measured.fresh_ns += bins * BIN_NS;
            measured.charged_ns += bins * BIN_NS * charged_permille / 1000;
            settlement.read(step, measured);
            let got = Got { bins, permille: permille * bins.cast_signed() };
            settlement.follow(got, step);
            let due_ns = settlement.due_ns();
            settlement.paid(due_ns);
            back_ns += due_ns;
        }
        back_ns
    }

    #[test]
    fn in_the_long_run_everyone_pays_what_it_got() {
        for (charged_permille, expected_ns) in [(600, 200_000_000), (500, 0), (400, -200_000_000)] {
            let mut settlement = Settlement::default();
            // The first reading is only the start.
            let back_ns = settled(&mut settlement, 201, 1000, 500, charged_permille);
            let rest_ns = settlement.owed_ns;
            assert_eq!(back_ns + rest_ns, expected_ns, "{charged_permille}");
            assert!(rest_ns.abs() <= 16_000_000, "{rest_ns}");
        }
    }

    #[test]
    fn what_was_entered_too_late_stays_charged() {
        let mut settlement = Settlement::default();
        settlement.read(0, Measured::default());
        settlement.follow(Got::default(), 0);
        // A second whose bins were all too late.
        let measured = Measured { fresh_ns: 1_000_000_000, charged_ns: 500_000_000 };
        settlement.read(1, measured);
        settlement.follow(Got::default(), 1);
        assert_eq!(settlement.owed_ns, 10_000_000, "half of what may yet be seen");
    }

    #[test]
    fn a_reading_of_later_is_left_for_later() {
        let mut settlement = Settlement::default();
        for at_ns in 0..3 {
            settlement.read(at_ns, Measured { fresh_ns: at_ns * 1_000_000, charged_ns: at_ns * 1_000_000 });
        }
        settlement.follow(Got::default(), 0);
        let got = Got { bins: 100, permille: 50_000 };
        settlement.follow(got, 1);
        assert_eq!(settlement.owed_ns, 500_000);
    }

    #[test]
    fn lies_are_bounded() {
        let mut settlement = Settlement::default();
        for (step, word) in [0, u64::MAX, 0, 1 << 63, 7, u64::MAX].into_iter().enumerate() {
            let measured = Measured { fresh_ns: word, charged_ns: word ^ 1 };
            settlement.read(step as u64, measured);
            let got = Got { bins: 1000, permille: -1_000_000 };
            settlement.follow(got, step as u64);
            assert!(settlement.due_ns().abs() <= MOST_NS);
        }
    }
}
