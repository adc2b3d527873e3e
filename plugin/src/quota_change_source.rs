//! Source of the quota changes that a pod's annotations ask for.

use std::collections::BTreeSet;

use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

/// Source of a pod's quota changes.
#[tonic::async_trait]
pub trait QuotaChangeSource: std::fmt::Debug + Send + Sync {
    /// The quota change for the holder's container. `names` are those of all containers of the pod that hold devices; empty if
    /// they are not known.
    ///
    /// # Errors
    /// An annotation is wrong. The container does not start, and kubelet tries again.
    async fn quota_change(
        &self,
        holder: &v1::Holder,
        names: &BTreeSet<String>,
    ) -> Result<QuotaChange, String>;
}

/// Source without any change, for a node without an API server.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoQuotaChanges;

#[tonic::async_trait]
impl QuotaChangeSource for NoQuotaChanges {
    async fn quota_change(&self, _: &v1::Holder, _: &BTreeSet<String>) -> Result<QuotaChange, String> {
        Ok(QuotaChange::default())
    }
}
