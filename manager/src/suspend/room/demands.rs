//! The tenants that want room, in the order in which they are served.

use std::collections::{HashMap, HashSet};

use vcuda_region::GpuUuid;
use vcuda_region::room::ASK_AGAIN_NS;

/// Age of the last request after which a demand is not served: the process has got the memory, or has gone (ns).
const FRESH_NS: u64 = 5 * ASK_AGAIN_NS;
/// Age of the last request after which a demand loses its place (ns). Longer, as a process may get no processor for a while.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// What a tenant wants room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Allocations that the driver refused.
    Allocation,
    /// Its own memory, as it is suspended.
    Resume,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) purpose: Purpose,
    pub(super) gpus: Vec<GpuUuid>,
    pub(super) is_suspendable: bool,
    /// Time of its first request (ns).
    since_ns: u64,
    /// Time of its last request (ns).
    asked_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Demands(HashMap<String, Demand>);

impl Demands {
    pub(super) fn note(
        &mut self,
        id: &str,
        purpose: Purpose,
        gpus: Vec<GpuUuid>,
        is_suspendable: bool,
        now_ns: u64,
    ) {
        let known = self.0.get(id).filter(|known| known.purpose == purpose);
        let since_ns = known.map_or(now_ns, |known| known.since_ns);
        let demand = Demand { purpose, gpus, is_suspendable, since_ns, asked_ns: now_ns };
        self.0.insert(id.to_owned(), demand);
    }

    /// Whether a tenant wants memory beyond what it has.
    pub(super) fn wants_more(&self, id: &str) -> bool {
        let demand = self.0.get(id);
        demand.is_some_and(|demand| demand.purpose == Purpose::Allocation)
    }

    /// Forgets a tenant's demand: the others are served, and its next one is behind theirs.
    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Forgets the demands of tenants that have come back: the next one need not wait until they are old.
    pub(super) fn forget_resumed(&mut self, is_back: impl Fn(&str) -> bool) {
        self.0.retain(|id, demand| demand.purpose == Purpose::Allocation || !is_back(id));
    }

    /// Forgets demands that are asked for no more.
    pub(super) fn forget_old(&mut self, now_ns: u64) {
        self.0.retain(|_, demand| now_ns.saturating_sub(demand.asked_ns) < FORGOTTEN_NS);
    }

    /// The demands to be served now, the first of each GPU: tenants that are not suspendable before others, then in the order
    /// of their first requests. One that is behind another on any of its GPUs waits.
    pub(super) fn first(&self, now_ns: u64) -> Vec<(String, Demand)> {
        let mut all: Vec<(&String, &Demand)> = self.0.iter().collect();
        all.sort_by_key(|(id, demand)| (demand.is_suspendable, demand.since_ns, *id));
        let mut claimed = HashSet::new();
        let mut first = Vec::new();
        for (id, demand) in all {
            let is_free = !demand.gpus.iter().any(|gpu| claimed.contains(gpu));
            claimed.extend(demand.gpus.iter().copied());
            if is_free && now_ns.saturating_sub(demand.asked_ns) < FRESH_NS {
                first.push((id.clone(), demand.clone()));
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn gpus(numbers: &[u8]) -> Vec<GpuUuid> {
        let uuid = |number: &u8| GpuUuid::from_bytes([*number; 16]);
        numbers.iter().map(uuid).collect()
    }

    fn first(demands: &Demands, now_ns: u64) -> Vec<String> {
        demands.first(now_ns).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_first_on_each_gpu_is_served_and_those_that_cannot_be_suspended_before_all() {
        let mut demands = Demands::default();
        demands.note("a", Purpose::Resume, gpus(&[1]), true, MS);
        demands.note("b", Purpose::Allocation, gpus(&[1, 2]), true, 2 * MS);
        demands.note("c", Purpose::Allocation, gpus(&[2]), true, 3 * MS);
        demands.note("d", Purpose::Allocation, gpus(&[3]), true, 3 * MS);
        assert_eq!(first(&demands, 4 * MS), ["a", "d"], "b and c wait for a");
        demands.note("e", Purpose::Allocation, gpus(&[1]), false, 4 * MS);
        assert_eq!(first(&demands, 5 * MS), ["e", "d"]);
    }

    #[test]
    fn a_demand_keeps_its_place_while_it_is_asked_for_and_for_a_second() {
        let mut demands = Demands::default();
        demands.note("a", Purpose::Resume, gpus(&[1]), true, MS);
        demands.note("b", Purpose::Resume, gpus(&[1]), true, 2 * MS);
        demands.note("b", Purpose::Resume, gpus(&[1]), true, 500 * MS);
        assert!(first(&demands, 501 * MS).is_empty(), "a has asked for nothing lately");
        demands.note("a", Purpose::Resume, gpus(&[1]), true, 502 * MS);
        assert_eq!(first(&demands, 503 * MS), ["a"]);
        demands.note("b", Purpose::Resume, gpus(&[1]), true, 1502 * MS);
        demands.forget_old(1503 * MS);
        assert_eq!(first(&demands, 1503 * MS), ["b"]);
        // What is wanted for another purpose is another demand.
        demands.note("c", Purpose::Resume, gpus(&[1]), true, 1504 * MS);
        demands.note("b", Purpose::Allocation, gpus(&[1]), true, 1505 * MS);
        assert_eq!(first(&demands, 1506 * MS), ["c"]);
    }

    #[test]
    fn a_tenant_that_is_back_makes_way_at_once_and_one_that_allocates_does_not() {
        let mut demands = Demands::default();
        demands.note("a", Purpose::Resume, gpus(&[1]), true, MS);
        demands.note("b", Purpose::Allocation, gpus(&[1]), true, 2 * MS);
        demands.note("c", Purpose::Resume, gpus(&[1]), true, 3 * MS);
        demands.forget_resumed(|id| id != "c");
        assert_eq!(first(&demands, 4 * MS), ["b"]);
    }
}
