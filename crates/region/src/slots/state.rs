//! State of a slot in one word, and the identity of its owner.

use crate::layout::IdentityRecord;
use crate::primitive::Ordering;
use crate::process::Identity;

/// Status of a free slot. The status is bits 0 to 7 of the state.
pub(super) const FREE: u64 = 0;
/// Status while the owner writes its identity; nothing is counted.
pub(super) const CLAIMED: u64 = 1;
/// Status while the owner uses the slot.
pub(super) const LIVE: u64 = 2;
/// Status while another process empties the slot of a dead owner.
pub(super) const CLEARING: u64 = 3;

/// Status, PID (32 bits) and incarnation (24 bits) of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    pub(crate) fn status(self) -> u64 {
        self.0 & 0xff
    }

    #[expect(clippy::cast_possible_truncation, reason = "the PID's bits are what is asked for")]
    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 8) as u32
    }

    pub(super) fn incarnation(self) -> u64 {
        self.0 >> 40
    }

    pub(crate) fn is_live(self) -> bool {
        self.status() == LIVE
    }

    pub(super) fn with_status(self, status: u64) -> Self {
        Self(self.0 & !0xff | status)
    }

    /// The next incarnation, claimed for `pid`.
    pub(super) fn claimed_for(self, pid: u32) -> Self {
        Self(self.incarnation().wrapping_add(1) << 40 | u64::from(pid) << 8 | CLAIMED)
    }
}

impl IdentityRecord {
    /// Present state of the slot.
    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Replaces the state `from` by `to`. Returns false if the state has changed meanwhile.
    pub(super) fn exchange(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes the identity of a new owner.
    pub(super) fn write(&self, me: &Identity) {
        self.start_ticks.store(me.start_ticks, Ordering::Relaxed);
        let namespaces = u64::from(me.pid_namespace) | u64::from(me.time_namespace) << 32;
        self.namespaces.store(namespaces, Ordering::Relaxed);
        for (word, bytes) in self.name.iter().zip(me.name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.bypasses.store(0, Ordering::Relaxed);
        self.settled_ns.store(0, Ordering::Relaxed);
        self.gate_state.store(0, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
    }

    /// Owner of the slot; `None` if the slot is not live, or its state is no longer `state`.
    pub(super) fn identity(&self, state: State) -> Option<Identity> {
        let words = [&self.start_ticks, &self.namespaces, &self.name[0], &self.name[1]];
        let words = words.map(|word| word.load(Ordering::Acquire));
        (state.is_live() && self.state() == state).then(|| identity_of_words(state, words))
    }
}

/// The identity in a slot's words.
pub(crate) fn identity_of_words(
    state: State,
    [start_ticks, namespaces, first, second]: [u64; 4],
) -> Identity {
    let mut name = [0; 16];
    for (byte, from) in name.iter_mut().zip(first.to_le_bytes().into_iter().chain(second.to_le_bytes())) {
        *byte = from;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken on purpose")]
    let (pid_namespace, time_namespace) = (namespaces as u32, (namespaces >> 32) as u32);
    Identity { pid: state.pid(), start_ticks, pid_namespace, time_namespace, name }
}
