//! The GPUs' turns, as the arbiter follows them: a little behind the present, when all who were busy have said so.

use std::collections::{BTreeMap, VecDeque};

use vcuda_limiter::Refinement;
use vcuda_limiter::controller::{Busy, Turns, word_at};
use vcuda_region::{DeviceIndex, GpuUuid};

use super::REPORT_LAG_NS;
use crate::arbiter::tenants::Tenants;

/// Age above which a reading is complete (ns): by then, all processes that run have entered their earlier work.
const BEHIND_NS: u64 = 47_000_000;
/// Words of which the maps tell at most: half a round of theirs.
const WORDS_MOST: u64 = 2_000;

#[derive(Debug, Default)]
struct Gpu {
    turns: Turns,
    /// The users whose turns they are, in the order in which `turns` knows them.
    users: Vec<(u64, u64)>,
    /// The next word of the busy maps.
    next: u64,
    /// When the tenants' buckets were read and not taken into account yet (ns), oldest first.
    looks: VecDeque<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    gpus: BTreeMap<GpuUuid, Gpu>,
}

impl Rounds {
    /// Settles what the `users` of a GPU, at their places in `tenants`, were charged against what they got.
    pub(crate) fn settle(
        &mut self,
        tenants: &mut Tenants,
        uuid: GpuUuid,
        users: &[(usize, DeviceIndex)],
        now_ns: u64,
    ) {
        if !Refinement::SliceOrder.is_used() {
            return;
        }
        let gpu = self.gpus.entry(uuid).or_default();
        gpu.looks.push_back(now_ns);
        let mut then_ns = None;
        while let Some(look_ns) = gpu.looks.front().filter(|look_ns| **look_ns + BEHIND_NS <= now_ns) {
            then_ns = Some(*look_ns);
            gpu.looks.pop_front();
        }
        let Some(then_ns) = then_ns else { return };
        let until = word_at(then_ns.saturating_sub(REPORT_LAG_NS));
        let files: Vec<_> =
            users.iter().filter_map(|(at, _)| tenants.get_mut(*at).map(|tenant| tenant.file())).collect();
        if gpu.users != files {
            // Who it was that had the last slice is not known any more; all else is.
            gpu.users = files;
            gpu.turns = Turns::default();
        }
        if until - gpu.next.min(until) > WORDS_MOST {
            gpu.next = until;
        }
        let busy: Vec<Busy> = users
            .iter()
            .map(|(at, device)| {
                let tenant = tenants.get_mut(*at);
                tenant
                    .map_or_else(Busy::default, |tenant| tenant.look_back(*device, (gpu.next, until), now_ns))
            })
            .collect();
        gpu.next = gpu.next.max(until);
        for ((at, device), got) in users.iter().zip(gpu.turns.pass(&busy)) {
            if let Some(tenant) = tenants.get_mut(*at) {
                tenant.settle(*device, got, then_ns);
            }
        }
    }
}
