//! The thread that takes and publishes snapshots of all tenants.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vcuda_region::{clock, directory};

use super::snapshot_cache::Waker;
use super::tenant::TenantReader;
use super::{DriverLimit, Snapshot, SnapshotCache, Tenant};
use crate::background::Background;
use crate::reaper::Reaper;
use crate::registration::Registry;

/// Between two looks while tenants do something.
const ROUND: Duration = Duration::from_millis(500);
/// Between two looks while nothing changes, no process registers or ends, and no caller asks.
const REST: Duration = Duration::from_secs(10);
/// Between two looks at least (ns), however many register or end, unless a caller needs one of now.
const ROUND_MIN_NS: u64 = 50_000_000;

/// For how long a snapshot tells of a tenant that has ended (ns), longer than any reader of each snapshot is late, and of how many.
const ENDED_NS: u64 = 10_000_000_000;
const ENDED_MAX: usize = 256;

/// Present findings of the audit, by tenant.
pub type Findings = Mutex<HashMap<String, Vec<String>>>;
/// What is known of the driver's limits, by tenant.
pub type DriverLimits = Mutex<HashMap<String, DriverLimit>>;

/// Takes snapshots of all tenants under a root until it is dropped.
#[derive(Debug)]
pub struct Observatory {
    snapshots: Arc<SnapshotCache>,
    findings: Arc<Findings>,
    driver_limits: Arc<DriverLimits>,
    _thread: Background,
}

impl Observatory {
    /// Starts the thread with a cache of its own, which has the first snapshot when this returns.
    pub fn start(root: &Path, registry: Arc<Registry>) -> io::Result<Self> {
        Self::with_cache(root, registry, Arc::default())
    }

    /// Starts the thread, which publishes to `snapshots`. The first snapshot is there when this returns.
    pub fn with_cache(
        root: &Path,
        registry: Arc<Registry>,
        snapshots: Arc<SnapshotCache>,
    ) -> io::Result<Self> {
        let findings = Arc::new(Findings::default());
        let mut round = Round::new(root, Arc::clone(&registry), Arc::clone(&findings))?;
        let driver_limits = Arc::clone(&round.driver_limits);
        snapshots.publish(Arc::new(round.snapshot(clock::now_ns())));
        let cache = Arc::clone(&snapshots);
        let woken = Arc::clone(&registry);
        let wake = Box::new(move || woken.wake());
        let thread = Background::with_wake("observatory", wake, move |stop| {
            let mut seen = 0;
            while !stop.is_asked() {
                let now_ns = clock::now_ns();
                cache.publish(Arc::new(round.snapshot(now_ns)));
                let rest_ns = ROUND_MIN_NS.saturating_sub(clock::now_ns().saturating_sub(now_ns));
                std::thread::park_timeout(Duration::from_nanos(rest_ns));
                if !stop.is_asked() {
                    seen = round.registry.wait(seen, if round.is_active { ROUND } else { REST });
                }
            }
            cache.set_waker(None);
        })?;
        snapshots.set_waker(Some(Waker { registry, thread: thread.thread().clone() }));
        Ok(Self { snapshots, findings, driver_limits, _thread: thread })
    }

    /// The cache of the snapshots.
    pub fn snapshots(&self) -> &Arc<SnapshotCache> {
        &self.snapshots
    }

    /// Findings of the audit, which the next snapshot includes.
    pub fn findings(&self) -> &Arc<Findings> {
        &self.findings
    }

    /// What is known of the driver's limits, which the next snapshot includes.
    pub fn driver_limits(&self) -> &Arc<DriverLimits> {
        &self.driver_limits
    }
}

#[derive(Debug)]
pub(super) struct Round {
    root: PathBuf,
    registry: Arc<Registry>,
    findings: Arc<Findings>,
    driver_limits: Arc<DriverLimits>,
    reaper: Reaper,
    readers: BTreeMap<String, TenantReader>,
    number: u64,
    /// [`Snapshot::ended`], each with the time (ns).
    ended: VecDeque<(u64, (u64, Tenant))>,
    /// Whether a tenant had changed in the last snapshot, or may change without a notification.
    is_active: bool,
}

impl Round {
    pub(super) fn new(root: &Path, registry: Arc<Registry>, findings: Arc<Findings>) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            registry,
            findings,
            driver_limits: Arc::default(),
            reaper: Reaper::new()?,
            readers: BTreeMap::new(),
            number: 0,
            ended: VecDeque::new(),
            is_active: false,
        })
    }

    pub(super) fn snapshot(&mut self, now_ns: u64) -> Snapshot {
        let mut gone = Vec::new();
        // If the root cannot be read, the known tenants stay until the next snapshot.
        if let Ok(listed) = directory::list(&self.root) {
            let mut before = core::mem::take(&mut self.readers);
            for (name, path) in listed {
                let reader = match before.remove(&name) {
                    Some(known) if known.is_of(&path) => known,
                    Some(of_another) => {
                        gone.push(of_another);
                        TenantReader::new(&name, path)
                    }
                    None => TenantReader::new(&name, path),
                };
                self.readers.insert(name, reader);
            }
            gone.extend(before.into_values());
        }
        self.number += 1;
        self.note_ended(gone, now_ns);
        self.is_active = false;
        let findings = self.findings.lock().clone();
        let driver_limits = self.driver_limits.lock().clone();
        let tenants = self
            .readers
            .iter_mut()
            .map(|(name, reader)| {
                if let Some(members) = self.registry.members_since(name, reader.members_version()) {
                    reader.set_members(members);
                }
                self.is_active |= reader.update(&mut self.reaper, now_ns);
                let mut tenant = reader.seen().clone();
                tenant.findings = findings.get(name).cloned().unwrap_or_default();
                tenant.driver_limit = driver_limits.get(name).cloned().unwrap_or_default();
                tenant
            })
            .collect();
        Snapshot {
            number: self.number,
            taken_ns: now_ns,
            tenants,
            ended: self.ended.iter().map(|(_, ended)| ended.clone()).collect(),
        }
    }

    /// Reads the files of tenants whose directories are gone once more: they are still open, and have all that was used.
    fn note_ended(&mut self, gone: Vec<TenantReader>, now_ns: u64) {
        self.ended.retain(|(ended_ns, _)| now_ns.saturating_sub(*ended_ns) < ENDED_NS);
        for mut reader in gone {
            reader.finish(&mut self.reaper, now_ns);
            let ended = (self.number, reader.seen().clone());
            self.ended.push_back((now_ns, ended));
        }
        let too_many = self.ended.len().saturating_sub(ENDED_MAX);
        self.ended.drain(..too_many);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use vcuda_quota::DeviceConfig;
    use vcuda_region::directory::{self, Directory, Tenant};
    use vcuda_region::process::Identity;
    use vcuda_region::slots::Usage;
    use vcuda_region::{DeviceIndex, GpuUuid};

    fn tenant(name: &str, memory_bytes: u64) -> Tenant {
        Tenant::new(name, vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(memory_bytes, 300))])
    }

    #[test]
    fn a_run_that_begins_again_under_its_name_is_seen_at_once_and_the_last_one_to_its_end() {
        let root = tempfile::tempdir().unwrap();
        let me = Identity::current().unwrap();
        let mut round = Round::new(root.path(), Arc::default(), Arc::default()).unwrap();
        let mut begin = |memory_bytes, denied, now_ns| {
            if let Ok(Some(before)) = directory::remove_granted(root.path(), "a") {
                directory::discard(&before).unwrap();
            }
            let made = Directory::create(root.path(), &tenant("a", memory_bytes), b"", None, 1).unwrap();
            let usage = Usage::open(made.path()).unwrap();
            let _slot = usage.claim(&me).unwrap();
            let snapshot = round.snapshot(now_ns);
            let bucket = usage.bucket(DeviceIndex::new(0).unwrap());
            (0..denied).for_each(|_| bucket.count_denied(1, 0));
            drop(made);
            std::fs::remove_dir_all(root.path().join("containers/a")).unwrap();
            snapshot
        };
        let first = begin(1 << 30, 3, 1);
        let second = begin(2 << 30, 0, 2);
        let seen = |snapshot: &Snapshot| {
            let tenant = snapshot.find("a").unwrap();
            (tenant.inode, tenant.devices[0].config.memory_limit_bytes, tenant.problem.clone())
        };
        assert_eq!(seen(&first).1, 1 << 30);
        assert_eq!((seen(&second).1, seen(&second).2), (2 << 30, None));
        assert_ne!(seen(&first).0, seen(&second).0);
        let ended = |snapshot: &Snapshot| -> Vec<(u64, u64, u64)> {
            let ended = snapshot.ended.iter();
            ended.map(|(number, tenant)| (*number, tenant.inode, tenant.devices[0].denied)).collect()
        };
        assert_eq!(ended(&second), [(2, seen(&first).0, 3)]);
        assert_eq!(ended(&round.snapshot(3)).len(), 2);
        assert_eq!(ended(&round.snapshot(ENDED_NS + 3)), []);
    }

    #[test]
    fn the_end_of_an_unregistered_process_is_noticed_without_a_write() {
        let root = tempfile::tempdir().unwrap();
        let _me = Identity::current().unwrap();
        let tenant = tenant("a", 1 << 30);
        let directory = Directory::create(root.path(), &tenant, b"", None, 1).unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let usage = Usage::open(directory.path()).unwrap();
        let _slot = usage.claim(&Identity::of(child.id()).unwrap()).unwrap();
        let mut round = Round::new(root.path(), Arc::default(), Arc::default()).unwrap();
        let pid = child.id();
        let mut is_seen = |now_ns| {
            let snapshot = round.snapshot(now_ns);
            let processes = &snapshot.find("a").unwrap().processes;
            processes.iter().any(|process| process.host_pid == Some(pid))
        };
        assert!(is_seen(1) && is_seen(2));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_seen(3));
    }
}
