//! The grants of the node, as the ledger holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vcuda_region::GpuUuid;

use crate::grant::{Grant, GrantId};

mod text;

/// The state in the ledger. It is copied for each change; unchanged parts are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantTable {
    /// Highest number ever given to a grant.
    pub last_number: u64,
    /// Number of changes so far.
    pub revision: u64,
    /// GPUs that are excluded from placement.
    pub cordoned: BTreeSet<GpuUuid>,
    /// Tenants whose memory is in the host's, by the names of their directories: no GPU memory is kept for them.
    pub suspended: BTreeSet<String>,
    /// By number.
    grants: BTreeMap<u64, Arc<Grant>>,
}

impl GrantTable {
    /// Grants in the order of their numbers.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values()
    }

    /// Number of grants.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether there are no grants.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// The grant with this id.
    pub fn by_id(&self, id: &str) -> Option<&Arc<Grant>> {
        let has_id = |grant: &&Arc<Grant>| grant.id.as_str() == id;
        let by_number = number_of(id).and_then(|number| self.grants.get(&number)).filter(has_id);
        by_number.or_else(|| self.grants().filter(|grant| grant.is_transient).find(has_id))
    }

    /// The grant with this number.
    pub fn by_number(&self, number: u64) -> Option<&Arc<Grant>> {
        self.grants.get(&number)
    }

    /// The grant with this key.
    pub fn by_key(&self, key: &str) -> Option<&Arc<Grant>> {
        self.grants().find(|grant| grant.key == key)
    }

    /// The grant that this request created.
    pub fn by_request(&self, request_id: &str) -> Option<&Arc<Grant>> {
        self.grants().find(|grant| grant.created_by == request_id)
    }

    /// GPUs that grants or cordons name, each with the number of its grants.
    pub fn gpus(&self) -> BTreeMap<GpuUuid, usize> {
        let mut gpus: BTreeMap<GpuUuid, usize> = self.cordoned.iter().map(|gpu| (*gpu, 0)).collect();
        for gpu in self.grants().flat_map(|grant| &grant.gpus) {
            *gpus.entry(*gpu).or_default() += 1;
        }
        gpus
    }

    /// Adds a new grant, or replaces a changed one.
    pub fn put(&mut self, grant: Arc<Grant>) {
        self.last_number = self.last_number.max(grant.number);
        self.grants.insert(grant.number, grant);
    }

    /// Removes a grant and returns it.
    pub fn remove(&mut self, id: &GrantId) -> Option<Arc<Grant>> {
        let number = self.by_id(id.as_str())?.number;
        self.suspended.remove(id.as_str());
        self.grants.remove(&number)
    }
}

/// The number in a grant's id.
pub fn number_of(id: &str) -> Option<u64> {
    let (_, number) = id.rsplit_once('-')?;
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_plain)
}
