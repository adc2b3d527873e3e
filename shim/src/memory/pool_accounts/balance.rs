//! The arithmetic of one pool account: bytes counted for memory that the driver keeps, and for requests on their way
//! to it.
//!
//! The driver takes memory for a pool when a request does not fit into what the pool holds, and gives it back when it
//! sees fit. So each request is *promised* first: if it could make the pool grow beyond what is counted, the growth is
//! counted before the driver is asked. Afterwards the driver says what it holds, and the balance follows. At every instant
//! `charged + granted` is at least what the driver holds, and at least what it will hold once all that is promised has
//! been served.

/// Smallest growth of a pool, until it is seen to grow by more (bytes; the size of a large page).
const STEP: u64 = 2 << 20;
/// Largest growth of a pool at a time (bytes).
const LARGEST_STEP: u64 = 1 << 30;

/// The balance of one pool, in bytes.
#[derive(Debug)]
pub(super) struct Balance {
    /// Counted in the ledger for what is held.
    charged: u64,
    /// The part of `charged` that others give back: pieces that other processes may hold.
    exported: u64,
    /// Requests that are with the driver and may use what is held.
    promised: u64,
    /// Counted in the ledger for the growth that these requests may cause.
    granted: u64,
    /// Graphs only: bytes of all graphs launched since the device's graphs were last idle, as if each had memory of
    /// its own.
    mapped: u64,
    /// Graphs only: incremented when `mapped` starts anew.
    pub(super) epoch: u64,
    step: u64,
    /// Set once the driver grew the pool although free memory seemed to suffice: it keeps pieces apart.
    is_loose: bool,
}

/// The change in the ledger that makes the balance true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Correction {
    /// No change.
    None,
    /// Give back this much.
    Release(u64),
    /// Count this much, which the driver has taken already.
    Charge(u64),
}

impl Balance {
    /// The balance of a pool that holds nothing.
    pub(super) const fn new() -> Self {
        Self {
            charged: 0,
            exported: 0,
            promised: 0,
            granted: 0,
            mapped: 0,
            epoch: 1,
            step: STEP,
            is_loose: false,
        }
    }

    /// Bytes counted for what is held.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// The part of [`Balance::charged`] that is given back here, and not by others.
    pub(super) fn own(&self) -> u64 {
        self.charged.saturating_sub(self.exported)
    }

    /// Leaves it to others to give back `bytes` of the count. Returns `false` if so many are not counted.
    pub(super) fn export(&mut self, bytes: u64) -> bool {
        let is_counted = self.own() >= bytes;
        if is_counted {
            self.exported += bytes;
        }
        is_counted
    }

    /// Takes over `bytes` of what was exported, to be given back here. The caller has counted them in the ledger once
    /// more.
    pub(super) fn take_back(&mut self, bytes: u64) {
        self.exported = self.exported.saturating_sub(bytes);
    }

    /// Whether requests are with the driver.
    pub(super) fn is_busy(&self) -> bool {
        self.promised > 0
    }

    /// Whether there is nothing to follow.
    pub(super) fn is_empty(&self) -> bool {
        self.charged == 0 && self.promised == 0
    }

    /// `bytes`, rounded up to whole steps, as the driver takes memory.
    pub(super) fn steps(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.step).unwrap_or(u64::MAX)
    }

    fn counted(&self) -> u64 {
        self.charged.saturating_add(self.granted)
    }

    /// Growth that a request of `bytes` may cause beyond what is counted, if `used` bytes are in use: the preferred
    /// value, and the least that may do.
    pub(super) fn growth(&self, used: u64, bytes: u64) -> (u64, u64) {
        let all = used.saturating_add(self.promised).saturating_add(bytes);
        let least = self.steps(all).saturating_sub(self.counted());
        let first = if self.is_loose { least.max(self.steps(bytes)) } else { least };
        (first, least)
    }

    /// Growth that the launch of a graph with `bytes` may cause beyond what is counted, whatever else runs. Each
    /// graph has memory of its own at most.
    pub(super) fn growth_of_graph(&self, bytes: u64, is_mapped: bool) -> u64 {
        let new = if is_mapped { 0 } else { bytes };
        let all = self.steps(self.mapped.saturating_add(new));
        all.saturating_sub(self.counted()).min(self.steps(bytes))
    }

    /// Adds a graph of `bytes` to those that are mapped.
    pub(super) fn map(&mut self, bytes: u64) {
        self.mapped = self.mapped.saturating_add(bytes);
    }

    /// Notes that a request of `bytes` goes to the driver. The caller has counted `growth` for it.
    pub(super) fn promise(&mut self, bytes: u64, growth: u64) {
        self.promised = self.promised.saturating_add(bytes);
        self.granted = self.granted.saturating_add(growth);
    }

    /// Notes that the request has come back.
    pub(super) fn fulfil(&mut self, bytes: u64, growth: u64) {
        self.promised = self.promised.saturating_sub(bytes);
        self.granted = self.granted.saturating_sub(growth);
        self.charged = self.charged.saturating_add(growth);
    }

    /// Takes back the `growth` that was counted for a refused request. Returns the bytes to give back.
    pub(super) fn undo(&mut self, growth: u64) -> u64 {
        let undone = growth.min(self.charged);
        self.charged -= undone;
        undone
    }

    /// Learns that the driver holds `missing` bytes more than counted, after a request of `bytes` for which `growth`
    /// was counted. The next requests are counted as the driver takes memory.
    pub(super) fn learn(&mut self, bytes: u64, growth: u64, missing: u64) {
        if growth == 0 {
            self.is_loose = true;
            return;
        }
        while self.steps(bytes) < growth.saturating_add(missing) && self.step < LARGEST_STEP {
            self.step *= 2;
        }
    }

    /// Follows the driver's figures: it holds `held`, of which `used` is in use (0 will do while nothing is
    /// promised).
    pub(super) fn recount(&mut self, held: u64, used: u64) -> Correction {
        // Requests under way may count on memory that was held before: it stays counted.
        let promised = if self.is_busy() {
            self.steps(used.saturating_add(self.promised)).saturating_sub(self.granted)
        } else {
            0
        };
        let needed = held.max(promised).max(self.exported);
        if needed < self.charged {
            let surplus = self.charged - needed;
            self.charged = needed;
            return Correction::Release(surplus);
        }
        match held.saturating_sub(self.counted()) {
            0 => Correction::None,
            missing => {
                self.charged += missing;
                Correction::Charge(missing)
            }
        }
    }

    /// Notes that no graph runs and none has memory that outlives it.
    pub(super) fn graphs_are_idle(&mut self) {
        if !self.is_busy() {
            self.mapped = 0;
            self.epoch += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A request by itself: what is counted for it, and what is given back once the driver holds `held`.
    fn request(balance: &mut Balance, used: u64, bytes: u64, held: u64) -> (u64, Correction) {
        let (growth, _) = balance.growth(used, bytes);
        balance.promise(bytes, growth);
        balance.fulfil(bytes, growth);
        (growth, balance.recount(held, 0))
    }

    #[test]
    fn growth_is_counted_in_steps_and_what_is_held_serves_again() {
        let mut balance = Balance::new();
        assert_eq!(request(&mut balance, 0, 1, 2 * MIB), (2 * MIB, Correction::None));
        assert_eq!(request(&mut balance, 1, MIB, 2 * MIB), (0, Correction::None));
        assert_eq!(request(&mut balance, MIB + 1, MIB, 4 * MIB), (2 * MIB, Correction::None));
        assert_eq!(balance.recount(0, 0), Correction::Release(4 * MIB));
        assert!(balance.is_empty());
    }

    #[test]
    fn what_is_promised_stays_counted_when_the_pool_shrinks_under_it() {
        let mut balance = Balance::new();
        request(&mut balance, 0, 8 * MIB, 8 * MIB);
        // All of it is free again, and a request comes that it can serve.
        assert_eq!(balance.growth(0, 8 * MIB), (0, 0));
        balance.promise(8 * MIB, 0);
        // Another thread synchronises: the driver gives all back before the request reaches it.
        assert_eq!(balance.recount(0, 0), Correction::None);
        balance.fulfil(8 * MIB, 0);
        assert_eq!(balance.recount(8 * MIB, 8 * MIB), Correction::None);
        assert_eq!(balance.charged(), 8 * MIB);
    }

    #[test]
    fn what_is_exported_is_given_back_by_others_until_it_is_taken_back() {
        let mut balance = Balance::new();
        request(&mut balance, 0, 8 * MIB, 8 * MIB);
        assert!(!balance.export(9 * MIB));
        assert!(balance.export(6 * MIB));
        assert!(!balance.export(3 * MIB), "it is not there twice");
        assert_eq!((balance.charged(), balance.own()), (8 * MIB, 2 * MIB));
        // What is free serves as before, and a pool that shrinks gives back no more than its own.
        assert_eq!(balance.growth(6 * MIB, 2 * MIB), (0, 0));
        assert_eq!(balance.recount(MIB, 0), Correction::Release(2 * MIB));
        assert_eq!(balance.recount(8 * MIB, 0), Correction::Charge(2 * MIB));
        // Freed: the pool keeps it, or it is another process's now.
        balance.take_back(4 * MIB);
        assert_eq!(balance.recount(8 * MIB, 0), Correction::None);
        balance.take_back(2 * MIB);
        assert_eq!(balance.recount(6 * MIB, 0), Correction::Release(2 * MIB));
        assert_eq!(balance.own(), 6 * MIB);
    }

    #[test]
    fn two_requests_do_not_share_what_is_free() {
        let mut balance = Balance::new();
        request(&mut balance, 0, 8 * MIB, 8 * MIB);
        assert_eq!(balance.growth(0, 6 * MIB).0, 0);
        balance.promise(6 * MIB, 0);
        assert_eq!(balance.growth(0, 6 * MIB).0, 4 * MIB);
    }

    #[test]
    fn unseen_growth_is_counted_and_learnt_from() {
        let mut balance = Balance::new();
        balance.promise(MIB, 2 * MIB);
        balance.fulfil(MIB, 2 * MIB);
        assert_eq!(balance.recount(32 * MIB, 0), Correction::Charge(30 * MIB));
        balance.learn(MIB, 2 * MIB, 30 * MIB);
        assert_eq!(balance.growth(32 * MIB, MIB).0, 32 * MIB);
        // What seemed to suffice did not: from now on the request is counted in full.
        balance.learn(MIB, 0, 32 * MIB);
        assert_eq!(balance.growth(0, MIB), (32 * MIB, 0));
    }

    #[test]
    fn a_graph_needs_nothing_new_when_it_runs_again() {
        let mut balance = Balance::new();
        assert_eq!(balance.growth_of_graph(6 * MIB, false), 6 * MIB);
        balance.map(6 * MIB);
        balance.promise(6 * MIB, 6 * MIB);
        balance.fulfil(6 * MIB, 6 * MIB);
        assert_eq!(balance.recount(6 * MIB, 6 * MIB), Correction::None);
        assert_eq!(balance.growth_of_graph(6 * MIB, true), 0);
        // A second one may share the first one's memory or not.
        assert_eq!(balance.growth_of_graph(4 * MIB, false), 4 * MIB);
        balance.graphs_are_idle();
        assert_eq!(balance.growth_of_graph(6 * MIB, false), 0);
        assert_eq!(balance.growth_of_graph(8 * MIB, false), 2 * MIB);
    }
}
