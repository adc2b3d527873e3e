//! Rate limit for a tenant's connections and questions: a burst for all its processes starting together, then a realistic
//! rate.

use vcuda_region::MAX_SLOTS;

/// Number allowed in a burst.
const BURST: u64 = 2 * MAX_SLOTS as u64;
/// Refill interval for connections (ns).
const EACH_NS: u64 = 4_000_000;
/// Refill interval for questions (ns).
const EACH_QUESTION_NS: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct Allowance {
    left: u64,
    filled_ns: u64,
    each_ns: u64,
}

impl Allowance {
    /// A full allowance for connections.
    pub(super) fn new(now_ns: u64) -> Self {
        Self { left: BURST, filled_ns: now_ns, each_ns: EACH_NS }
    }

    /// A full allowance for questions to NVML.
    pub(super) fn for_questions(now_ns: u64) -> Self {
        Self { each_ns: EACH_QUESTION_NS, ..Self::new(now_ns) }
    }

    /// Consumes one; `false` if none is left.
    pub(super) fn consume(&mut self, now_ns: u64) -> bool {
        let earned = now_ns.saturating_sub(self.filled_ns) / self.each_ns;
        self.left = self.left.saturating_add(earned).min(BURST);
        self.filled_ns += earned * self.each_ns;
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_at_once_and_then_so_many_a_second() {
        let mut allowance = Allowance::new(0);
        assert!((0..BURST).all(|_| allowance.consume(0)));
        assert!(!allowance.consume(0));
        let taken = (0..10_000_u64).filter(|ms| allowance.consume(ms * 1_000_000)).count();
        assert_eq!(taken, 2499, "in ten seconds");
        let mut questions = Allowance::for_questions(0);
        let asked = (0..20_000_u64).filter(|ms| questions.consume(ms * 1_000_000)).count() as u64;
        assert_eq!(asked, BURST + 1999, "in twenty seconds");
        let mut rested = Allowance { left: 0, ..Allowance::new(0) };
        assert!((0..BURST).all(|_| rested.consume(1 << 40)));
        assert!(!rested.consume(1 << 40));
    }
}
