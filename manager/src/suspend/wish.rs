//! What may be done with a tenant, and the states that it goes through.

use vcuda_region::suspension::SuspendState;

/// What is to be done with a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// By hand.
    Suspend,
    /// To make room for another tenant, even if it is busy.
    MakeRoom,
    /// As its memory came back to the GPU without the manager.
    SuspendAnew,
    Resume,
}

impl Wish {
    /// The state while it is being done.
    pub(super) fn passing(self) -> SuspendState {
        match self {
            Self::Suspend | Self::MakeRoom | Self::SuspendAnew => SuspendState::Suspending,
            Self::Resume => SuspendState::Resuming,
        }
    }

    /// The state once it is done.
    pub(super) fn settled(self) -> SuspendState {
        match self {
            Self::Suspend | Self::MakeRoom | Self::SuspendAnew => SuspendState::Suspended,
            Self::Resume => SuspendState::Running,
        }
    }
}
