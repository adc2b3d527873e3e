//! Reader of a tenant's files, which it keeps open, and the tenant's state by the last read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vcuda_region::DeviceIndex;
use vcuda_region::limits::{LimitsReader, OpenError};
use vcuda_region::process::Identity;
use vcuda_region::usage_reader::{UsageDigest, UsageReader};

use super::slot_processes::SlotProcesses;
use super::totals::Totals;
use super::{Device, Tenant};
use crate::reaper::{Fate, Reaper};
use crate::registration::Members;
use crate::tenant_directories;

/// Interval of checks of the whole of `limits`, and of the files' inodes (ns).
const CHECK_NS: u64 = 14_000_000_000;

#[derive(Debug)]
pub(super) struct TenantReader {
    path: PathBuf,
    directory: Option<Made>,
    files: Option<Files>,
    members: Members,
    seen: Tenant,
    totals: Vec<Totals>,
    /// Processes that hold a slot and have not registered: slot, identity, and host PID if known. Their end is not notified.
    unregistered: Vec<(usize, Identity, Option<u32>)>,
    /// Whether a child, or a descriptor anywhere, keeps memory of a dead process. Its end is not notified and changes no file, so
    /// each update checks it.
    has_kept: bool,
    is_stale: bool,
}

#[derive(Debug)]
struct Files {
    limits: LimitsReader,
    reader: UsageReader,
    digest: UsageDigest,
    /// Device and inode of both files.
    inodes: [(u64, u64); 2],
    checked_ns: u64,
}

/// Inode of a directory and time of its making. A file system on a disk may give an inode's number again at once.
type Made = (u64, Option<SystemTime>);

fn made(path: &Path) -> Option<Made> {
    let found = path.symlink_metadata().ok()?;
    Some((found.ino(), found.created().ok()))
}

impl TenantReader {
    pub(super) fn new(name: &str, path: PathBuf) -> Self {
        let is_transient = tenant_directories::read_record(name, &path).is_ok_and(|grant| grant.is_transient);
        let directory = made(&path);
        Self {
            path,
            directory,
            files: None,
            members: Members::default(),
            seen: Tenant {
                id: name.to_owned(),
                inode: directory.map_or(0, |(inode, _)| inode),
                is_transient,
                ..Tenant::default()
            },
            totals: Vec::new(),
            unregistered: Vec::new(),
            has_kept: false,
            is_stale: true,
        }
    }

    /// Whether this is still the directory at `path`, and no other one that has its name now.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        self.path == path && self.directory.is_some() && self.directory == made(path)
    }

    pub(super) fn seen(&self) -> &Tenant {
        &self.seen
    }

    pub(super) fn members_version(&self) -> u64 {
        self.members.version
    }

    pub(super) fn set_members(&mut self, members: Members) {
        self.members = members;
        self.is_stale = true;
    }

    /// Reads what has changed. If the files cannot be used, the state stays and the next update opens them again. Returns whether
    /// the state has changed, or may change without a notification.
    pub(super) fn update(&mut self, reaper: &mut Reaper, now_ns: u64) -> bool {
        let updated = self.open(now_ns).and_then(|()| self.update_from_files(reaper, now_ns));
        match updated {
            Ok(has_changed) => {
                let had_problem = self.seen.problem.take().is_some();
                has_changed || had_problem
            }
            Err(why) => {
                self.files = None;
                self.is_stale = true;
                self.seen.problem = Some(why);
                true
            }
        }
    }

    /// Reads the open files once more after the directory has gone. What cannot be read stays as it was.
    pub(super) fn finish(&mut self, reaper: &mut Reaper, now_ns: u64) {
        let _ = self.update_from_files(reaper, now_ns);
    }

    fn open(&mut self, now_ns: u64) -> Result<(), String> {
        let say = |error: OpenError| error.to_string();
        if let Some(files) = &mut self.files {
            if now_ns < files.checked_ns.saturating_add(CHECK_NS) {
                return Ok(());
            }
            files.checked_ns = now_ns;
            files.limits.reread().map_err(say)?;
            if inodes(&self.path) == Some(files.inodes) {
                return Ok(());
            }
            // A process that can write in the directory has replaced it, or the directory is a new one of the same name. The
            // totals start again.
            self.files = None;
            self.totals.clear();
            return Err(format!("a file in {} was replaced", self.path.display()));
        }
        let inodes = inodes(&self.path).ok_or_else(|| format!("{} is not whole", self.path.display()))?;
        let (limits, reader) =
            (LimitsReader::open(&self.path).map_err(say)?, UsageReader::open(&self.path).map_err(say)?);
        self.files =
            Some(Files { limits, reader, digest: UsageDigest::default(), inodes, checked_ns: now_ns });
        self.is_stale = true;
        Ok(())
    }

    fn update_from_files(&mut self, reaper: &mut Reaper, now_ns: u64) -> Result<bool, String> {
        self.update_limits()?;
        let Some(files) = &mut self.files else {
            return Ok(true);
        };
        let devices = self.seen.devices.len();
        let has_changed =
            files.reader.has_changed(devices, &mut files.digest).map_err(|error| error.to_string())?;
        let is_settling = self.seen.devices.iter().any(|device| device.cores_used_permille > 0);
        // The slots, which hold the identities, have not changed: only the liveness of the processes is checked.
        let members = &self.members;
        let reader = &files.reader;
        let has_ended = |(slot, one, host_pid): &(usize, Identity, Option<u32>), reaper: &mut Reaper| {
            let is_unlocked = || reader.is_unlocked(*slot, one);
            reaper.fate(one, members, is_unlocked, now_ns) != Fate::Alive(*host_pid)
        };
        let may_differ = has_changed || self.is_stale || is_settling || self.has_kept;
        let may_differ = may_differ || self.unregistered.iter().any(|one| has_ended(one, reaper));
        if may_differ {
            self.update_usage(reaper, now_ns).map_err(|error| error.to_string())?;
            self.is_stale = false;
        }
        // The end of a process that has not registered is not notified.
        Ok(may_differ || !self.unregistered.is_empty())
    }

    /// Reads changed `limits`: the devices and their configuration. The use so far is kept for each GPU that stays.
    fn update_limits(&mut self) -> Result<(), String> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        if !files.limits.refresh().map_err(|error| error.to_string())? && !self.is_stale {
            return Ok(());
        }
        self.is_stale = true;
        let limits = files.limits.limits();
        self.seen.limits_generation = limits.generation();
        self.seen.is_suspendable = limits.is_suspendable();
        let fresh = limits.devices().map(|(index, gpu)| {
            let config = limits.config(index).map_err(|damaged| damaged.to_string())?;
            let known = self.seen.devices.get(index.get()).filter(|known| known.gpu == gpu);
            Ok(known.map_or_else(|| Device::unused(gpu, config), |known| Device { config, ..*known }))
        });
        self.seen.devices = fresh.collect::<Result<_, String>>()?;
        self.totals.resize_with(self.seen.devices.len(), Totals::default);
        Ok(())
    }

    /// Reads the processes in `usage` and the tenant's use of each device.
    fn update_usage(&mut self, reaper: &mut Reaper, now_ns: u64) -> Result<(), OpenError> {
        let Some(Files { reader, .. }) = &self.files else {
            return Ok(());
        };
        let processes = reader.all_processes(self.seen.devices.len())?;
        let holders = SlotProcesses::classify(processes, reader, &self.members, reaper, now_ns);
        self.has_kept = holders.has_kept || !reader.left()?.is_empty();
        self.unregistered = holders.not_registered(&self.members);
        for (position, device) in self.seen.devices.iter_mut().enumerate() {
            let (Some(index), Some(totals)) = (DeviceIndex::new(position), self.totals.get_mut(position))
            else {
                continue;
            };
            holders.update_device(device, index, reader, totals, now_ns)?;
        }
        self.seen.processes = holders.process_list(&self.members);
        self.seen.attached =
            self.seen.processes.iter().any(|one| one.registered && !one.used_bytes.is_empty());
        Ok(())
    }
}

fn inodes(directory: &Path) -> Option<[(u64, u64); 2]> {
    let inode = |name| {
        let found = directory.join(name).symlink_metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    Some([inode("limits")?, inode("usage")?])
}
