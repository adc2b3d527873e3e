//! Bounds of a tenant's claims, by what others than itself know of it (I12).

use std::collections::BTreeSet;

use vcuda_region::DeviceIndex;
use vcuda_region::usage_reader::Work;

use super::Tenant;
use crate::arbiter::evidence::{Evidence, Proof, Use};

/// Contexts that a process may have at work on a GPU. A usual one has one; a few libraries make their own.
const CONTEXTS_A_PROCESS: u64 = 4;

/// Most contexts for which a tenant with these processes counts: some for each that lives and, where that is known, has a context by
/// NVML. A process that stands in several slots is one.
pub(super) fn contexts_most(works: &[Work], is_gone: &dyn Fn(&Work) -> bool, proof: Proof) -> u64 {
    let one = |work: &Work| {
        let identity = work.identity;
        (identity.pid, identity.pid_namespace, identity.start_ticks)
    };
    let known = proof.processes.unwrap_or(usize::MAX);
    let distinct: BTreeSet<_> = match works {
        // Alive or not, it is one.
        [_] => works.iter().map(one).collect(),
        _ => works.iter().filter(|work| !is_gone(work)).map(one).collect(),
    };
    distinct.len().min(known).max(1) as u64 * CONTEXTS_A_PROCESS
}

impl Tenant {
    /// Takes over what is known of the tenant on `device`, and says what its busy map showed at the last look.
    pub(crate) fn note_proof(&mut self, device: DeviceIndex, evidence: &Evidence) {
        let of = self.use_of(device);
        if let (Some(of), Some(state)) = (of, self.devices.get_mut(device.get())) {
            state.proof = evidence.of(&of);
            if let Some(permille) = state.shown_permille.take() {
                evidence.note_shown(of, permille);
            }
        }
    }

    fn use_of(&self, device: DeviceIndex) -> Option<Use> {
        let gpu = self.devices().find(|(own, _)| *own == device)?.1;
        let name = self.path.file_name()?.to_str()?;
        Some((name.to_owned(), gpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vcuda_region::process::Identity;

    fn works(starts: impl Iterator<Item = u64>) -> Vec<Work> {
        let work = |(slot, start_ticks)| Work {
            slot,
            identity: Identity { start_ticks, ..Identity::current().unwrap() },
            state: 7,
            settled_ns: 1,
            launches: 1,
        };
        starts.enumerate().map(work).collect()
    }

    #[test]
    fn contexts_are_bounded_by_living_processes_and_by_those_that_nvml_lists() {
        let lives = |_: &Work| false;
        let unknown = Proof::default();
        let listed = |count| Proof { processes: Some(count), ..unknown };
        let three = works(1..4);
        assert_eq!(contexts_most(&three, &lives, unknown), 12);
        assert_eq!(contexts_most(&three, &lives, listed(2)), 8);
        assert_eq!(contexts_most(&three, &|work| work.slot > 0, unknown), 4);
        // One process in many slots, and none.
        assert_eq!(contexts_most(&works([5; 512].into_iter()), &lives, unknown), 4);
        assert_eq!(contexts_most(&[], &lives, unknown), 4);
    }
}
