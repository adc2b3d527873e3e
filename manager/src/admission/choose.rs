//! GPUs near each other: those behind one NVLink, then below one PCI root, then at one NUMA node.

use super::Card;
use crate::gpu::Gpu;

/// `count` of the cards, the nearest to each other; of equals, those that come first.
pub(super) fn nearest<'a>(cards: &[Card<'a>], count: usize) -> Vec<Card<'a>> {
    let mut best: Option<(u32, Vec<Card<'a>>)> = None;
    for first in cards {
        let (score, group) = grown_from(first, cards, count);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, group));
        }
    }
    best.map(|(_, group)| group).unwrap_or_default()
}

/// The group that one begins, each next the nearest to those before it, and how near they are.
fn grown_from<'a>(first: &Card<'a>, cards: &[Card<'a>], count: usize) -> (u32, Vec<Card<'a>>) {
    let mut group = vec![*first];
    let mut total = 0;
    while group.len() < count {
        let mut next: Option<(u32, Card<'a>)> = None;
        for card in cards {
            if group.iter().any(|member| member.gpu.uuid == card.gpu.uuid) {
                continue;
            }
            let score = group.iter().map(|member| nearness(member.gpu, card.gpu)).sum();
            if next.is_none_or(|(most, _)| score > most) {
                next = Some((score, *card));
            }
        }
        let Some((score, card)) = next else { break };
        total += score;
        group.push(card);
    }
    (total, group)
}

fn nearness(one: &Gpu, other: &Gpu) -> u32 {
    let linked = one.nvlinks.contains(&other.uuid) || other.nvlinks.contains(&one.uuid);
    let same_root = !one.pci_root.is_empty() && one.pci_root == other.pci_root;
    let same_node = one.numa_node.is_some() && one.numa_node == other.numa_node;
    100 * u32::from(linked) + 10 * u32::from(same_root) + u32::from(same_node)
}
