//! Tenants whose busy map shows far more GPU time than NVML does. The arbiter divides time by the busy maps, so a neighbour would
//! pay for time that it never lost, or be charged too little (I12).

use std::collections::{BTreeMap, BTreeSet};

use crate::arbiter::{Proof, Use as Claimed};
use vcuda_region::GpuUuid;

use super::findings::{Finding, Owner, Use};
use super::{TIME_OVERSTATED, Utilization};

/// Busy part below which a busy map harms too little to be compared (thousandths).
const LEAST_PERMILLE: u64 = 200;
/// Multiple of NVML's figure beyond which a busy map is not believed: NVML's samples are of another second, and a process may have a
/// few contexts.
const TIMES: u64 = 4;

/// Busy maps of one look, and NVML's utilisation of the same GPUs.
#[derive(Debug, Default)]
pub(super) struct Claims {
    shown: BTreeMap<Claimed, u64>,
    /// Host PIDs with percents, of the GPUs of which NVML tells them.
    utilization: BTreeMap<GpuUuid, Vec<(u32, u32)>>,
}

impl Claims {
    /// Those that are large enough to be compared.
    pub(super) fn new(mut shown: BTreeMap<Claimed, u64>, utilization: &Utilization) -> Self {
        shown.retain(|_, permille| *permille >= LEAST_PERMILLE);
        let gpus: BTreeSet<GpuUuid> = shown.keys().map(|(_, gpu)| *gpu).collect();
        let told = gpus.into_iter().filter_map(|gpu| Some((gpu, utilization(&gpu).ok()?)));
        Self { utilization: told.collect(), shown }
    }

    pub(super) fn are_none(&self) -> bool {
        self.shown.is_empty()
    }

    /// Findings of the claims that NVML contradicts, `uses` being all processes that it lists.
    pub(super) fn findings(&self, uses: &[Use]) -> Vec<Finding> {
        let shown = self.shown.iter();
        shown.filter_map(|((tenant, gpu), permille)| self.finding(tenant, *gpu, *permille, uses)).collect()
    }

    fn finding(&self, tenant: &str, gpu: GpuUuid, shown_permille: u64, uses: &[Use]) -> Option<Finding> {
        let on_gpu: Vec<&Use> = uses.iter().filter(|one| one.gpu == gpu).collect();
        let own = on_gpu.iter().filter(|one| owner(one) == Some(tenant)).count();
        // A process of no known tenant may be this one's.
        let is_others = |pid: u32| {
            let of_pid = on_gpu.iter().find(|one| one.host_pid == pid);
            of_pid.and_then(|one| owner(one)).is_some_and(|name| name != tenant)
        };
        let percent = match self.utilization.get(&gpu) {
            Some(told) => {
                told.iter().filter(|(pid, _)| !is_others(*pid)).map(|(_, percent)| u64::from(*percent)).sum()
            }
            None if !on_gpu.is_empty() && on_gpu.iter().all(|one| is_others(one.host_pid)) => 0,
            None => return None,
        };
        // Slices go round all contexts; the busy map shows the time of the whole round.
        let rounds = on_gpu.len().max(1).div_ceil(own.max(1)) as u64;
        if percent * 10 * TIMES * rounds >= shown_permille {
            return None;
        }
        let text = format!(
            "{tenant} shows work for {} % of the time on {gpu}, and NVML shows {percent} %: for other tenants it counts as idle there",
            shown_permille / 10
        );
        Some(Finding::new(TIME_OVERSTATED, Some(tenant), Some(gpu), None, text))
    }
}

fn owner(one: &Use) -> Option<&str> {
    match &one.owner {
        Owner::Attached(name) | Owner::Inside(name) | Owner::Detached(name) => Some(name),
        Owner::Unknown => None,
    }
}

/// Evidence for the arbiter: the number of each tenant's processes on each GPU, unless one there is of no known tenant, and the
/// tenants whose busy maps are `overstated`.
pub(super) fn proofs(uses: &[Use], overstated: BTreeSet<Claimed>) -> BTreeMap<Claimed, Proof> {
    let mut proofs: BTreeMap<Claimed, Proof> = BTreeMap::new();
    let unknown: BTreeSet<GpuUuid> =
        uses.iter().filter(|one| owner(one).is_none()).map(|one| one.gpu).collect();
    for one in uses.iter().filter(|one| !unknown.contains(&one.gpu)) {
        if let Some(name) = owner(one) {
            let proof = proofs.entry((name.to_owned(), one.gpu)).or_default();
            proof.processes = Some(proof.processes.unwrap_or(0) + 1);
        }
    }
    for of in overstated {
        proofs.entry(of).or_default().is_overstated = true;
    }
    proofs
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);

    /// Processes 1 and on, each of a tenant of this name; an empty name is no tenant's.
    fn uses(names: &[&str]) -> Vec<Use> {
        let one = |(host_pid, name): (u32, &&str)| Use {
            gpu: GPU,
            host_pid,
            used_bytes: None,
            owner: match *name {
                "" => Owner::Unknown,
                name => Owner::Attached(name.to_owned()),
            },
        };
        (1..).zip(names).map(one).collect()
    }

    /// Number of findings about tenant `a`, which shows this, where NVML tells this.
    fn findings(permille: u64, told: Result<&[(u32, u32)], String>, names: &[&str]) -> usize {
        let told = told.map(<[(u32, u32)]>::to_vec);
        let claims = Claims::new([(("a".to_owned(), GPU), permille)].into(), &move |_| told.clone());
        claims.findings(&uses(names)).len()
    }

    #[test]
    fn work_that_nvml_does_not_see_is_found_and_a_part_of_many_slices_is_not() {
        let told: &[_] = &[(1, 1), (2, 97)];
        assert_eq!(findings(1000, Ok(told), &["a", "b"]), 1);
        assert_eq!(findings(LEAST_PERMILLE - 1, Ok(&[]), &["a", "b"]), 0);
        // Its slices among those of many contexts.
        assert_eq!(findings(1000, Ok(&[(1, 3), (2, 97)]), &["a", "b", "b", "b", "b", "b", "b", "b", "b"]), 0);
        assert_eq!(findings(1000, Ok(&[(1, 40), (2, 60)]), &["a", "b"]), 0);
    }

    #[test]
    fn what_may_be_the_tenants_own_proves_nothing() {
        assert_eq!(findings(1000, Ok(&[(2, 97)]), &["a", ""]), 0);
        let silent = || Err("not supported".to_owned());
        assert_eq!(findings(1000, silent(), &["a", "b"]), 0);
        assert_eq!(findings(1000, silent(), &["b", ""]), 0);
        assert_eq!(findings(1000, silent(), &[]), 0);
        assert_eq!(findings(1000, silent(), &["b"]), 1, "NVML lists no process of it");
    }

    #[test]
    fn processes_are_known_where_each_has_a_tenant() {
        let of = ("a".to_owned(), GPU);
        let known = proofs(&uses(&["a", "b", "a"]), BTreeSet::new());
        assert_eq!(known[&of].processes, Some(2));
        let unknown = proofs(&uses(&["a", ""]), [of.clone()].into());
        assert_eq!((unknown[&of].processes, unknown[&of].is_overstated), (None, true));
    }
}
