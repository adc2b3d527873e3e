//! The choice of the tenant that makes room for another: pure arithmetic.

use std::cmp::Reverse;

use vcuda_quota::Priority;

/// Time without a call after which a tenant counts as idle (ns).
pub(super) const IDLE_NS: u64 = 1_000_000_000;

/// A suspendable tenant with memory on a GPU where room is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resident<'a> {
    pub(super) id: &'a str,
    pub(super) priority: Priority,
    pub(super) weight: u32,
    /// Time since its last call of the driver (ns).
    pub(super) idle_ns: u64,
    /// Time since it came to the GPU (ns).
    pub(super) resident_ns: u64,
}

/// The tenant that wants room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanting {
    pub(super) is_suspendable: bool,
    pub(super) weight: u32,
}

impl Resident<'_> {
    fn is_idle(&self) -> bool {
        self.idle_ns >= IDLE_NS
    }

    /// Whether it has been on the GPU for its time, which is in proportion to its weight: `residence_ns` for equal ones.
    fn has_had_its_time(&self, wanting: Wanting, residence_ns: u64) -> bool {
        let (own, other) = (u128::from(self.weight), u128::from(wanting.weight));
        let both = (own + other).max(1);
        u128::from(self.resident_ns) * both >= u128::from(residence_ns) * 2 * own
    }
}

/// The tenant to suspend; `None` if none may be now.
///
/// Idle tenants go first, then those of lower priority, then the one that has been idle, or on the GPU, for longest. A busy
/// tenant goes at once if the other one is not suspendable, and else when it has had its time.
pub(super) fn choose<'a>(wanting: Wanting, residence_ns: u64, residents: &[Resident<'a>]) -> Option<&'a str> {
    let may_go = |one: &&Resident<'a>| {
        one.is_idle() || !wanting.is_suspendable || one.has_had_its_time(wanting, residence_ns)
    };
    let rank = |one: &&Resident<'a>| {
        let since_ns = if one.is_idle() { one.idle_ns } else { one.resident_ns };
        (!one.is_idle(), one.priority, Reverse(since_ns))
    };
    residents.iter().filter(may_go).min_by_key(rank).map(|one| one.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn resident(id: &'static str, idle_s: u64, resident_s: u64) -> Resident<'static> {
        Resident {
            id,
            priority: Priority::Normal,
            weight: 100,
            idle_ns: idle_s * S,
            resident_ns: resident_s * S,
        }
    }

    fn wanting(is_suspendable: bool, weight: u32) -> Wanting {
        Wanting { is_suspendable, weight }
    }

    #[test]
    fn idle_ones_go_first_then_low_priority_then_the_longest_idle() {
        let mut all = [resident("busy", 0, 90), resident("short", 2, 90), resident("long", 9, 9)];
        let chosen = |all: &[Resident<'static>]| choose(wanting(true, 100), 30 * S, all);
        assert_eq!(chosen(&all), Some("long"));
        all[1].priority = Priority::Low;
        assert_eq!(chosen(&all), Some("short"));
        all[0].priority = Priority::Low;
        assert_eq!(chosen(&all[..1]), Some("busy"));
        assert_eq!(chosen(&all), Some("short"), "busy ones go last");
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_busy_one_stays_for_its_time_unless_the_other_cannot_be_suspended() {
        let all = [resident("new", 0, 29)];
        assert_eq!(choose(wanting(true, 100), 30 * S, &all), None);
        assert_eq!(choose(wanting(false, 100), 30 * S, &all), Some("new"));
        let all = [resident("new", 0, 29), resident("old", 0, 30)];
        assert_eq!(choose(wanting(true, 100), 30 * S, &all), Some("old"));
    }

    #[test]
    fn turns_are_in_proportion_to_the_weights() {
        // Three to one: 45 s and 15 s.
        let mut heavy = resident("heavy", 0, 44);
        heavy.weight = 300;
        assert_eq!(choose(wanting(true, 100), 30 * S, &[heavy]), None);
        heavy.resident_ns = 45 * S;
        assert_eq!(choose(wanting(true, 100), 30 * S, &[heavy]), Some("heavy"));
        let light = |resident_s| [resident("light", 0, resident_s)];
        assert_eq!(choose(wanting(true, 300), 30 * S, &light(14)), None);
        assert_eq!(choose(wanting(true, 300), 30 * S, &light(15)), Some("light"));
    }
}
