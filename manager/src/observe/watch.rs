//! The thread that looks at all tenants and publishes snapshots.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use vcuda_region::{clock, directory};

use super::Snapshot;
use super::tenant::Watched;
use crate::background::Background;
use crate::reaper::Reaper;
use crate::registration::Registry;

/// Between two looks while no process registers or ends.
const ROUND: Duration = Duration::from_millis(500);
/// Between two looks at least (ns), however many register or end.
const ROUND_MIN_NS: u64 = 50_000_000;

/// Findings of the audit that still hold, by tenant.
pub type Findings = Mutex<HashMap<String, Vec<String>>>;

/// Looks at all tenants under a root until it is dropped.
#[derive(Debug)]
pub struct Observatory {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    findings: Arc<Findings>,
    _thread: Background,
}

impl Observatory {
    /// Starts it. The first snapshot is there when this returns.
    ///
    /// # Errors
    /// `/proc` cannot be read, or no thread is left.
    pub fn start(root: &Path, registry: Arc<Registry>) -> io::Result<Self> {
        let findings = Arc::new(Findings::default());
        let mut round = Round::new(root, registry, Arc::clone(&findings))?;
        let (told, snapshots) = watch::channel(Arc::new(round.look(clock::now_ns())));
        let thread = Background::start("observatory", move |stop| {
            let mut seen = 0;
            while !stop.is_asked() {
                let now_ns = clock::now_ns();
                // Goes on without listeners: a caller may ask for the last one.
                told.send_replace(Arc::new(round.look(now_ns)));
                let rest_ns = ROUND_MIN_NS.saturating_sub(clock::now_ns().saturating_sub(now_ns));
                std::thread::park_timeout(Duration::from_nanos(rest_ns));
                seen = round.registry.wait(seen, ROUND);
            }
        })?;
        Ok(Self {
            snapshots,
            findings,
            _thread: thread,
        })
    }

    /// The tenants as they are, sent anew after each look at them.
    #[must_use]
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
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
        let findings = self.findings.lock().clone();
        let tenants = self
            .watched
            .iter_mut()
            .map(|(name, watched)| {
                if let Some(members) = self.registry.members_since(name, watched.members_version()) {
                    watched.take_members(members);
                }
                watched.look(&mut self.reaper, now_ns);
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
