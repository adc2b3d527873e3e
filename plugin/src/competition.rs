//! How a pod's container competes for GPU time: what of its amounts is no count of devices.

use vcuda_manager_api::v1;

use crate::annotations::Choice;

/// Policy, priority and weight of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Competition {
    /// docs/policies.md.
    pub policy: v1::Policy,
    /// Who comes first.
    pub priority: v1::Priority,
    /// Under `burst`, the most that it has (thousandths); 0: all.
    pub cores_max_permille: u32,
    /// Its part of what nobody was promised, 1 to 10000; 0: as its cores.
    pub weight: u32,
}

impl Default for Competition {
    fn default() -> Self {
        Self {
            policy: v1::Policy::Fixed,
            priority: v1::Priority::Normal,
            cores_max_permille: 0,
            weight: 0,
        }
    }
}

/// Who knows what a pod chooses.
#[tonic::async_trait]
pub trait Competitions: std::fmt::Debug + Send + Sync {
    /// What the pod's container chooses.
    ///
    /// # Errors
    /// A reason that the pod's owner can act on; the container does not start then, and is asked for again.
    async fn of(&self, holder: &v1::Holder) -> Result<Choice, String>;
}

/// Nobody chooses anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Same;

#[tonic::async_trait]
impl Competitions for Same {
    async fn of(&self, _: &v1::Holder) -> Result<Choice, String> {
        Ok(Choice::default())
    }
}
