//! The arbiter's state of a tenant on one GPU, and which tenants are quiet. A thousand tenants may do nothing, so what has
//! not changed is not read again.

use crate::arbiter::evidence::Proof;
use crate::arbiter::unsettled::Unsettled;
use vcuda_limiter::controller::{Busy, Contexts, Measured, Scale, Settlement};
use vcuda_region::slots::TOUCH_NS;

/// A tenant that has been idle for so long is quiet (ns): a thousand may be, so less is read of each.
const QUIET_AFTER_NS: u64 = 1_000_000_000;
/// A tenant that has been idle for so long may be dormant (ns): when it begins, one of its processes touches `usage`.
const DORMANT_AFTER_NS: u64 = 2_000_000_000;
const _: () = assert!(DORMANT_AFTER_NS >= TOUCH_NS + 500_000_000);
/// The arbiter's state of a tenant on one GPU.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) scale: Scale,
    pub(crate) contexts: Contexts,
    pub(crate) has_several_processes: bool,
    pub(crate) settlement: Settlement,
    pub(crate) unsettled: Unsettled,
    /// What others than the tenant know of it.
    pub(crate) proof: Proof,
    /// Busy part by its busy map at the last look (thousandths), until that is told.
    pub(crate) shown_permille: Option<u32>,
    pub(crate) contended_until_ns: u64,
    /// When it last wanted less than all the time it can get (ns).
    pub(crate) calm_ns: u64,
    /// When its pace was last written (ns).
    pub(crate) written_ns: u64,
    /// It demanded nothing at the last look, and the word that changes when it begins was this.
    pub(crate) idle_at: Option<i64>,
    /// Since when it is, and what it had measured then: nothing was entered since.
    idle_since_ns: u64,
    pub(crate) measured: Measured,
    /// Measured then, of all streams together (ns).
    pub(crate) elapsed_ns: u64,
    /// When its bucket was last read (ns).
    pub(crate) looked_ns: u64,
}

impl State {
    /// Whether it was idle long enough for all that it did before to be gone into, with nothing in flight.
    pub(crate) fn is_quiet(&self, now_ns: u64) -> bool {
        self.idle_at.is_some()
            && !self.unsettled.is_at_work()
            && now_ns >= self.idle_since_ns.saturating_add(QUIET_AFTER_NS)
            && now_ns >= self.contended_until_ns
    }

    /// Whether it has been quiet for so long that its processes report when they begin.
    pub(crate) fn has_been_idle_for_long(&self, now_ns: u64) -> bool {
        self.is_quiet(now_ns) && now_ns >= self.idle_since_ns.saturating_add(DORMANT_AFTER_NS)
    }

    /// The tenant with this busy map.
    pub(crate) fn busy(&self, map: Vec<u64>) -> Busy {
        Busy { map, contexts: self.contexts, has_several_processes: self.has_several_processes }
    }

    /// Hands the tenant's own charges to the settlement. While the arbiter charges for a stopped process, or gives that back,
    /// the busy maps hold time that is not in those charges. So what the tenant got then is not settled. Nor is that of a tenant
    /// whose busy map is not believed.
    pub(crate) fn read(&mut self, now_ns: u64, measured: Measured) {
        if self.unsettled.has_changed() || self.proof.is_overstated {
            self.settlement.pause();
        } else {
            self.settlement.read(now_ns, measured);
        }
    }

    /// Takes over the bucket's figures of a look.
    pub(crate) fn follow(&mut self, idle_at: Option<i64>, measured: Measured, now_ns: u64) {
        if idle_at.is_none() || idle_at != self.idle_at || measured != self.measured {
            self.idle_since_ns = now_ns;
        }
        (self.idle_at, self.measured) = (idle_at, measured);
    }
}
