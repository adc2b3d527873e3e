//! The decision about a launch: it proceeds now, waits until a time, or waits for work to end.
//!
//! The decision is a pure function of a [`Snapshot`]. The shim takes the snapshot, carries the answer out, and asks again.

/// Most launches in flight of a tenant on a device. It is less than the depth of the driver's launch queue (docs/hardware.md,
/// "depth of the launch queue"), so that a launch waits here, where the wait is bounded, and not in the driver.
pub const LAUNCHES_MAX: u64 = 512;
/// Longest wait for work to end (ns). The work may itself wait for the host, even for the waiting thread.
pub const COMPLETION_WAIT_MAX_NS: u64 = 250_000_000;

/// Inputs of the decision about a launch at a moment. The launch itself is not in flight yet.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    /// Predicted cost of the launch (ns).
    pub cost_ns: u64,
    /// Whether its kernel was never measured, so that the prediction is meaningless.
    pub is_unmeasured: bool,
    /// Time at which the bucket will have tokens for the launch (`CLOCK_MONOTONIC`, ns); `None` if it has them now.
    pub tokens_at_ns: Option<u64>,
    /// Latest end of another process's turn (`CLOCK_MONOTONIC`, ns); `None` if it is this process's turn.
    pub other_first_until_ns: Option<u64>,
    /// Predicted work in flight of all the tenant's processes on the device (ns).
    pub in_flight_ns: u64,
    /// Number of the tenant's launches in flight.
    pub in_flight_launches: u64,
    /// Part of `in_flight_ns` that belongs to other processes of the tenant (ns).
    pub others_in_flight_ns: u64,
    /// Most predicted work in flight (ns).
    pub window_ns: u64,
    /// Whether the launch begins its process's turn among the tenant's processes.
    pub begins_turn: bool,
    /// Time since which the launch waits for work to end (`CLOCK_MONOTONIC`, ns); `None` if it does not.
    pub waits_since_ns: Option<u64>,
}

/// Reason for a wait until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The bucket has no tokens.
    Tokens,
    /// Another process of the tenant has its turn.
    Turn,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The launch proceeds.
    Admit,
    /// The launch waits until a time or a wake-up, then asks again.
    WaitUntil {
        /// Time of the next decision (`CLOCK_MONOTONIC`, ns).
        at_ns: u64,
        /// Reason for the wait.
        reason: Reason,
    },
    /// The launch waits until work in flight has ended, or until a deadline.
    WaitForCompletion {
        /// Predicted work that has to end (ns).
        work_ns: u64,
        /// Time at which it proceeds in any case (`CLOCK_MONOTONIC`, ns).
        deadline_ns: u64,
    },
}

/// Decides about a launch at `now_ns` (`CLOCK_MONOTONIC`).
pub fn admit(launch: &Snapshot, now_ns: u64) -> Admission {
    if let Some(at_ns) = launch.other_first_until_ns {
        let reason = Reason::Turn;
        return Admission::WaitUntil { at_ns, reason };
    }
    if let Some(at_ns) = launch.tokens_at_ns {
        let reason = Reason::Tokens;
        return Admission::WaitUntil { at_ns, reason };
    }
    let Some(work_ns) = work_to_end_ns(launch) else {
        return Admission::Admit;
    };
    let since_ns = launch.waits_since_ns.unwrap_or(now_ns);
    Admission::WaitForCompletion { work_ns, deadline_ns: since_ns.saturating_add(COMPLETION_WAIT_MAX_NS) }
}

/// Predicted work that has to end before the launch may proceed (ns); `None` if it may proceed now.
fn work_to_end_ns(launch: &Snapshot) -> Option<u64> {
    let is_alone = launch.in_flight_launches == 0;
    let wanted_ns = launch.in_flight_ns.saturating_add(launch.cost_ns);
    let is_full = wanted_ns > launch.window_ns || launch.in_flight_launches >= LAUNCHES_MAX;
    if !is_alone && launch.is_unmeasured {
        return Some(launch.in_flight_ns);
    }
    if !is_alone && is_full {
        return Some((wanted_ns.saturating_sub(launch.window_ns)).min(launch.in_flight_ns));
    }
    // If work of two processes overlaps, the length of each is not known, and every switch between them costs GPU time.
    let apart_ns = launch.window_ns / 4;
    (launch.begins_turn && launch.others_in_flight_ns > apart_ns)
        .then(|| launch.others_in_flight_ns - apart_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A launch of 100 us for which there are tokens, alone on the device.
    const FREE: Snapshot = Snapshot {
        cost_ns: MS / 10,
        is_unmeasured: false,
        tokens_at_ns: None,
        other_first_until_ns: None,
        in_flight_ns: 0,
        in_flight_launches: 0,
        others_in_flight_ns: 0,
        window_ns: 2 * MS,
        begins_turn: false,
        waits_since_ns: None,
    };

    fn completion(launch: &Snapshot) -> Option<u64> {
        match admit(launch, 0) {
            Admission::WaitForCompletion { work_ns, .. } => Some(work_ns),
            _ => None,
        }
    }

    #[test]
    fn a_launch_with_tokens_goes() {
        assert_eq!(admit(&FREE, 7), Admission::Admit);
        // A long launch proceeds too if no work is in flight that could end.
        let long = Snapshot { cost_ns: u64::MAX, ..FREE };
        assert_eq!(admit(&long, 7), Admission::Admit);
    }

    #[test]
    fn turns_come_before_tokens_and_tokens_before_room() {
        let full = Snapshot { in_flight_ns: 2 * MS, in_flight_launches: 20, ..FREE };
        let broke = Snapshot { tokens_at_ns: Some(50), ..full };
        let later = Snapshot { other_first_until_ns: Some(60), ..broke };
        let until = |at_ns, reason| Admission::WaitUntil { at_ns, reason };
        assert_eq!(admit(&later, 7), until(60, Reason::Turn));
        assert_eq!(admit(&broke, 7), until(50, Reason::Tokens));
        assert_eq!(completion(&full), Some(MS / 10));
    }

    #[test]
    fn an_unmeasured_kernel_goes_alone() {
        let beside = Snapshot { is_unmeasured: true, in_flight_ns: MS / 2, in_flight_launches: 1, ..FREE };
        assert_eq!(completion(&beside), Some(MS / 2));
        assert_eq!(completion(&Snapshot { is_unmeasured: false, ..beside }), None);
        let alone = Snapshot { is_unmeasured: true, ..FREE };
        assert_eq!(admit(&alone, 7), Admission::Admit);
    }

    /// With room in the window, only the number of launches in flight makes the launch wait.
    #[test]
    fn no_more_launches_are_in_flight_than_the_most() {
        let beside = |in_flight_launches| Snapshot { in_flight_ns: MS, in_flight_launches, ..FREE };
        assert_eq!(admit(&beside(LAUNCHES_MAX - 1), 7), Admission::Admit);
        assert!(completion(&beside(LAUNCHES_MAX)).is_some());
    }

    #[test]
    fn a_turn_begins_once_the_others_have_a_quarter_of_the_window_left() {
        let begins = |others_in_flight_ns, begins_turn| {
            completion(&Snapshot {
                in_flight_ns: others_in_flight_ns,
                in_flight_launches: 1,
                others_in_flight_ns,
                begins_turn,
                ..FREE
            })
        };
        assert_eq!(begins(MS / 2, true), None);
        assert_eq!(begins(MS / 2 + 1, true), Some(1));
        assert_eq!(begins(MS, true), Some(MS / 2));
        assert_eq!(begins(MS, false), None, "a turn that goes on does not wait");
    }

    #[test]
    fn the_deadline_counts_from_the_beginning_of_the_wait() {
        let full = Snapshot {
            in_flight_ns: 2 * MS,
            in_flight_launches: LAUNCHES_MAX,
            waits_since_ns: Some(10 * MS),
            ..FREE
        };
        let deadline_ns = 10 * MS + COMPLETION_WAIT_MAX_NS;
        let answer = admit(&full, 90 * MS);
        assert!(
            matches!(answer, Admission::WaitForCompletion { deadline_ns: at_ns, .. } if at_ns == deadline_ns)
        );
    }

    proptest! {
        /// A launch never waits for more work than is in flight, so that every wait for completion can end.
        #[test]
        fn no_wait_for_more_than_is_in_flight(
            cost_ns in 0_u64..1 << 40, in_flight_ns in 0_u64..1 << 40, others in 0_u64..1 << 40,
            in_flight_launches in 1_u64..2000, window_ns in 0_u64..1 << 34, is_unmeasured: bool, begins_turn: bool,
        ) {
            let launch = Snapshot {
                cost_ns, is_unmeasured, in_flight_ns, in_flight_launches, window_ns, begins_turn,
                others_in_flight_ns: others.min(in_flight_ns),
                ..FREE
            };
            prop_assert!(completion(&launch).is_none_or(|work_ns| work_ns <= in_flight_ns));
        }
    }
}
