//! One tenant: its files, kept open, and what was last read from them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vcuda_region::DeviceIndex;
use vcuda_region::limits::{LimitsReader, OpenError};
use vcuda_region::process::Identity;
use vcuda_region::usage_reader::{UsageDigest, UsageReader};

use super::fates::Fates;
use super::totals::Totals;
use super::{Device, Tenant};
use crate::reaper::{Fate, Reaper};
use crate::registration::Members;

/// Interval of checks of the whole of `limits`, and whether the files are still those that were opened (ns).
const CHECK_NS: u64 = 14_000_000_000;

/// A tenant that is looked at again and again.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    files: Option<Files>,
    members: Members,
    seen: Tenant,
    totals: Vec<Totals>,
    /// Processes that hold a slot and have not registered: their slots, and host PIDs if known. Their end is not reported.
    unsure: Vec<(usize, Identity, Option<u32>)>,
    /// Set while a child keeps memory of a dead process. The manager does not hear of the child's end: each look asks
    /// again.
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

impl Watched {
    pub(super) fn new(name: &str, path: PathBuf) -> Self {
        let is_granted = path.join("grant").symlink_metadata().is_ok();
        Self {
            path,
            files: None,
            members: Members::default(),
            seen: Tenant {
                id: name.to_owned(),
                is_granted,
                ..Tenant::default()
            },
            totals: Vec::new(),
            unsure: Vec::new(),
            has_kept: false,
            is_stale: true,
        }
    }

    /// Findings of the last look.
    pub(super) fn seen(&self) -> &Tenant {
        &self.seen
    }

    /// That of the members that are known.
    pub(super) fn members_version(&self) -> u64 {
        self.members.version
    }

    pub(super) fn take_members(&mut self, members: Members) {
        self.members = members;
        self.is_stale = true;
    }

    /// Looks at what has changed. Files that cannot be used are opened again each time; until then the figures stay. Returns
    /// whether something has, or may by itself.
    pub(super) fn look(&mut self, reaper: &mut Reaper, now_ns: u64) -> bool {
        let looked = self.open(now_ns).and_then(|()| self.follow(reaper, now_ns));
        match looked {
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
            // A process that can write in the directory did that, or it is a new directory of the same name: the
            // figures begin anew.
            self.files = None;
            self.totals.clear();
            return Err(format!("a file in {} was replaced", self.path.display()));
        }
        let inodes = inodes(&self.path).ok_or_else(|| format!("{} is not whole", self.path.display()))?;
        let (limits, reader) = (
            LimitsReader::open(&self.path).map_err(say)?,
            UsageReader::open(&self.path).map_err(say)?,
        );
        self.files = Some(Files {
            limits,
            reader,
            digest: UsageDigest::default(),
            inodes,
            checked_ns: now_ns,
        });
        self.seen.is_granted = self.path.join("grant").symlink_metadata().is_ok();
        self.is_stale = true;
        Ok(())
    }

    fn follow(&mut self, reaper: &mut Reaper, now_ns: u64) -> Result<bool, String> {
        self.follow_limits()?;
        let Some(files) = &mut self.files else {
            return Ok(true);
        };
        let devices = self.seen.devices.len();
        let has_changed = files
            .reader
            .has_changed(devices, &mut files.digest)
            .map_err(|error| error.to_string())?;
        let is_settling = self
            .seen
            .devices
            .iter()
            .any(|device| device.cores_used_permille > 0);
        // The slots, which tell the processes' identities, have not changed: only their liveness is asked again.
        let members = &self.members;
        let reader = &files.reader;
        let has_ended = |(slot, one, host_pid): &(usize, Identity, Option<u32>), reaper: &mut Reaper| {
            let is_unlocked = || reader.is_unlocked(*slot, one);
            reaper.fate(one, members, is_unlocked, now_ns) != Fate::Alive(*host_pid)
        };
        let may_differ = has_changed || self.is_stale || is_settling || self.has_kept;
        let may_differ = may_differ || self.unsure.iter().any(|one| has_ended(one, reaper));
        if may_differ {
            self.follow_usage(reaper, now_ns)
                .map_err(|error| error.to_string())?;
            self.is_stale = false;
        }
        // Of the end of a process that has not registered no one tells.
        Ok(may_differ || !self.unsure.is_empty())
    }

    /// Takes over what has changed in `limits`: its devices, each with what is known of its use so far.
    fn follow_limits(&mut self) -> Result<(), String> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        if !files.limits.refresh().map_err(|error| error.to_string())? && !self.is_stale {
            return Ok(());
        }
        self.is_stale = true;
        let limits = files.limits.limits();
        self.seen.limits_generation = limits.generation();
        let fresh = limits.devices().map(|(index, gpu)| {
            let config = limits.config(index).map_err(|damaged| damaged.to_string())?;
            let known = self
                .seen
                .devices
                .get(index.get())
                .filter(|known| known.gpu == gpu);
            Ok(known.map_or_else(
                || Device::unused(gpu, config),
                |known| Device { config, ..*known },
            ))
        });
        self.seen.devices = fresh.collect::<Result<_, String>>()?;
        self.totals.resize_with(self.seen.devices.len(), Totals::default);
        Ok(())
    }

    /// Reads the processes of `usage`, and the tenant's use of each device.
    fn follow_usage(&mut self, reaper: &mut Reaper, now_ns: u64) -> Result<(), OpenError> {
        let Some(Files { reader, .. }) = &self.files else {
            return Ok(());
        };
        let processes = reader.all_processes(self.seen.devices.len())?;
        let fates = Fates::split(processes, reader, &self.members, reaper, now_ns);
        self.has_kept = fates.has_kept;
        self.unsure = fates.not_registered(&self.members);
        for (position, device) in self.seen.devices.iter_mut().enumerate() {
            let (Some(index), Some(totals)) = (DeviceIndex::new(position), self.totals.get_mut(position))
            else {
                continue;
            };
            fates.figures(device, index, reader, totals, now_ns)?;
        }
        self.seen.processes = fates.shown(&self.members);
        self.seen.attached = self
            .seen
            .processes
            .iter()
            .any(|one| one.registered && !one.used_bytes.is_empty());
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
