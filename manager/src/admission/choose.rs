//! Choice of GPUs near each other: first by NVLink, then by PCI root, then by NUMA node.

use super::Candidate;
use crate::gpu::Gpu;

/// The `count` GPUs nearest to each other; of equal groups, the first.
pub(super) fn nearest<'a>(candidates: &[Candidate<'a>], count: usize) -> Vec<Candidate<'a>> {
    let mut best: Option<(u32, Vec<Candidate<'a>>)> = None;
    for first in candidates {
        let (score, group) = grown_from(first, candidates, count);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, group));
        }
    }
    best.map(|(_, group)| group).unwrap_or_default()
}

/// The group grown from this GPU by adding the nearest GPU each time, and its total nearness.
fn grown_from<'a>(
    first: &Candidate<'a>,
    candidates: &[Candidate<'a>],
    count: usize,
) -> (u32, Vec<Candidate<'a>>) {
    let mut group = vec![*first];
    let mut total = 0;
    while group.len() < count {
        let mut next: Option<(u32, Candidate<'a>)> = None;
        for candidate in candidates {
            if group.iter().any(|member| member.gpu.uuid == candidate.gpu.uuid) {
                continue;
            }
            let score = group.iter().map(|member| nearness(member.gpu, candidate.gpu)).sum();
            if next.is_none_or(|(most, _)| score > most) {
                next = Some((score, *candidate));
            }
        }
        let Some((score, candidate)) = next else { break };
        total += score;
        group.push(candidate);
    }
    (total, group)
}

fn nearness(one: &Gpu, other: &Gpu) -> u32 {
    let linked = one.nvlinks.contains(&other.uuid) || other.nvlinks.contains(&one.uuid);
    let same_root = !one.pci_root.is_empty() && one.pci_root == other.pci_root;
    let same_node = one.numa_node.is_some() && one.numa_node == other.numa_node;
    100 * u32::from(linked) + 10 * u32::from(same_root) + u32::from(same_node)
}
