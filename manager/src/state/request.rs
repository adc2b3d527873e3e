//! Requests of callers, checked: no value is out of its range.

use vcuda_quota::Quota;
use vcuda_region::GpuUuid;

use crate::admission::Placement;
use crate::bounds::Chosen;
use crate::grant::{GrantId, Holder};

/// A tenant to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Idempotency.
    pub request_id: String,
    /// The caller's name of the tenant.
    pub key: String,
    /// For whom.
    pub holder: Holder,
    /// Amounts of each GPU.
    pub amounts: Quota,
    /// The chosen amounts; the others are defaults.
    pub chosen: Chosen,
    /// The requested GPUs.
    pub asked: Asked,
}

/// GPUs as a caller asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// These, each once.
    Named(Vec<GpuUuid>),
    /// So many different ones.
    Any {
        /// At least one.
        count: usize,
        /// None: as the manager is configured.
        placement: Option<Placement>,
        /// Only these, if any.
        include: Vec<GpuUuid>,
        /// Not those.
        exclude: Vec<GpuUuid>,
    },
}

impl Asked {
    /// Whether `gpus` can be the answer to this.
    #[must_use]
    pub fn is_met_by(&self, gpus: &[GpuUuid]) -> bool {
        match self {
            Self::Named(named) => named == gpus,
            Self::Any { count, .. } => *count == gpus.len(),
        }
    }
}

/// A change of amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resize {
    /// Idempotency.
    pub request_id: String,
    /// The grant.
    pub id: String,
    /// In place of its own.
    pub amounts: Quota,
    /// The chosen amounts; the others are defaults.
    pub chosen: Chosen,
    /// Refused unless the grant is of this generation.
    pub expected_generation: Option<u64>,
}

/// Comparison of a caller's containers with the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Containers without a grant.
    pub unknown_keys: Vec<String>,
    /// Grants without a container, kept for now.
    pub missing: Vec<GrantId>,
    /// Grants that had none for long enough, and are gone.
    pub released: Vec<GrantId>,
}
