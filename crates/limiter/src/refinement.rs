//! The optional parts of the limiter. `accuracy matrix --without NAME` measures the shares of programs without a part, which
//! shows its benefit (scripts/ablation.sh).
//!
//! Only that measurement is built with the feature `ablation`. Without it all parts are always in use.

/// A part that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refinement {
    /// The arbiter settles charges by the order of the tenants' time slices.
    SliceOrder,
    /// A tenant with several contexts counts several times if the GPU's time slices go round the contexts.
    ContextCount,
    /// Less work is in flight after bad predictions.
    Misprediction,
    /// Among waiting processes of a tenant, the least served one proceeds first.
    ProcessTurns,
    /// A process's turn begins only if little work of the tenant's other processes is in flight.
    TurnsApart,
    /// The host's time between the first event on an idle stream and the launch does not count as work.
    HostGap,
    /// Launches proceed and wait in periods of some milliseconds, not one by one.
    Swing,
}

impl Refinement {
    /// All parts, with their names on the command line.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::SliceOrder, "slice-order"),
        (Self::ContextCount, "context-count"),
        (Self::Misprediction, "misprediction"),
        (Self::ProcessTurns, "process-turns"),
        (Self::TurnsApart, "turns-apart"),
        (Self::HostGap, "host-gap"),
        (Self::Swing, "swing"),
    ];

    /// Whether this build can leave parts out.
    pub const CAN_LEAVE_OUT: bool = cfg!(feature = "ablation");

    /// Whether the part is in use: always in this build.
    #[cfg(not(feature = "ablation"))]
    #[inline(always)]
    pub const fn is_used(self) -> bool {
        true
    }

    /// Whether the part is in use: not if `VCUDA_WITHOUT` names it.
    #[cfg(feature = "ablation")]
    pub fn is_used(self) -> bool {
        static WITHOUT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let without = WITHOUT.get_or_init(|| std::env::var("VCUDA_WITHOUT").unwrap_or_default());
        let own = Self::ALL.iter().find(|(one, _)| *one == self);
        own.is_none_or(|(_, name)| without.split(',').all(|one| one != *name))
    }
}
