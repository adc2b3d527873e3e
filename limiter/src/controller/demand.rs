//! How much of a GPU a tenant could use now: what its neighbours must leave it, and may borrow beyond that.

/// The recent part of [`super::LOOK_BACK_NS`]: who begins to work is seen in it first (ns).
pub const RECENT_NS: u64 = 20_000_000;

/// Busy for so much of the recent time, it would use more if it had more (thousandths).
const FULL_PERMILLE: u32 = 800;
/// The tokens below which a launch that waits does so for its share, and not for work to finish (ns).
const HELD_BELOW_NS: i64 = 4_000_000;
/// What is left to one that works little, beyond half as much again as it uses: room to grow in the next step (thousandths).
const ROOM_PERMILLE: u32 = 30;

/// What was seen of one tenant on one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Part of the last 100 ms in which it had work on the GPU (thousandths).
    pub busy_permille: u32,
    /// Part of the last [`RECENT_NS`] (thousandths).
    pub recent_permille: u32,
    /// A launch of it waits. A process that is killed while it waits leaves this behind.
    pub is_waiting: bool,
    /// What it may still consume; negative is debt (ns of GPU time).
    pub tokens_ns: i64,
}

impl Activity {
    /// What it could use (thousandths of the GPU): 0 if it is idle, 1000 if it is held or busy all the time.
    #[must_use]
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
        used.saturating_add(used / 2)
            .saturating_add(ROOM_PERMILLE)
            .min(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Activity = Activity {
        busy_permille: 0,
        recent_permille: 0,
        is_waiting: false,
        tokens_ns: 5_000_000,
    };

    #[test]
    fn the_held_and_the_busy_want_all() {
        let held = Activity {
            is_waiting: true,
            tokens_ns: -1,
            ..IDLE
        };
        let busy = Activity {
            busy_permille: 100,
            recent_permille: 800,
            ..IDLE
        };
        let in_debt = Activity {
            busy_permille: 10,
            tokens_ns: -1,
            ..IDLE
        };
        for activity in [held, busy, in_debt] {
            assert_eq!(activity.demand_permille(), 1000, "{activity:?}");
        }
    }

    #[test]
    fn the_idle_want_nothing_whatever_a_dead_process_left() {
        assert_eq!(IDLE.demand_permille(), 0);
        let left = Activity {
            is_waiting: true,
            ..IDLE
        };
        assert_eq!(left.demand_permille(), 0);
        // Debt is paid by time, also when nothing is launched any more.
        let debt = Activity {
            tokens_ns: -1,
            ..IDLE
        };
        assert_eq!(debt.demand_permille(), 0);
    }

    #[test]
    fn who_works_a_little_reaches_the_whole_in_a_few_steps() {
        let mut used = 1;
        for step in 1.. {
            assert!(step <= 12, "{used}");
            used = Activity {
                busy_permille: used,
                recent_permille: used,
                ..IDLE
            }
            .demand_permille();
            if used == 1000 {
                break;
            }
        }
    }
}
