//! Limits that were lowered below what their tenants used. Such a tenant breaks no limit: it keeps what it has, and gets nothing
//! more until it is below.

use std::collections::HashMap;

use vcuda_region::GpuUuid;

use crate::observe::Snapshot;

/// A tenant's limit on a GPU, as of the last snapshot.
#[derive(Debug, Clone, Copy)]
struct Known {
    limit_bytes: u64,
    /// Memory that the tenant has kept since its limit was lowered (bytes); `None`: it is within its limit, or has never been.
    kept_bytes: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct LoweredLimits {
    known: HashMap<(String, GpuUuid), Known>,
}

impl LoweredLimits {
    /// Takes over the limits and the use of a snapshot.
    pub(super) fn refresh(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.known);
        for tenant in &snapshot.tenants {
            for device in &tenant.devices {
                let key = (tenant.id.clone(), device.gpu);
                let (limit_bytes, used_bytes) = (device.config.memory_limit_bytes, device.used_bytes);
                let known = before.get(&key);
                // At most what it was allowed, whatever it claims to have used then.
                let lowered_from = known.map(|known| known.limit_bytes);
                let lowered_from = lowered_from.filter(|before_bytes| *before_bytes > limit_bytes);
                // What was kept only shrinks: a tenant that grows above its limit again is over it.
                let kept_bytes = match known.and_then(|known| known.kept_bytes) {
                    _ if used_bytes <= limit_bytes => None,
                    Some(kept_bytes) => Some(kept_bytes.min(used_bytes)),
                    None => lowered_from.map(|before_bytes| used_bytes.min(before_bytes)),
                };
                self.known.insert(key, Known { limit_bytes, kept_bytes });
            }
        }
    }

    /// Memory that the tenant has kept above its lowered limit (bytes).
    pub(super) fn kept_bytes(&self, tenant: &str, gpu: GpuUuid) -> Option<u64> {
        self.known.get(&(tenant.to_owned(), gpu))?.kept_bytes
    }
}

#[cfg(test)]
mod tests {
    use vcuda_quota::DeviceConfig;

    use super::*;
    use crate::observe::{Device, Tenant};

    const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);

    #[test]
    fn memory_is_kept_until_it_is_freed() {
        let mut limits = LoweredLimits::default();
        let mut kept = |limit_bytes, used_bytes| {
            let device = Device { used_bytes, ..Device::unused(GPU, DeviceConfig::new(limit_bytes, 1000)) };
            limits.refresh(&Snapshot {
                tenants: vec![Tenant { id: "a".to_owned(), devices: vec![device], ..Tenant::default() }],
                ..Snapshot::default()
            });
            limits.kept_bytes("a", GPU)
        };
        assert_eq!(kept(10, 12), None, "above its limit from the start");
        assert_eq!(kept(10, 8), None);
        assert_eq!(kept(5, 8), Some(8));
        assert_eq!(kept(5, 6), Some(6));
        assert_eq!(kept(5, 9), Some(6), "it has grown");
        assert_eq!(kept(5, 5), None);
        assert_eq!(kept(5, 9), None);
        assert_eq!(kept(8, 8), None);
        assert_eq!(kept(5, 20), Some(8), "it was allowed no more");
    }
}
