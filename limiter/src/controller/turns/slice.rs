//! How long a slice is, as far as the epochs of [`super::Turns`] tell.
//!
//! Nobody tells how long a GPU lets a context run. But where contexts take turns, some epochs are of whole slices, and in
//! others the last slice was of one who is known: at most lengths of a slice these are not what was seen. What fits best is
//! taken, unless what is taken now fits nearly as well.

use std::collections::VecDeque;

use crate::{Refinement, busy};

/// What is taken without evidence: 2 ms, as on the GPUs of which it is told, and a short switch (thousandths of a bin).
pub(super) const DEFAULT: i64 = of_ns(2_020_000);
/// From this to that (thousandths of a bin), each candidate longer than the one before by its 256th part.
const RANGE: (i64, i64) = (of_ns(300_000), of_ns(9_000_000));
const FINENESS: i64 = 256;
/// How much is remembered, and how much is new when it is looked at again.
const REMEMBERED: usize = 128;
const NEWS: usize = 16;
/// Over more slices than so many, a small error makes all the difference.
const SLICES_MOST: i64 = 16;
/// So many bursts that are alike to within half a slice tell something, more of them no more: they fit together, or none does.
const ALIKE_MOST: usize = 3;
/// What fits worse than the best by less is as good (thousandths of the natural logarithm of its likelihood).
const MARGIN: i64 = 4_000;
/// ... and by how much to be taken in place of the present one: short bursts err alike again and again.
const MOVE: i64 = 20_000;

/// Nanoseconds in thousandths of a bin.
const fn of_ns(ns: u64) -> i64 {
    (ns * 1000 / busy::BIN_NS).cast_signed()
}

/// What one epoch says.
#[derive(Debug, Clone, Copy)]
pub(super) enum Evidence {
    /// So long were some whole slices.
    Whole(i64),
    /// After so long one of so many left, who had the first slice of each round (`true`), or one of two who had the second.
    Left(i64, i64, bool),
}

impl Evidence {
    fn length(self) -> i64 {
        let (Self::Whole(length) | Self::Left(length, ..)) = self;
        length
    }

    /// What kind it is: only of the same kind some are alike.
    fn kind(self) -> (i64, bool) {
        match self {
            Self::Whole(_) => (0, false),
            Self::Left(_, count, was_first) => (count, was_first),
        }
    }

    /// How much likelier it is at slices of this length than by chance (thousandths of the natural logarithm).
    fn fit(self, slice: i64) -> i64 {
        if self.length() > SLICES_MOST * slice {
            return 0;
        }
        match self {
            Self::Whole(length) => {
                let tolerance = slice / 16;
                let rest = (length + tolerance) % slice;
                // By chance one of eight.
                if rest <= 2 * tolerance && length > tolerance {
                    2_000
                } else {
                    -2_900
                }
            }
            Self::Left(length, count, was_first) => {
                let (rest, tolerance) = (length % (count * slice), slice / 64);
                let fits = if was_first {
                    rest <= slice + tolerance
                } else {
                    rest >= slice - tolerance
                };
                // By chance one of two, three or more.
                let gain = if count == 2 { 600 } else { 1_000 };
                if fits { gain } else { -2_300 }
            }
        }
    }
}

/// The length of a slice.
#[derive(Debug)]
pub(super) struct Slice {
    length: i64,
    seen: VecDeque<Evidence>,
    news: usize,
}

impl Default for Slice {
    fn default() -> Self {
        Self {
            length: DEFAULT,
            seen: VecDeque::new(),
            news: 0,
        }
    }
}

impl Slice {
    /// The length that is taken (thousandths of a bin).
    pub(super) fn length(&self) -> i64 {
        self.length
    }

    /// Takes an epoch into account.
    pub(super) fn note(&mut self, evidence: Evidence) {
        if !Refinement::SliceLength.is_used() {
            return;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(evidence);
        self.news += 1;
        if self.news >= NEWS {
            self.news = 0;
            self.judge();
        }
    }

    /// Bursts of always the same length fit several lengths of a slice: then none is taken.
    fn judge(&mut self) {
        let mut seen: Vec<Evidence> = self.seen.iter().copied().collect();
        seen.sort_unstable_by_key(|evidence| (evidence.kind(), evidence.length()));
        let candidates = core::iter::successors(Some(RANGE.0), |slice| Some(slice + slice / FINENESS));
        let fits: Vec<(i64, i64)> = candidates
            .take_while(|slice| *slice <= RANGE.1)
            .map(|slice| (slice, fit(&seen, slice)))
            .collect();
        let best = fits.iter().map(|(_, fit)| *fit).max().unwrap_or(0);
        let mut alike = fits
            .iter()
            .filter(|(_, fit)| *fit > best - MARGIN)
            .map(|(slice, _)| *slice);
        let from = alike.next().unwrap_or(self.length);
        let to = alike.next_back().unwrap_or(from);
        if to - from <= from / 8 && best > fit(&seen, self.length) + MOVE {
            self.length = i64::midpoint(from, to);
        }
    }
}

/// How much likelier all of them are at slices of this length than by chance (thousandths of the natural logarithm), of each
/// kind the shortest first.
fn fit(seen: &[Evidence], slice: i64) -> i64 {
    let mut alike = (None, 0);
    let told = seen.iter().map(|evidence| {
        let fit = evidence.fit(slice);
        if fit > 0 {
            let place = Some((evidence.kind(), 2 * evidence.length() / slice));
            alike = (place, if alike.0 == place { alike.1 + 1 } else { 1 });
        }
        if fit > 0 && alike.1 > ALIKE_MOST { 0 } else { fit }
    });
    told.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As bursts of 30 % beside 70 % were seen with kernels of 10 us: they end in the first half of the seventh, eighth and
    /// ninth round. Nearly all of them do so at some other lengths too, and 7 ms were taken: ratio errors of 1.3 to 4 %.
    #[test]
    fn bursts_that_are_alike_do_not_outvote_the_few_that_are_not() {
        let mut slice = Slice::default();
        let rounds = [7, 8, 7, 7, 8, 7, 7, 8, 7, 7, 8, 6].into_iter().cycle();
        for (number, rounds) in (0..400).zip(rounds) {
            let rest = (number * 59 % 110 + 80) * 1000;
            slice.note(Evidence::Left(rounds * 2 * DEFAULT + rest, 2, true));
            assert_eq!(slice.length(), DEFAULT, "after {number}");
        }
    }
}
