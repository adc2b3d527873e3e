//! Checked requests of callers: all values are within their ranges.

use vcuda_quota::Quota;
use vcuda_quota::pods::bounds::Chosen;
use vcuda_region::GpuUuid;

use crate::admission::Placement;
use crate::grant::{GrantId, Holder};
use crate::users::Owner;

/// A tenant to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Id for idempotency.
    pub request_id: String,
    /// The caller's name of the tenant.
    pub key: String,
    /// Pod and container that the grant is for.
    pub holder: Holder,
    /// Quota on each GPU.
    pub amounts: Quota,
    /// The chosen amounts; the others are defaults.
    pub chosen: Chosen,
    /// The requested GPUs.
    pub asked: Asked,
    /// The user whom it counts for.
    pub owner: Option<Owner>,
    /// Whether the tenant may be suspended.
    pub is_suspendable: bool,
    /// Longest wait of an allocation for room (ms); `None`: as long as is usual.
    pub memory_wait_ms: Option<u32>,
    /// Whether it ends when no process uses it any more.
    pub is_transient: bool,
}

/// The GPUs that a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Exactly these, each once.
    Named(Vec<GpuUuid>),
    /// A number of different GPUs.
    Any {
        /// Number of GPUs, at least 1.
        count: usize,
        /// Preference; `None`: as configured.
        placement: Option<Placement>,
        /// The only GPUs to choose from; empty: all.
        include: Vec<GpuUuid>,
        /// GPUs that must not be chosen.
        exclude: Vec<GpuUuid>,
    },
}

impl Asked {
    /// Number of GPUs.
    pub fn count(&self) -> usize {
        match self {
            Self::Named(named) => named.len(),
            Self::Any { count, .. } => *count,
        }
    }

    /// Whether `gpus` fulfils the request.
    pub fn is_met_by(&self, gpus: &[GpuUuid]) -> bool {
        match self {
            Self::Named(named) => named == gpus,
            Self::Any { .. } => self.count() == gpus.len(),
        }
    }
}

/// A change of amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resize {
    /// Id for idempotency.
    pub request_id: String,
    /// Id of the grant.
    pub id: String,
    /// The new quota.
    pub amounts: Quota,
    /// The chosen amounts; the others are defaults.
    pub chosen: Chosen,
    /// Expected generation of the grant; any other is refused.
    pub expected_generation: Option<u64>,
    /// Time after which the lasting amounts come back (milliseconds); `None`: these amounts last.
    pub for_ms: Option<u64>,
    /// The caller, if it may change its own grants only.
    pub owner: Option<Owner>,
}

/// A change whose refusal is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// See [`Create`].
    Create(Create),
    /// See [`Resize`].
    Resize(Resize),
    /// The release of the grant with this id.
    Release(String),
}

/// Comparison of a caller's containers with the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Containers without a grant.
    pub unknown_keys: Vec<String>,
    /// Grants without a container that are kept for now.
    pub missing: Vec<GrantId>,
    /// Grants without a container for long enough, which were released.
    pub released: Vec<GrantId>,
}
