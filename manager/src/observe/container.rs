//! One container: its files, kept open, and what was last seen in them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vcuda_region::DeviceIndex;
use vcuda_region::limits::{LimitsReader, OpenError};
use vcuda_region::process::Identity;
use vcuda_region::usage_reader::{ProcessUse, UsageDigest, UsageReader};

use super::totals::{Recent, Totals};
use super::{Container, Device, Process};
use crate::reaper::{Fate, Reaper};
use crate::registration::{Key, Members};

/// How often the whole of `limits` is checked, and whether the files are still those that were opened (ns).
const CHECK_NS: u64 = 5_000_000_000;

/// A container that is looked at again and again.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    files: Option<Files>,
    members: Members,
    seen: Container,
    totals: Vec<Totals>,
    /// Those that hold a slot and have not registered, with their PIDs on the host if known: of their end nobody tells.
    unsure: Vec<(Identity, Option<u32>)>,
    /// A child keeps memory of a dead process. The manager is not told of the child's end: each look asks again.
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
            seen: Container {
                id: name.to_owned(),
                is_granted,
                ..Container::default()
            },
            totals: Vec::new(),
            unsure: Vec::new(),
            has_kept: false,
            is_stale: true,
        }
    }

    /// What was seen at the last look.
    pub(super) fn seen(&self) -> &Container {
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

    /// Looks at what has changed. Files that cannot be used are opened again each time; until then the figures stay.
    pub(super) fn look(&mut self, reaper: &mut Reaper, now_ns: u64) {
        let looked = self.open(now_ns).and_then(|()| self.follow(reaper, now_ns));
        match looked {
            Ok(()) => self.seen.problem = None,
            Err(why) => {
                self.files = None;
                self.is_stale = true;
                self.seen.problem = Some(why);
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
            // By whoever can write in the directory, or it is a new one of the same name: its figures begin anew.
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

    fn follow(&mut self, reaper: &mut Reaper, now_ns: u64) -> Result<(), String> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let say = |error: OpenError| error.to_string();
        if files.limits.refresh().map_err(say)? || self.is_stale {
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
        }
        let devices = self.seen.devices.len();
        let has_changed = files
            .reader
            .has_changed(devices, &mut files.digest)
            .map_err(say)?;
        let is_settling = self
            .seen
            .devices
            .iter()
            .any(|device| device.cores_used_permille > 0);
        // Who they are was read of the slots, which have not changed: only whether they still live is asked again.
        let members = &self.members;
        let has_ended = |(one, host_pid): &(Identity, Option<u32>), reaper: &mut Reaper| {
            reaper.fate(one, members, now_ns) != Fate::Alive(*host_pid)
        };
        let may_differ = has_changed || self.is_stale || is_settling || self.has_kept;
        if may_differ || self.unsure.iter().any(|one| has_ended(one, reaper)) {
            let processes = files.reader.all_processes(devices).map_err(say)?;
            let fates = split(processes, &files.reader, &self.members, reaper, now_ns);
            let living = &fates.living;
            self.has_kept = fates.has_kept;
            self.unsure = living
                .iter()
                .filter(|(one, _)| !is_member(&self.members, one))
                .map(|(one, host_pid)| (one.identity, *host_pid))
                .collect();
            for (position, device) in self.seen.devices.iter_mut().enumerate() {
                let (Some(index), Some(totals)) = (DeviceIndex::new(position), self.totals.get_mut(position))
                else {
                    continue;
                };
                figures(device, index, &files.reader, &fates, totals, now_ns).map_err(say)?;
            }
            self.seen.processes = processes_of(living, &self.members);
            self.seen.attached = self
                .seen
                .processes
                .iter()
                .any(|one| one.registered && !one.used_bytes.is_empty());
            self.is_stale = false;
        }
        Ok(())
    }
}

type Living = Vec<(ProcessUse, Option<u32>)>;

/// What became of those that hold a slot.
struct Fates {
    /// The living processes, each with its PID on the host.
    living: Living,
    /// Whether a child keeps memory of a dead one.
    has_kept: bool,
    /// The other dead, which have nothing any more.
    dead: Vec<ProcessUse>,
}

fn split(
    processes: Vec<ProcessUse>,
    reader: &UsageReader,
    members: &Members,
    reaper: &mut Reaper,
    now_ns: u64,
) -> Fates {
    let (mut living, mut has_kept, mut dead) = (Vec::new(), false, Vec::new());
    for process in processes {
        match reaper.fate(&process.identity, members, now_ns) {
            Fate::Alive(host_pid) => living.push((process, host_pid)),
            Fate::Dead if reader.is_kept(process.slot, &process.identity) => has_kept = true,
            Fate::Dead => dead.push(process),
        }
    }
    Fates {
        living,
        has_kept,
        dead,
    }
}

fn is_member(members: &Members, process: &ProcessUse) -> bool {
    let key = Key::of(&process.identity);
    members.living.iter().any(|known| Key::of(&known.identity) == key)
}

fn release_of(members: &Members, process: &ProcessUse) -> Option<u32> {
    let key = Key::of(&process.identity);
    let mut known = members.living.iter();
    Some(known.find(|known| Key::of(&known.identity) == key)?.release)
}

/// What the container has of one device now: that of its living processes, what they share, and what children keep of dead
/// ones.
fn figures(
    device: &mut Device,
    index: DeviceIndex,
    reader: &UsageReader,
    Fates {
        living,
        has_kept,
        dead,
    }: &Fates,
    totals: &mut Totals,
    now_ns: u64,
) -> Result<(), OpenError> {
    let own = |process: &ProcessUse| process.devices.get(index.get()).copied().unwrap_or_default();
    device.used_bytes = if living.is_empty() && !has_kept {
        0
    } else {
        let of_dead = dead
            .iter()
            .fold(0_u64, |sum, process| sum.saturating_add(own(process).used_bytes));
        reader.memory(index)?.used_bytes.saturating_sub(of_dead)
    };
    let uses = || living.iter().map(|(process, _)| own(process));
    device.overhead_bytes = uses()
        .fold(0_u64, |sum, one| sum.saturating_add(one.overhead_bytes))
        .min(device.used_bytes);
    let peak = uses().map(|one| one.peak_bytes).max().unwrap_or(0);
    device.peak_bytes = device.peak_bytes.max(device.used_bytes).max(peak);
    let bucket = reader.bucket(index)?;
    device.denied = bucket.denied;
    device.served_ns = bucket.served_ns;
    device.forgiven_ns = bucket.forgiven_ns;
    device.host_copies = bucket.host_copies;
    device.host_copied_bytes = bucket.host_copied_bytes;
    for process in living.iter().map(|(process, _)| process).chain(dead) {
        let one = own(process);
        totals.add(
            process.slot,
            Key::of(&process.identity),
            [one.launches, one.held_ns],
        );
    }
    [device.launches, device.held_ns] = totals.sums();
    device.cores_used_permille = totals.recent(Recent {
        at_ns: now_ns,
        served_ns: bucket.served_ns,
    });
    Ok(())
}

/// The processes to show: those that hold a slot, and those that have registered without one.
fn processes_of(living: &Living, members: &Members) -> Vec<Process> {
    let mut shown: Vec<Process> = living
        .iter()
        .map(|(process, host_pid)| Process {
            host_pid: *host_pid,
            pid: process.identity.pid,
            name: process.identity.command(),
            registered: is_member(members, process),
            release: release_of(members, process),
            used_bytes: process.devices.iter().map(|device| device.used_bytes).collect(),
        })
        .collect();
    let has_slot = |key: Key| {
        living
            .iter()
            .any(|(process, _)| Key::of(&process.identity) == key)
    };
    shown.extend(
        members
            .living
            .iter()
            .filter(|known| !has_slot(Key::of(&known.identity)))
            .map(|known| Process {
                host_pid: Some(known.host_pid),
                pid: known.identity.pid,
                name: known.identity.command(),
                registered: true,
                release: Some(known.release),
                used_bytes: Vec::new(),
            }),
    );
    shown
}

fn inodes(directory: &Path) -> Option<[(u64, u64); 2]> {
    let inode = |name| {
        let found = directory.join(name).symlink_metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    Some([inode("limits")?, inode("usage")?])
}
