//! Rows of `vcuda top`.

use vcuda_quota::{CoreShare, MemorySize};

use crate::args::SortKey;
use crate::render::{TenantView, clipped};

/// Sorts the tenants of a GPU; equal ones by name, so that rows do not jump.
pub(super) fn sort(tenants: &mut [TenantView], key: SortKey) {
    tenants.sort_by(|a, b| {
        let by_key = match key {
            SortKey::Cores => b.core_used_permille.cmp(&a.core_used_permille),
            SortKey::Memory => b.memory_used_bytes.cmp(&a.memory_used_bytes),
            SortKey::Name => std::cmp::Ordering::Equal,
        };
        by_key.then_with(|| a.name.cmp(&b.name))
    });
}

/// Cells of a tenant's row, except the graph.
pub(super) fn cells(tenant: &TenantView) -> [String; 5] {
    let name = tenant.holder.as_deref().unwrap_or(&tenant.name);
    let used = tenant.core_used_permille;
    [
        clipped(name, 40),
        format!(
            "{} / {}",
            MemorySize(tenant.memory_used_bytes),
            MemorySize(tenant.memory_limit_bytes)
        ),
        format!(
            "{}.{} / {}",
            used / 10,
            used % 10,
            CoreShare(tenant.core_limit_permille)
        ),
        tenant.policy.clone(),
        tenant.memory_denied.to_string(),
    ]
}

/// Used part of memory or time, 0 to 1, for a gauge.
pub(super) fn ratio(used: u64, of: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a bar of some dozen cells")]
    let ratio = used.min(of) as f64 / of.max(1) as f64;
    ratio
}
