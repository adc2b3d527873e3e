//! The optional parts of the limiter. Each has to earn its place: `accuracy matrix --without NAME` measures the shares
//! of programs with all but one of them (docs/results.md, "What each refinement brings").
//!
//! Without the feature `ablation`, which only that measurement is built with, all of them are always in use.

/// A part that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refinement {
    /// The arbiter settles charges by the order in which the tenants' time slices followed each other.
    SliceOrder,
    /// A tenant of several contexts counts as several where time slices go round the contexts.
    ContextCount,
    /// Less work is in flight after predictions were far off.
    Misprediction,
    /// Processes of a tenant that wait are served in the order of what they had.
    ProcessTurns,
    /// A process's turn begins only when little of the others' work is in flight.
    TurnsApart,
    /// The host's time between an idle stream's first event and the launch is no work.
    HostGap,
    /// Launches go and wait by turns of some milliseconds, not one by one.
    Swing,
}

impl Refinement {
    /// Every one, with its name on the command line.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::SliceOrder, "slice-order"),
        (Self::ContextCount, "context-count"),
        (Self::Misprediction, "misprediction"),
        (Self::ProcessTurns, "process-turns"),
        (Self::TurnsApart, "turns-apart"),
        (Self::HostGap, "host-gap"),
        (Self::Swing, "swing"),
    ];

    /// Whether this build can leave any out.
    pub const CAN_LEAVE_OUT: bool = cfg!(feature = "ablation");

    /// Whether it is in use.
    #[cfg(not(feature = "ablation"))]
    #[inline(always)]
    #[must_use]
    pub const fn is_used(self) -> bool {
        true
    }

    /// Whether it is in use: not if `VCUDA_WITHOUT` names it.
    #[cfg(feature = "ablation")]
    #[must_use]
    pub fn is_used(self) -> bool {
        static WITHOUT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let without = WITHOUT.get_or_init(|| std::env::var("VCUDA_WITHOUT").unwrap_or_default());
        let own = Self::ALL.iter().find(|(one, _)| *one == self);
        own.is_none_or(|(_, name)| without.split(',').all(|one| one != *name))
    }
}
