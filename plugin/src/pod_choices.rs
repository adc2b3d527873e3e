//! Source of the choices that a pod's annotations make for its containers.

use std::collections::BTreeSet;

use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

/// Source of a pod's choices.
#[tonic::async_trait]
pub trait PodChoices: std::fmt::Debug + Send + Sync {
    /// Choices of the pod's container. `names` are those of all containers of the pod that hold devices; empty if they are
    /// not known.
    ///
    /// # Errors
    /// A reason that the pod's owner can act on; the container does not start then, and is asked for again.
    async fn quota_change(
        &self,
        holder: &v1::Holder,
        names: &BTreeSet<String>,
    ) -> Result<QuotaChange, String>;
}

/// No pod chooses anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChoices;

#[tonic::async_trait]
impl PodChoices for NoChoices {
    async fn quota_change(&self, _: &v1::Holder, _: &BTreeSet<String>) -> Result<QuotaChange, String> {
        Ok(QuotaChange::default())
    }
}
