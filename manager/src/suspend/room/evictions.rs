//! The suspensions that make room: those under way, and those that ended lately.

use vcuda_region::GpuUuid;

use super::super::Ended;
use super::demands::Purpose;
use super::figures::Before;
use crate::state::GrantError;

/// Time after a suspension in which its room is to be used (ns). A process may get no processor for a while.
const USE_WITHIN_NS: u64 = 1_000_000_000;

/// A suspension that makes room.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) victim: String,
    /// The tenant that gets the room.
    pub(super) wanting: String,
    pub(super) gpus: Vec<GpuUuid>,
    pub(super) purpose: Purpose,
    /// The figures before the first of the suspensions for the same.
    pub(super) before: Before,
    pub(super) ended: Ended,
    /// Time at which it ended (ns).
    pub(super) ended_ns: Option<u64>,
}

impl Eviction {
    /// Whether its room is for an allocation of this tenant.
    fn serves(&self, id: &str) -> bool {
        self.purpose == Purpose::Allocation && self.wanting == id
    }

    /// Whether it is under way, or ended less than `time_ns` ago.
    fn is_younger(&self, time_ns: u64, now_ns: u64) -> bool {
        self.ended_ns.is_none_or(|ended_ns| now_ns < ended_ns.saturating_add(time_ns))
    }
}

#[derive(Debug, Default)]
pub(super) struct Evictions(Vec<Eviction>);

impl Evictions {
    pub(super) fn add(&mut self, eviction: Eviction) {
        self.0.push(eviction);
    }

    /// Notes which have ended, and tells of each how. One that failed is forgotten.
    pub(super) fn note_ends(&mut self, now_ns: u64, mut tell: impl FnMut(&Eviction, Result<(), GrantError>)) {
        self.0.retain_mut(|one| {
            if one.ended_ns.is_some() {
                return true;
            }
            let Some(ended) = one.ended.borrow().clone() else {
                return true;
            };
            let is_done = ended.is_ok();
            tell(one, ended);
            one.ended_ns = Some(now_ns);
            is_done
        });
    }

    /// Whether one on these GPUs is under way, or ended less than `settle_ns` ago.
    pub(super) fn are_on(&self, gpus: &[GpuUuid], settle_ns: u64, now_ns: u64) -> bool {
        let young = self.0.iter().filter(|one| one.is_younger(settle_ns, now_ns));
        let mut on_gpus = young.flat_map(|one| &one.gpus);
        on_gpus.any(|gpu| gpus.contains(gpu))
    }

    /// The figures before the first suspension for an allocation of this tenant.
    pub(super) fn before(&self, id: &str) -> Option<&Before> {
        self.0.iter().find(|one| one.serves(id)).map(|one| &one.before)
    }

    /// Forgets those whose room had to be used by now. Returns each tenant that had to use some and for which no more is made, with
    /// the figures before.
    pub(super) fn take_old(&mut self, now_ns: u64) -> Vec<(String, Before)> {
        let (young, old): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|one| one.is_younger(USE_WITHIN_NS, now_ns));
        self.0 = young;
        old.into_iter()
            .filter(|one| one.purpose == Purpose::Allocation && self.before(&one.wanting).is_none())
            .map(|one| (one.wanting, one.before))
            .collect()
    }

    /// Forgets those that have ended for an allocation of this tenant. Returns the figures before the first.
    pub(super) fn take_ended(&mut self, id: &str) -> Option<Before> {
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|one| one.serves(id) && one.ended_ns.is_some());
        self.0 = others;
        own.into_iter().next().map(|first| first.before)
    }
}
