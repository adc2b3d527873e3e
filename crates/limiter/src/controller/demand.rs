//! Demand of a tenant: the part of a GPU that it could use now. Neighbours may borrow the rest.

/// Recent part of [`super::LOOK_BACK_NS`] (ns). A tenant that begins to work shows in it first.
pub const RECENT_NS: u64 = 20_000_000;

/// Busy part of the recent time from which on a tenant is expected to use more if it could (thousandths).
const FULL_PERMILLE: u32 = 800;
/// Tokens below which a waiting launch is taken to wait for tokens, not for work to end (ns).
const HELD_BELOW_NS: i64 = 4_000_000;
/// Constant part of the demand of a lightly used tenant, beyond one and a half times its use, so that it can grow (thousandths).
const ROOM_PERMILLE: u32 = 30;

/// Recent activity of a tenant on a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Busy part of the last 100 ms (thousandths).
    pub busy_permille: u32,
    /// Busy part of the last [`RECENT_NS`] (thousandths).
    pub recent_permille: u32,
    /// Whether a launch waits. A process that is killed while it waits leaves this set.
    pub is_waiting: bool,
    /// Tokens of the bucket (ns of GPU time). A negative number is debt.
    pub tokens_ns: i64,
}

impl Activity {
    /// Demand (thousandths of the GPU): 0 if the tenant is idle, 1000 if it waits for tokens or is busy all the time.
    pub fn demand_permille(self) -> u32 {
        let is_held = self.is_waiting && self.tokens_ns < HELD_BELOW_NS;
        let is_busy = self.busy_permille > 0 || self.recent_permille > 0;
        if is_held || is_busy && (self.tokens_ns < 0 || self.recent_permille >= FULL_PERMILLE) {
            return 1000;
        }
        if !is_busy {
            return 0;
        }
        let used = self.busy_permille.max(self.recent_permille);
        used.saturating_add(used / 2).saturating_add(ROOM_PERMILLE).min(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Activity =
        Activity { busy_permille: 0, recent_permille: 0, is_waiting: false, tokens_ns: 5_000_000 };

    #[test]
    fn the_held_and_the_busy_want_all() {
        let held = Activity { is_waiting: true, tokens_ns: -1, ..IDLE };
        let busy = Activity { busy_permille: 100, recent_permille: 800, ..IDLE };
        let in_debt = Activity { busy_permille: 10, tokens_ns: -1, ..IDLE };
        for activity in [held, busy, in_debt] {
            assert_eq!(activity.demand_permille(), 1000, "{activity:?}");
        }
    }

    #[test]
    fn the_idle_want_nothing_whatever_a_dead_process_left() {
        assert_eq!(IDLE.demand_permille(), 0);
        let left = Activity { is_waiting: true, ..IDLE };
        assert_eq!(left.demand_permille(), 0);
        // The refill pays the debt even if nothing is launched any more.
        let debt = Activity { tokens_ns: -1, ..IDLE };
        assert_eq!(debt.demand_permille(), 0);
    }

    #[test]
    fn who_works_a_little_reaches_the_whole_in_a_few_steps() {
        let mut used = 1;
        for step in 1.. {
            assert!(step <= 12, "{used}");
            used = Activity { busy_permille: used, recent_permille: used, ..IDLE }.demand_permille();
            if used == 1000 {
                break;
            }
        }
    }
}
