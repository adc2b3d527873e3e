//! Faults of checkpoints.

use crate::CheckpointStep;
use serde::{Deserialize, Serialize};

/// What becomes of each step, if not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointFaults {
    /// Of locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<CheckpointFault>,
    /// Of checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFault>,
    /// Of restores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<CheckpointFault>,
    /// Of unlocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlock: Option<CheckpointFault>,
}

/// A way in which a step goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointFault {
    /// `CUDA_ERROR_OPERATING_SYSTEM`, and nothing has changed.
    Refused,
    /// `CUDA_ERROR_OPERATING_SYSTEM`, and the process is in the state `FAILED`.
    Fails,
    /// No answer while the fault stands; then the step is done.
    Hangs,
    /// The process whose state is to be moved ends (SIGABRT).
    Crashes,
}

impl CheckpointFaults {
    pub(crate) fn of(&self, step: CheckpointStep) -> Option<CheckpointFault> {
        match step {
            CheckpointStep::Lock { .. } => self.lock,
            CheckpointStep::Checkpoint => self.checkpoint,
            CheckpointStep::Restore => self.restore,
            CheckpointStep::Unlock => self.unlock,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == CheckpointFaults::default()
    }
}
