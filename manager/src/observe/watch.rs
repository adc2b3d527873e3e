//! The thread that looks at all tenants and publishes snapshots.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vcuda_region::{clock, directory};

use super::tenant::Watched;
use super::{Looks, Snapshot};
use crate::background::Background;
use crate::reaper::Reaper;
use crate::registration::Registry;

/// Between two looks while tenants do something.
const ROUND: Duration = Duration::from_millis(500);
/// Between two looks while nothing changes, no process registers or ends, and no caller asks.
const REST: Duration = Duration::from_secs(10);
/// Between two looks at least (ns), however many register or end.
const ROUND_MIN_NS: u64 = 50_000_000;

/// Findings of the audit that still hold, by tenant.
pub type Findings = Mutex<HashMap<String, Vec<String>>>;

/// Looks at all tenants under a root until it is dropped.
#[derive(Debug)]
pub struct Observatory {
    looks: Arc<Looks>,
    findings: Arc<Findings>,
    _thread: Background,
}

impl Observatory {
    /// Starts it, with looks of its own. The first one is there when this returns.
    ///
    /// # Errors
    /// `/proc` cannot be read, or no thread is left.
    pub fn start(root: &Path, registry: Arc<Registry>) -> io::Result<Self> {
        Self::with_looks(root, registry, Arc::default())
    }

    /// As [`Observatory::start`]: the looks are published there.
    ///
    /// # Errors
    /// As there.
    pub fn with_looks(root: &Path, registry: Arc<Registry>, looks: Arc<Looks>) -> io::Result<Self> {
        let findings = Arc::new(Findings::default());
        let mut round = Round::new(root, Arc::clone(&registry), Arc::clone(&findings))?;
        looks.publish(Arc::new(round.look(clock::now_ns())));
        let told = Arc::clone(&looks);
        let woken = Arc::clone(&registry);
        let wake = Box::new(move || woken.wake());
        let thread = Background::with_wake("observatory", wake, move |stop| {
            let mut seen = 0;
            while !stop.is_asked() {
                let now_ns = clock::now_ns();
                told.publish(Arc::new(round.look(now_ns)));
                let rest_ns = ROUND_MIN_NS.saturating_sub(clock::now_ns().saturating_sub(now_ns));
                std::thread::park_timeout(Duration::from_nanos(rest_ns));
                if !stop.is_asked() {
                    seen = round
                        .registry
                        .wait(seen, if round.is_active { ROUND } else { REST });
                }
            }
            told.follow(None);
        })?;
        looks.follow(Some(registry));
        Ok(Self {
            looks,
            findings,
            _thread: thread,
        })
    }

    /// The looks at the tenants.
    #[must_use]
    pub fn looks(&self) -> &Arc<Looks> {
        &self.looks
    }

    /// The audit's findings, which stand in the next snapshot.
    #[must_use]
    pub fn findings(&self) -> &Arc<Findings> {
        &self.findings
    }
}

/// One look after another.
#[derive(Debug)]
pub(super) struct Round {
    root: PathBuf,
    registry: Arc<Registry>,
    findings: Arc<Findings>,
    reaper: Reaper,
    watched: BTreeMap<String, Watched>,
    number: u64,
    /// A tenant had changed at the last look, or may change by itself.
    is_active: bool,
}

impl Round {
    pub(super) fn new(root: &Path, registry: Arc<Registry>, findings: Arc<Findings>) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            registry,
            findings,
            reaper: Reaper::new()?,
            watched: BTreeMap::new(),
            number: 0,
            is_active: false,
        })
    }

    /// All tenants as they are now.
    pub(super) fn look(&mut self, now_ns: u64) -> Snapshot {
        // A folder that cannot be read is tried again: what is known stays.
        if let Ok(listed) = directory::list(&self.root) {
            let mut before = core::mem::take(&mut self.watched);
            for (name, path) in listed {
                let watched = before.remove(&name).unwrap_or_else(|| Watched::new(&name, path));
                self.watched.insert(name, watched);
            }
        }
        self.number += 1;
        self.is_active = false;
        let findings = self.findings.lock().clone();
        let tenants = self
            .watched
            .iter_mut()
            .map(|(name, watched)| {
                if let Some(members) = self.registry.members_since(name, watched.members_version()) {
                    watched.take_members(members);
                }
                self.is_active |= watched.look(&mut self.reaper, now_ns);
                let mut tenant = watched.seen().clone();
                tenant.findings = findings.get(name).cloned().unwrap_or_default();
                tenant
            })
            .collect();
        Snapshot {
            number: self.number,
            taken_ns: now_ns,
            tenants,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use vcuda_quota::DeviceConfig;
    use vcuda_region::GpuUuid;
    use vcuda_region::directory::{Directory, Tenant};
    use vcuda_region::process::Identity;
    use vcuda_region::slots::Usage;

    #[test]
    fn who_has_not_registered_is_seen_to_end_though_nothing_is_written() {
        let root = tempfile::tempdir().unwrap();
        let tenant = Tenant {
            name: "a".to_owned(),
            devices: vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(1 << 30, 300))],
        };
        let me = Identity::current().unwrap();
        let (directory, _) = Directory::create_or_join(root.path(), &tenant, &me, 1).unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let usage = Usage::open(directory.path()).unwrap();
        let _slot = usage.claim(&Identity::of(child.id()).unwrap()).unwrap();
        let mut round = Round::new(root.path(), Arc::default(), Arc::default()).unwrap();
        let pid = child.id();
        let mut is_seen = |now_ns| {
            let snapshot = round.look(now_ns);
            let processes = &snapshot.find("a").unwrap().processes;
            processes.iter().any(|process| process.host_pid == Some(pid))
        };
        assert!(is_seen(1) && is_seen(2));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_seen(3));
    }
}
