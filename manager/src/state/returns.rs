//! Tenants whose memory comes back to their GPUs. Where quotas may exceed a GPU, no grant is created or enlarged on these GPUs
//! meanwhile: the look for room did not count it, and a restore without room loses the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_region::GpuUuid;

use super::{DecisionInputs, GrantError};
use crate::grant_table::GrantTable;

/// The tenants that come back, by the names of their directories. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Returns(Arc<Mutex<BTreeSet<String>>>);

impl Returns {
    pub(super) fn current(&self) -> BTreeSet<String> {
        self.0.lock().clone()
    }

    pub(super) fn begin(&self, id: &str) -> Returning {
        self.0.lock().insert(id.to_owned());
        Returning { id: id.to_owned(), returns: self.clone() }
    }
}

/// The return of a tenant, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the return ends when this is dropped"]
pub struct Returning {
    id: String,
    returns: Returns,
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.returns.0.lock().remove(&self.id);
    }
}

impl DecisionInputs<'_> {
    /// Checks that more memory may be granted on these GPUs now.
    ///
    /// # Errors
    /// Quotas may exceed a GPU, and a tenant comes back to one of these.
    pub(super) fn check_returns(&self, grant_table: &GrantTable, gpus: &[GpuUuid]) -> Result<(), GrantError> {
        if !self.rules.may_exceed_memory() {
            return Ok(());
        }
        for id in self.returning {
            let mut own = self.memory_of(grant_table, id).into_iter();
            if let Some((gpu, _)) = own.find(|(gpu, _)| gpus.contains(gpu)) {
                return Err(GrantError::Returning(format!(
                    "{id} comes back to {gpu} now, and could be lost if memory were granted there meanwhile; try again when it \
                     runs (`vcuda smi`)"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vcuda_quota::Quota;
    use vcuda_quota::pods::bounds::{Bounds, Chosen};

    use super::*;
    use crate::admission::Rules;
    use crate::gpu::{Gpu, Inventory};
    use crate::grant::Holder;
    use crate::state::{Asked, Create, Resize};

    const GIB: u64 = 1 << 30;
    const ALL: Chosen = Chosen { policy: true, priority: true, cores_max: true };

    fn uuid(number: u8) -> GpuUuid {
        GpuUuid::from_bytes([number; 16])
    }

    fn amounts(memory_bytes: u64) -> Quota {
        Quota { memory_bytes: Some(memory_bytes), cores_permille: 100, ..Quota::UNLIMITED }
    }

    fn create(key: &str, asked: Asked) -> Create {
        Create {
            request_id: format!("create-{key}"),
            key: key.to_owned(),
            holder: Holder::default(),
            amounts: amounts(4 * GIB),
            chosen: ALL,
            asked,
            owner: None,
            is_suspendable: true,
            memory_wait_ms: None,
            is_transient: false,
        }
    }

    fn resize(id: &str, memory_bytes: u64) -> Resize {
        Resize {
            request_id: format!("resize-{id}-{memory_bytes}"),
            id: id.to_owned(),
            amounts: amounts(memory_bytes),
            chosen: ALL,
            for_ms: None,
            expected_generation: None,
            owner: None,
        }
    }

    /// Has `check` decide on two GPUs with 24 GiB, where the quotas may be `factor_permille` of that.
    fn decide<T>(
        returning: &BTreeSet<String>,
        factor_permille: u32,
        check: impl FnOnce(&DecisionInputs<'_>) -> T,
    ) -> T {
        let rules = Rules { suspendable_overcommit_permille: factor_permille, ..Rules::default() };
        let inventory = Inventory {
            gpus: [1, 2].map(|number| Gpu::new(uuid(number), "simulated", 24 * GIB)).to_vec(),
            ..Inventory::default()
        };
        check(&DecisionInputs {
            rules: &rules,
            bounds: &Bounds::default(),
            inventory: &inventory,
            pending: &BTreeMap::new(),
            returning,
            unix_ms: 0,
        })
    }

    #[test]
    fn nothing_is_granted_on_a_gpu_to_which_a_tenant_comes_back() {
        let returns = Returns::default();
        let mut table = GrantTable::default();
        let on = |number| Asked::Named(vec![uuid(number)]);
        decide(&returns.current(), 2000, |inputs| {
            inputs.create(&mut table, &create("a", on(1))).unwrap();
            inputs.create(&mut table, &create("b", on(1))).unwrap();
        });
        let returning = returns.begin("a-1");
        decide(&returns.current(), 2000, |inputs| {
            let before = table.clone();
            let refused = inputs.create(&mut table, &create("c", on(1))).unwrap_err();
            assert!(matches!(&refused, GrantError::Returning(text) if text.starts_with("a-1 comes back")));
            let refused = inputs.resize(&mut table, &resize("b-2", 5 * GIB)).unwrap_err();
            assert!(matches!(refused, GrantError::Returning(_)), "{refused}");
            assert_eq!(table, before);
            // What takes no more of its memory is granted.
            inputs.create(&mut table, &create("b", on(1))).unwrap();
            inputs.resize(&mut table, &resize("b-2", 3 * GIB)).unwrap();
            inputs.create(&mut table, &create("d", on(2))).unwrap();
        });
        drop(returning);
        decide(&returns.current(), 2000, |inputs| {
            inputs.create(&mut table, &create("c", on(1))).unwrap();
        });
    }

    #[test]
    fn quotas_within_the_gpu_have_room_whatever_comes_back() {
        let returns = Returns::default();
        let _returning = returns.begin("a-1");
        let mut table = GrantTable::default();
        let on = |number| Asked::Named(vec![uuid(number)]);
        decide(&returns.current(), 1000, |inputs| {
            inputs.create(&mut table, &create("a", on(1))).unwrap();
            inputs.create(&mut table, &create("b", on(1))).unwrap();
        });
    }
}
