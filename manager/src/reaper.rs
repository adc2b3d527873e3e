//! Detection of slots whose processes are dead, so that figures leave out their use.
//!
//! The tenant owns `usage`, and the manager maps no file that a tenant can truncate: it does not clear dead slots. The
//! tenant's living processes do that every quarter of a second. Without one, dead slots stay until the next process starts.
//! This does no harm: they hinder no process, and all readers that use this module leave them out. A registered process is
//! known to be dead as soon as its pidfd says so; for any other, `/proc` is read at each look.

use std::collections::HashMap;
use std::fs;
use std::io;

use vcuda_region::process::{Identity, Liveness, ProcessView};

use crate::registration::{Key, Members};

/// Interval of the search for processes that have not registered (ns).
const SCAN_NS: u64 = 2_000_000_000;
/// Maximum number of remembered processes that live and have not registered.
const MOST_FOUND: usize = 65_536;
/// State of the process that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Alive, or possibly alive, with the host PID if known.
    Alive(Option<u32>),
    /// Dead.
    Dead,
}

#[derive(Debug)]
pub(crate) struct Reaper {
    me: Identity,
    view: ProcessView,
    /// Host identities of processes in other PID namespaces that have not registered.
    found: HashMap<Key, Identity>,
    scanned_ns: u64,
}

impl Reaper {
    pub(crate) fn new() -> io::Result<Self> {
        let me = Identity::current()?;
        Ok(Self { me, view: ProcessView::new(me), found: HashMap::new(), scanned_ns: 0 })
    }

    /// State of the process that a slot names. If `/proc` does not show it, as on a node that is itself a container,
    /// `is_unlocked` decides ([`vcuda_region::usage_reader::UsageReader::is_unlocked`]).
    pub(crate) fn fate(
        &mut self,
        holder: &Identity,
        members: &Members,
        is_unlocked: impl FnOnce() -> bool,
        now_ns: u64,
    ) -> Fate {
        let key = Key::of(holder);
        if let Some(known) = members.living.iter().find(|known| Key::of(&known.identity) == key) {
            return Fate::Alive(Some(known.host_pid));
        }
        if members.ended.contains(&key) {
            return Fate::Dead;
        }
        let is_neighbour = holder.pid_namespace == self.me.pid_namespace;
        let on_host = if is_neighbour { Some(*holder) } else { self.find(key, holder, now_ns) };
        match on_host {
            Some(on_host) if self.view.liveness(&on_host) == Liveness::Dead => {
                self.found.remove(&key);
                Fate::Dead
            }
            Some(on_host) => Fate::Alive(Some(on_host.pid)),
            None if self.scanned_ns == now_ns && (self.view.sees_all() || is_unlocked()) => Fate::Dead,
            None => Fate::Alive(None),
        }
    }

    /// Host identity of a process in another PID namespace. It searches all processes, but at most every [`SCAN_NS`].
    fn find(&mut self, key: Key, holder: &Identity, now_ns: u64) -> Option<Identity> {
        if let Some(on_host) = self.found.get(&key) {
            return Some(*on_host);
        }
        if now_ns != self.scanned_ns && now_ns < self.scanned_ns.saturating_add(SCAN_NS) {
            return None;
        }
        if now_ns != self.scanned_ns {
            self.scanned_ns = now_ns;
            self.scan();
        }
        // Start times of different time namespaces cannot be compared, so the other fields decide.
        let same_clock = holder.time_namespace == self.me.time_namespace;
        let on_host = self.found.get(&key).copied().or_else(|| {
            let mut others = self.found.iter();
            let is_it = |found: &Key| found.pid == key.pid && found.pid_namespace == key.pid_namespace;
            others.find(|(found, _)| !same_clock && is_it(found)).map(|(_, on_host)| *on_host)
        })?;
        self.found.insert(key, on_host);
        Some(on_host)
    }

    fn scan(&mut self) {
        self.found.clear();
        let Ok(entries) = fs::read_dir("/proc") else {
            return;
        };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.take(MOST_FOUND) {
            // The process has ended meanwhile.
            let Ok(seen) = self.me.see(pid) else { continue };
            if seen.pid_namespace != self.me.pid_namespace && seen.pid_namespace != 0 {
                let on_host = Identity {
                    pid,
                    pid_namespace: self.me.pid_namespace,
                    time_namespace: self.me.time_namespace,
                    ..seen
                };
                self.found.insert(Key::of(&seen), on_host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_neighbour_that_has_not_registered_dies() {
        let mut reaper = Reaper::new().unwrap();
        let none = Members::default();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let holder = Identity::of(child.id()).unwrap();
        assert_eq!(reaper.fate(&holder, &none, || false, 1), Fate::Alive(Some(child.id())));
        let before = Identity { start_ticks: holder.start_ticks - 1, ..holder };
        assert_eq!(reaper.fate(&before, &none, || false, 1), Fate::Dead, "the PID is another's");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reaper.fate(&holder, &none, || false, 1), Fate::Dead);
    }

    #[test]
    fn who_has_registered_lives_until_its_end_is_told() {
        let mut reaper = Reaper::new().unwrap();
        let holder = Identity { pid: 7, start_ticks: 1, pid_namespace: 5, time_namespace: 0, name: [0; 16] };
        let mut members = Members::default();
        members.living.push(crate::registration::Registered {
            host_pid: 4711,
            identity: holder,
            slot: Some(0),
            release: 0,
            layouts: (3, 4),
        });
        assert_eq!(reaper.fate(&holder, &members, || false, 1), Fate::Alive(Some(4711)));
        members.living.clear();
        members.ended.push_back(Key::of(&holder));
        assert_eq!(reaper.fate(&holder, &members, || false, 1), Fate::Dead);
    }
}
