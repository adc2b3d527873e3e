//! Registered processes by tenant, and counts of all attempts.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use vcuda_region::process::Identity;

use super::MOST_PROCESSES;

/// Key of a process within its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// PID in the process's own namespace.
    pub pid: u32,
    /// Start time as the process sees it (clock ticks).
    pub start_ticks: u64,
    /// Inode of the process's PID namespace.
    pub pid_namespace: u32,
}

/// A process that has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// PID in the manager's PID namespace.
    pub host_pid: u32,
    /// Identity from the process's message, verified as far as possible.
    pub identity: Identity,
    /// Number of its slot, as the process says.
    pub slot: Option<usize>,
    /// Release of its library ([`vcuda_region::release::NUMBER`]).
    pub release: u32,
    /// The oldest and newest region layouts that it supports.
    pub layouts: (u32, u32),
}

/// The processes of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Version, which differs after every change.
    pub version: u64,
    /// Living processes.
    pub living: Vec<Registered>,
    /// Processes that have ended recently, whose slots are free.
    pub ended: VecDeque<Key>,
    /// Number of times that a process of the tenant was refused or delayed because too many came.
    pub refused: u64,
}

/// Counts of attempts to register, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted registrations, repeated ones included.
    pub accepted: u64,
    /// Malformed messages.
    pub malformed: u64,
    /// Messages without a common version.
    pub version: u64,
    /// Processes whose claim differs from the kernel's facts.
    pub stranger: u64,
    /// Refusals because the tenant's table is full.
    pub full: u64,
    /// Connections that closed without a message.
    pub silent: u64,
    /// Times that a tenant was paused because too many connections came.
    pub floods: u64,
    /// Sockets that could not be made.
    pub broken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    /// A first registration.
    New,
    /// A repeated registration.
    Again,
    /// The table is full.
    Not,
}

/// Registered processes: written by the [`super::Registrar`], read by all.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    members: HashMap<String, Members>,
    counts: Counts,
    changes: u64,
}

impl Key {
    /// The key of a process.
    pub fn of(identity: &Identity) -> Self {
        Self { pid: identity.pid, start_ticks: identity.start_ticks, pid_namespace: identity.pid_namespace }
    }
}

impl Registry {
    /// The processes of a tenant, unless nothing has changed since `version`.
    pub fn members_since(&self, tenant: &str, version: u64) -> Option<Members> {
        let state = self.state.lock();
        let members = state.members.get(tenant)?;
        (members.version != version).then(|| members.clone())
    }

    /// Counts of attempts to register.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Waits until the number of changes differs from `seen`, or for `time`. Returns that number for the next call.
    pub fn wait(&self, seen: u64, time: Duration) -> u64 {
        let mut state = self.state.lock();
        if state.changes == seen {
            self.changed.wait_for(&mut state, time);
        }
        state.changes
    }

    pub(crate) fn wake(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
    }

    /// Counts a failed attempt.
    pub(super) fn count(&self, tenant: &str, count: impl FnOnce(&mut Counts)) {
        let mut state = self.state.lock();
        count(&mut state.counts);
        state.changes += 1;
        let version = state.changes;
        let members = state.members.entry(tenant.to_owned()).or_default();
        members.version = version;
        // Watchers are not woken, as a flood of attempts must not drive them.
        members.refused += 1;
    }

    /// Registers a process, and replaces an earlier entry of it.
    pub(super) fn enter(&self, tenant: &str, process: Registered) -> Entered {
        self.change(tenant, |members, counts| {
            let key = Key::of(&process.identity);
            let before = members.living.len();
            members.living.retain(|known| Key::of(&known.identity) != key);
            let is_known = members.living.len() != before;
            members.ended.retain(|ended| *ended != key);
            if members.living.len() >= MOST_PROCESSES {
                members.refused += 1;
                counts.full += 1;
                return Entered::Not;
            }
            members.living.push(process);
            counts.accepted += 1;
            if is_known { Entered::Again } else { Entered::New }
        })
    }

    pub(super) fn end(&self, tenant: &str, key: Key) {
        self.change(tenant, |members, _| {
            members.living.retain(|known| Key::of(&known.identity) != key);
            if members.ended.len() >= MOST_PROCESSES {
                members.ended.pop_front();
            }
            members.ended.push_back(key);
        });
    }

    /// Removes all tenants for which `is_there` is false.
    pub(super) fn keep_only(&self, is_there: impl Fn(&str) -> bool) {
        let mut state = self.state.lock();
        let before = state.members.len();
        state.members.retain(|tenant, _| is_there(tenant));
        if state.members.len() != before {
            state.changes += 1;
            self.changed.notify_all();
        }
    }

    fn change<T>(&self, tenant: &str, change: impl FnOnce(&mut Members, &mut Counts) -> T) -> T {
        let mut state = self.state.lock();
        let State { members, counts, changes } = &mut *state;
        *changes += 1;
        let members = members.entry(tenant.to_owned()).or_default();
        // Versions are never reused, even if the tenant's directory was gone in between.
        members.version = *changes;
        let outcome = change(members, counts);
        self.changed.notify_all();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Registered {
        let identity = Identity { pid, start_ticks: 1, pid_namespace: 1, time_namespace: 0, name: [0; 16] };
        Registered { host_pid: pid + 1000, identity, slot: None, release: 0, layouts: (3, 4) }
    }

    #[test]
    fn a_process_is_entered_once_and_ends() {
        let registry = Registry::default();
        let seen = registry.wait(u64::MAX, Duration::ZERO);
        assert_eq!(registry.enter("a", process(1)), Entered::New);
        assert_eq!(registry.enter("a", process(1)), Entered::Again);
        assert_ne!(registry.wait(seen, Duration::ZERO), seen);
        let members = registry.members_since("a", 0).unwrap();
        assert_eq!(members.living, [process(1)]);
        assert_eq!(registry.members_since("a", members.version), None);
        registry.end("a", Key::of(&process(1).identity));
        let members = registry.members_since("a", members.version).unwrap();
        assert_eq!((members.living.len(), members.ended.len()), (0, 1));
        // The same key again, as after an exec: it is alive.
        registry.enter("a", process(1));
        assert_eq!(registry.members_since("a", 0).unwrap().ended.len(), 0);
        registry.keep_only(|tenant| tenant != "a");
        assert_eq!(registry.members_since("a", 0), None);
    }

    #[test]
    fn a_tenant_fills_its_own_table_only() {
        let registry = Registry::default();
        let most = u32::try_from(MOST_PROCESSES).unwrap();
        assert!((1..=most).all(|pid| registry.enter("a", process(pid)) == Entered::New));
        assert_eq!(registry.enter("a", process(most + 1)), Entered::Not);
        assert_eq!(registry.enter("b", process(most + 1)), Entered::New);
        (1..=2 * most).for_each(|pid| registry.end("a", Key::of(&process(pid).identity)));
        assert_eq!(registry.members_since("a", 0).unwrap().ended.len(), MOST_PROCESSES);
        assert_eq!(registry.counts().full, 1);
    }
}
