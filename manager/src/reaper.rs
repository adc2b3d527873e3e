//! Search for a tenant's slots whose processes are dead, so that no figure holds their use; and the removal of
//! directories of `vcuda run` whose processes are all gone.
//!
//! `usage` is the tenant's own, and the manager maps nothing that a tenant can cut short: it does not clear the dead there.
//! The tenant's living processes do that, every quarter of a second. If none lives, the dead stay in the file until a next
//! process comes, and nothing is lost by it: their bytes hinder no process, and every reader of the file through this
//! module leaves them out. A process that has registered is known to be dead the moment its pidfd says so; of any other,
//! `/proc` is asked again at each look.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use vcuda_region::process::{Identity, Liveness, ProcessView};
use vcuda_region::{clock, directory};

use crate::background::Background;
use crate::registration::{Key, Members};

/// Interval of the search for processes that have not registered (ns).
const SCAN_NS: u64 = 2_000_000_000;
/// Not registered and not yet ended, at most, that are remembered.
const MOST_FOUND: usize = 65_536;
/// Interval of the search for directories to remove, and the longest one (ns) where there was nothing that may have to be.
const CLEAN: Duration = Duration::from_secs(2);
const CLEAN_ANYWAY_NS: u64 = 30_000_000_000;

/// Fate of the holder of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It lives, or may live; its PID on the host, if that is known.
    Alive(Option<u32>),
    /// It is gone.
    Dead,
}

/// Processes that live.
#[derive(Debug)]
pub struct Reaper {
    me: Identity,
    view: ProcessView,
    /// Processes of other PID namespaces that have not registered, as they are seen from here.
    found: HashMap<Key, Identity>,
    scanned_ns: u64,
}

impl Reaper {
    /// A reaper that knows no process yet.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn new() -> io::Result<Self> {
        let me = Identity::current()?;
        Ok(Self {
            me,
            view: ProcessView::new(me),
            found: HashMap::new(),
            scanned_ns: 0,
        })
    }

    /// Fate of the process that a slot names. Of one that cannot be seen, on a node that is itself a container, `is_unlocked` tells:
    /// [`vcuda_region::usage_reader::UsageReader::is_unlocked`].
    pub fn fate(
        &mut self,
        holder: &Identity,
        members: &Members,
        is_unlocked: impl FnOnce() -> bool,
        now_ns: u64,
    ) -> Fate {
        let key = Key::of(holder);
        if let Some(known) = members
            .living
            .iter()
            .find(|known| Key::of(&known.identity) == key)
        {
            return Fate::Alive(Some(known.host_pid));
        }
        if members.ended.contains(&key) {
            return Fate::Dead;
        }
        let is_neighbour = holder.pid_namespace == self.me.pid_namespace;
        let on_host = if is_neighbour {
            Some(*holder)
        } else {
            self.find(key, holder, now_ns)
        };
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

    /// The identity of a process of another PID namespace, as seen from here. All processes are searched for it,
    /// though not often.
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
        // A start time that is counted by another clock cannot be compared: then the rest must do.
        let same_clock = holder.time_namespace == self.me.time_namespace;
        let on_host = self.found.get(&key).copied().or_else(|| {
            let mut others = self.found.iter();
            let is_it = |found: &Key| found.pid == key.pid && found.pid_namespace == key.pid_namespace;
            others
                .find(|(found, _)| !same_clock && is_it(found))
                .map(|(_, on_host)| *on_host)
        })?;
        self.found.insert(key, on_host);
        Some(on_host)
    }

    fn scan(&mut self) {
        self.found.clear();
        let Ok(entries) = fs::read_dir("/proc") else {
            return;
        };
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.take(MOST_FOUND) {
            // What ends meanwhile is not there.
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

/// The thread that removes directories whose processes are all gone, until this is dropped. Granted ones are left alone: if
/// there were only such at the last look, and the folder has not changed since, the next look is only at the folder.
#[derive(Debug)]
pub struct Cleaner {
    _thread: Background,
}

impl Cleaner {
    /// Starts it.
    ///
    /// # Errors
    /// No thread is left.
    pub fn start(root: &Path) -> io::Result<Self> {
        let (root, me) = (root.to_owned(), Identity::current()?);
        let thread = Background::start("cleaner", move |stop| {
            let mut clean: Option<(SystemTime, u64)> = None;
            while !stop.is_asked() {
                let (changed, now_ns) = (directory::changed(&root), clock::now_ns());
                let is_clean = |(then, at_ns): &(SystemTime, u64)| {
                    Some(*then) == changed && now_ns < at_ns.saturating_add(CLEAN_ANYWAY_NS)
                };
                if !clean.as_ref().is_some_and(is_clean) {
                    // What cannot be removed now is tried again.
                    let _ = directory::remove_dead(&root, &me);
                    let is_clean = directory::all_granted(&root);
                    clean = changed.filter(|_| is_clean).map(|changed| (changed, now_ns));
                }
                std::thread::park_timeout(CLEAN);
            }
        })?;
        Ok(Self { _thread: thread })
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
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let holder = Identity::of(child.id()).unwrap();
        assert_eq!(
            reaper.fate(&holder, &none, || false, 1),
            Fate::Alive(Some(child.id()))
        );
        let before = Identity {
            start_ticks: holder.start_ticks - 1,
            ..holder
        };
        assert_eq!(
            reaper.fate(&before, &none, || false, 1),
            Fate::Dead,
            "the PID is another's"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reaper.fate(&holder, &none, || false, 1), Fate::Dead);
    }

    #[test]
    fn who_has_registered_lives_until_its_end_is_told() {
        let mut reaper = Reaper::new().unwrap();
        let holder = Identity {
            pid: 7,
            start_ticks: 1,
            pid_namespace: 5,
            time_namespace: 0,
            name: [0; 16],
        };
        let mut members = Members::default();
        members.living.push(crate::registration::Registered {
            host_pid: 4711,
            identity: holder,
            slot: Some(0),
            release: 0,
            layouts: (3, 4),
        });
        assert_eq!(
            reaper.fate(&holder, &members, || false, 1),
            Fate::Alive(Some(4711))
        );
        members.living.clear();
        members.ended.push_back(Key::of(&holder));
        assert_eq!(reaper.fate(&holder, &members, || false, 1), Fate::Dead);
    }
}
