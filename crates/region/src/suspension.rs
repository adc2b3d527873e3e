//! Suspension: the words by which the manager keeps a tenant's processes out of the driver while their GPU memory is away,
//! and by which they ask for it.
//!
//! A thread counts itself as inside the driver, and reads the tenant's state then. The manager writes the state, and reads
//! the counts then. Each has a fence in between, so at least one of the two sees the other: a thread that got in is counted, and
//! one that comes later turns back. The tenant can write all of these words, which harms only itself:
//! the manager keeps its own record of what it did.

use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
mod words;

#[cfg(not(loom))]
pub use words::{ProcessGate, SuspensionWords};

/// The first and the last of the words that keep calls out of the driver.
const SUSPENDING: u32 = 1;
const RESUMING: u32 = 3;

/// State of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SuspendState {
    /// Its calls go to the driver.
    #[default]
    Running,
    /// The manager waits until no call is inside the driver, then moves the memory away.
    Suspending,
    /// Its GPU memory is in the host's.
    Suspended,
    /// The manager moves it back.
    Resuming,
    /// A process of it lost its GPU state. Its calls go to the driver, which says so.
    Failed,
}

impl SuspendState {
    /// All states, in the order of their words.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Suspending, Self::Suspended, Self::Resuming, Self::Failed];

    /// The state as it stands in `usage`.
    pub const fn word(self) -> u32 {
        match self {
            Self::Running => 0,
            Self::Suspending => SUSPENDING,
            Self::Suspended => 2,
            Self::Resuming => RESUMING,
            Self::Failed => 4,
        }
    }

    /// The state of a word; [`SuspendState::Running`] for a word that this release does not know.
    pub fn of_word(word: u32) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.word() == word).unwrap_or_default()
    }

    /// Name of the state, as `vcuda smi --json` tells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Failed => "failed",
        }
    }

    /// Whether the tenant's memory counts as being in host memory.
    pub const fn is_memory_away(self) -> bool {
        matches!(self, Self::Suspended | Self::Resuming)
    }

    /// Whether a call may go to the driver.
    pub const fn lets_calls_pass(self) -> bool {
        Self::word_lets_calls_pass(self.word())
    }

    /// As [`SuspendState::lets_calls_pass`], of a word. One comparison, as each call of a suspendable tenant makes it.
    #[inline]
    pub const fn word_lets_calls_pass(word: u32) -> bool {
        !matches!(word, SUSPENDING..=RESUMING)
    }
}

/// One thread more inside the driver.
const THREAD: u64 = 1;
/// One call of the application more, by which the manager sees that a process is not idle. It wraps around.
const CALL: u64 = 1 << 32;
/// The bits of the number of threads.
const THREADS: u64 = CALL - 1;

/// The gate of a process: each thread passes it on its way to the driver.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'u> {
    /// [`SuspendState`] of the tenant.
    state: &'u AtomicU32,
    /// Not 0: a process of the tenant waits for its memory.
    resume_wanted: &'u AtomicU32,
    /// Number of this process's threads inside the driver, and of its calls so far ([`CALL`]).
    inside: &'u AtomicU64,
}

impl<'u> Gate<'u> {
    pub(crate) fn new(state: &'u AtomicU32, resume_wanted: &'u AtomicU32, inside: &'u AtomicU64) -> Self {
        Self { state, resume_wanted, inside }
    }

    /// Counts a call, and the calling thread as inside the driver. Returns `false` if it may not go there now, and is not
    /// inside.
    #[inline]
    pub fn try_enter(&self) -> bool {
        self.try_enter_with(CALL | THREAD)
    }

    /// As [`Gate::try_enter`], for a thread whose work is no sign of use.
    pub fn try_enter_uncounted(&self) -> bool {
        self.try_enter_with(THREAD)
    }

    #[inline]
    fn try_enter_with(&self, count: u64) -> bool {
        self.inside.fetch_add(count, Ordering::Relaxed);
        // Pairs with the fence in `SuspensionWords::set_state`, between the manager's write of the state and its look at the
        // counts.
        fence(Ordering::SeqCst);
        let lets_pass = SuspendState::word_lets_calls_pass(self.state.load(Ordering::Acquire));
        if !lets_pass {
            self.leave();
        }
        lets_pass
    }

    /// Counts the calling thread as outside again.
    #[inline]
    pub fn leave(&self) {
        // The manager that no longer sees the call also sees its effects.
        self.inside.fetch_sub(THREAD, Ordering::Release);
    }

    /// Asks the manager for the tenant's memory.
    pub fn ask_to_resume(&self) {
        self.resume_wanted.store(1, Ordering::Release);
    }

    /// The word of the tenant's state, for a thread that waits until it changes.
    pub fn state_word(&self) -> &'u AtomicU32 {
        self.state
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_state_that_it_was_made_of() {
        for state in SuspendState::ALL {
            assert_eq!(SuspendState::of_word(state.word()), state);
            let passes = matches!(state, SuspendState::Running | SuspendState::Failed);
            assert_eq!(state.lets_calls_pass(), passes, "{state:?}");
        }
        assert_eq!(SuspendState::of_word(5), SuspendState::Running);
        assert!(SuspendState::word_lets_calls_pass(5));
    }

    #[test]
    fn a_thread_that_turns_back_is_not_counted() {
        let (state, wanted, inside) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
        let gate = Gate::new(&state, &wanted, &inside);
        let threads_and_calls = || {
            let word = inside.load(Ordering::Relaxed);
            (word & THREADS, word >> 32)
        };
        assert!(gate.try_enter());
        assert_eq!(threads_and_calls(), (1, 1));
        state.store(SuspendState::Suspending.word(), Ordering::Relaxed);
        assert!(!gate.try_enter());
        assert_eq!(threads_and_calls(), (1, 2));
        assert!(!gate.try_enter_uncounted());
        gate.leave();
        assert_eq!(threads_and_calls(), (0, 2));
        inside.store(u64::MAX << 32, Ordering::Relaxed);
        state.store(SuspendState::Running.word(), Ordering::Relaxed);
        assert!(gate.try_enter());
        assert_eq!(threads_and_calls(), (1, 0), "the calls begin again");
        state.store(SuspendState::Failed.word(), Ordering::Relaxed);
        assert!(gate.try_enter());
    }
}
