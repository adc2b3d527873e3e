//! Measured segments that a table learns from together. A sampled burst of launches on an idle stream is measured in several
//! segments. Bursts between the measured ones are charged as predicted, so the cost of a kernel
//! whose launches differ must become the mean of its launches. Learnt one by one, it would be the mean of its segments.

use super::{Part, Table};

/// Work from which is learnt at once, by prediction or by measurement (ns): the longest segment.
const ENOUGH_NS: u64 = 1_000_000;
/// Most different kernels that are counted separately, in a lesson and in a segment.
pub const PARTS: usize = 6;

impl Table {
    /// Present cost of these launches together (ns).
    pub fn cost_of_parts_ns(&self, parts: &[Part]) -> u64 {
        let costs = parts.iter().map(|part| self.at(part.index).0.saturating_mul(part.count.into()));
        costs.fold(0, u64::saturating_add)
    }
}

/// Measured work that the table has not learnt from.
#[derive(Debug, Default)]
pub struct Lesson {
    parts: [Part; PARTS],
    used: usize,
    took_ns: u64,
    is_cut: bool,
}

impl Lesson {
    /// Creates an empty lesson.
    pub const fn new() -> Self {
        Self { parts: [Part { index: 0, count: 0 }; PARTS], used: 0, took_ns: 0, is_cut: false }
    }

    /// Adds a segment of learnt kernels that took `took_ns`.
    pub fn add(&mut self, table: &Table, parts: &[Part], took_ns: u64) {
        if self.is_cut {
            if took_ns.max(table.cost_of_parts_ns(parts)) < ENOUGH_NS {
                self.skip(took_ns);
                return;
            }
            self.forget();
        }
        if !self.has_room_for(parts) {
            self.learn(table);
        }
        for part in parts {
            self.count(*part);
        }
        self.took_ns = self.took_ns.saturating_add(took_ns);
        if self.took_ns.max(self.predicted_ns(table)) >= ENOUGH_NS {
            self.learn(table);
        }
    }

    /// The burst has ended: learns from all of it.
    pub fn end(&mut self, table: &Table) {
        self.learn(table);
        self.is_cut = false;
    }

    /// A launch waited in the middle of the burst. Neither its beginning nor its end is a fair sample of its launches: nothing is
    /// learnt from its short segments, up to [`ENOUGH_NS`].
    pub fn cut(&mut self) {
        self.forget();
        self.is_cut = true;
    }

    /// Leaves a short segment out. After [`ENOUGH_NS`] of them the stream is busy for so long that all of it is a fair sample.
    fn skip(&mut self, took_ns: u64) {
        self.took_ns = self.took_ns.saturating_add(took_ns);
        if self.took_ns >= ENOUGH_NS {
            self.forget();
        }
    }

    fn learn(&mut self, table: &Table) {
        table.learn(self.seen(), self.predicted_ns(table), self.took_ns);
        self.forget();
    }

    /// Forgets all that was added: the stream is gone.
    pub fn forget(&mut self) {
        *self = Self::new();
    }

    fn seen(&self) -> &[Part] {
        self.parts.get(..self.used).unwrap_or_default()
    }

    fn predicted_ns(&self, table: &Table) -> u64 {
        table.cost_of_parts_ns(self.seen())
    }

    fn has_room_for(&self, parts: &[Part]) -> bool {
        let is_new = |part: &&Part| self.seen().iter().all(|seen| seen.index != part.index);
        let is_countable =
            |part: &Part| self.seen().iter().all(|seen| seen.count.checked_add(part.count).is_some());
        self.used + parts.iter().filter(is_new).count() <= PARTS && parts.iter().all(is_countable)
    }

    /// Counts the launches of a kernel. There is room for it.
    fn count(&mut self, part: Part) {
        let used = self.used;
        let known = self.parts.iter_mut().take(used).find(|seen| seen.index == part.index);
        if let Some(known) = known {
            known.count = known.count.saturating_add(part.count);
        } else if let Some(free) = self.parts.get_mut(used) {
            *free = part;
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, LEARNT, LEAST_NS};
    use super::*;

    /// A table with kernels that take so long, and their indices.
    fn table_of<const N: usize>(costs_ns: [u64; N]) -> (Table, [u16; N]) {
        let table = Table::new();
        let mut handle = 0;
        let indices = costs_ns.map(|cost_ns| {
            handle += 16;
            let key = Key::kernel(handle, 1, 0);
            let index = table.predict(key, key).index;
            for _ in 0..8 * LEARNT {
                table.learn(&[Part { index, count: 1 }], table.at(index).0, cost_ns);
            }
            index
        });
        (table, indices)
    }

    #[test]
    fn a_kernel_costs_the_mean_of_its_launches_however_they_are_cut() {
        let (table, [index]) = table_of([30_000]);
        let mut lesson = Lesson::new();
        // Of each burst the first launch is measured alone: two of 86 us and four of 4.
        for _ in 0..100 {
            for (count, took_ns) in [(1, 86_000), (3, 94_000), (2, 8_000)] {
                lesson.add(&table, &[Part { index, count }], took_ns);
            }
            lesson.end(&table);
        }
        assert!(table.at(index).0.abs_diff(188_000 / 6) < 100, "{}", table.at(index).0);
    }

    #[test]
    fn much_work_is_learnt_at_once() {
        for (cost_ns, took_ns) in [(50_000, 20_000_000), (20_000_000, 50_000)] {
            let (table, [index]) = table_of([cost_ns]);
            let before_ns = table.at(index).0;
            Lesson::new().add(&table, &[Part { index, count: 1 }], took_ns);
            assert_ne!(table.at(index).0, before_ns);
        }
    }

    #[test]
    fn a_part_of_a_burst_that_was_cut_is_no_sample() {
        let (table, [index]) = table_of([30_000]);
        let before_ns = table.at(index).0;
        let short = [Part { index, count: 2 }];
        let mut lesson = Lesson::new();
        lesson.add(&table, &short, 8_000);
        lesson.cut();
        lesson.add(&table, &short, 8_000);
        lesson.end(&table);
        assert_eq!(table.at(index).0, before_ns);
        lesson.cut();
        // A stream that is busy for long has no other beginning.
        for _ in 0..100 {
            lesson.add(&table, &short, ENOUGH_NS / 20);
        }
        let of_long_ns = table.at(index).0;
        assert!(of_long_ns < before_ns, "{of_long_ns}");
        lesson.cut();
        lesson.add(&table, &short, 20 * ENOUGH_NS);
        assert!(table.at(index).0 > 2 * of_long_ns, "a kernel that takes long all at once");
    }

    #[test]
    fn more_kernels_than_it_has_places_for_are_learnt_in_two_lessons() {
        let (table, indices) = table_of([LEAST_NS; 2 * PARTS]);
        let mut lesson = Lesson::new();
        for index in indices {
            lesson.add(&table, &[Part { index, count: 1 }], LEAST_NS);
        }
        lesson.end(&table);
        assert_eq!((lesson.used, lesson.took_ns), (0, 0));
        assert!(indices.iter().all(|index| table.at(*index).1 > 8 * LEARNT));
    }
}
