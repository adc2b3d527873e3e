//! Where it is known what a pod's annotations choose for its containers.

use std::collections::BTreeSet;

use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

/// Who knows what a pod chooses.
#[tonic::async_trait]
pub trait Competitions: std::fmt::Debug + Send + Sync {
    /// What the pod's container chooses. `names` are those of all containers of the pod that hold devices; empty if they are
    /// not known.
    ///
    /// # Errors
    /// A reason that the pod's owner can act on; the container does not start then, and is asked for again.
    async fn of(&self, holder: &v1::Holder, names: &BTreeSet<String>) -> Result<QuotaChange, String>;
}

/// Nobody chooses anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Same;

#[tonic::async_trait]
impl Competitions for Same {
    async fn of(&self, _: &v1::Holder, _: &BTreeSet<String>) -> Result<QuotaChange, String> {
        Ok(QuotaChange::default())
    }
}
