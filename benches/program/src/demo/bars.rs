//! Two bars for each tenant: GPU time with its cap, memory with its quota.

use std::fmt::Write as _;

use vcuda_cli::render::Snapshot;
use vcuda_quota::{CoreShare, MemorySize};

/// Width of a bar (columns).
const WIDTH: u64 = 40;

/// The bars of all tenants, a line each.
pub(super) fn bars(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for tenant in snapshot.gpus.iter().flat_map(|gpu| &gpu.tenants) {
        let (used, cap) = (tenant.core_used_permille, tenant.core_limit_permille);
        let (memory, quota) = (tenant.memory_used_bytes, tenant.memory_limit_bytes);
        let time = bar(used.into(), 1000, cap.into());
        let share = format!("{}.{} of {} %", used / 10, used % 10, CoreShare(cap).percent());
        let memory_bar = bar(memory, quota, quota);
        let held = format!("{} of {}", MemorySize(memory), MemorySize(quota));
        // A string takes any text.
        let _ = writeln!(text, "  {:<4}time    {time} {share}", tenant.name);
        let _ = writeln!(text, "      memory  {memory_bar} {held}");
    }
    text
}

/// A bar of `used` on a scale up to `whole`, with a mark at `limit`.
fn bar(used: u64, whole: u64, limit: u64) -> String {
    let column = |amount: u64| amount.min(whole) * WIDTH / whole.max(1);
    let (filled, mark) = (column(used), column(limit));
    let cell = |at: u64| match at {
        _ if at == mark => '|',
        _ if at < filled => '#',
        _ => '.',
    };
    (0..=WIDTH).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_in_proportion_and_marked_at_its_limit() {
        assert_eq!(bar(250, 1000, 500), format!("{}{}|{}", "#".repeat(10), ".".repeat(10), ".".repeat(20)));
        assert_eq!(bar(1000, 1000, 1000), format!("{}|", "#".repeat(40)));
        // More than the whole, and a scale of nothing.
        assert_eq!(bar(7, 5, 9), format!("{}|", "#".repeat(40)));
        assert_eq!(bar(7, 0, 0), format!("|{}", ".".repeat(40)));
    }
}
