//! Evidence of tenants' use of GPUs that no tenant wrote (I12): what NVML and the kernel tell the manager.
//!
//! Without it, in an arbiter that is a process, the tenants' own figures are believed within their bounds.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_region::GpuUuid;

/// A tenant, by the name of its directory, on a GPU.
pub type Use = (String, GpuUuid);

/// What is known of a tenant on a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proof {
    /// Number of its processes that NVML lists on the GPU; `None` if that is not known.
    pub processes: Option<usize>,
    /// Its busy map shows far more than NVML does, look after look: for other tenants it is idle.
    pub is_overstated: bool,
}

/// The evidence, and the claims to compare with it. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct Evidence(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    proofs: BTreeMap<Use, Proof>,
    /// Sum of the busy parts that were shown (thousandths), and their number.
    shown: BTreeMap<Use, (u64, u64)>,
}

impl Evidence {
    /// Replaces the evidence by that of a new look.
    pub fn replace(&self, proofs: BTreeMap<Use, Proof>) {
        self.0.lock().proofs = proofs;
    }

    /// Mean busy part of the time by each tenant's busy map since the last call (thousandths). Idle tenants are left out.
    pub fn take_shown(&self) -> BTreeMap<Use, u64> {
        let shown = std::mem::take(&mut self.0.lock().shown);
        let mean = |(of, (sum, count)): (Use, (u64, u64))| (of, sum / count.max(1));
        shown.into_iter().map(mean).collect()
    }

    pub(crate) fn of(&self, of: &Use) -> Proof {
        self.0.lock().proofs.get(of).copied().unwrap_or_default()
    }

    /// Notes the busy part that a busy map shows (thousandths).
    pub(crate) fn note_shown(&self, of: Use, permille: u32) {
        let mut known = self.0.lock();
        let (sum, count) = known.shown.entry(of).or_default();
        *sum = sum.saturating_add(permille.into());
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_is_averaged_between_two_looks() {
        let evidence = Evidence::default();
        let of = ("a".to_owned(), GpuUuid::from_bytes([1; 16]));
        for permille in [1000, 0, 200] {
            evidence.note_shown(of.clone(), permille);
        }
        assert_eq!(evidence.take_shown(), [(of.clone(), 400)].into());
        assert_eq!(evidence.take_shown(), BTreeMap::new());
        assert_eq!(evidence.of(&of), Proof::default());
        let proof = Proof { processes: Some(2), is_overstated: true };
        evidence.replace([(of.clone(), proof)].into());
        assert_eq!(evidence.clone().of(&of), proof);
    }
}
