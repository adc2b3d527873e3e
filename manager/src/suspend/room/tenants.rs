//! What the manager sees of each tenant's files while it makes room: requests, and signs of use.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vcuda_region::limits::{LimitsWriter, OpenError};
use vcuda_region::room::{OFFER_EVERY_NS, bit};
use vcuda_region::suspension::SuspensionWords;
use vcuda_region::{DeviceIndex, GpuUuid};

use crate::tenant_directories::TenantDirectories;

/// Interval of the looks for signs of use (ns).
const LOOK_EVERY_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(super) struct Tenants {
    known: HashMap<String, Known>,
    /// Last change of the folders when their tenants were listed.
    listed: Option<SystemTime>,
    offered_ns: u64,
    looked_ns: u64,
}

#[derive(Debug)]
pub(super) struct Known {
    /// Inode of its directory: another tenant may have the name later.
    inode: u64,
    limits: LimitsWriter,
    words: SuspensionWords,
    gpus: Vec<(DeviceIndex, GpuUuid)>,
    pub(super) is_suspendable: bool,
    /// Number of its processes' calls at the last look.
    calls: u64,
    /// Time of the last look at which it had made a call, or had one under way (ns).
    pub(super) used_ns: u64,
    /// Time since which its memory has been on its GPUs (ns).
    pub(super) resident_ns: u64,
    /// Number of its allocations that were refused for want of room.
    denied: u32,
}

impl Known {
    fn open(directory: &Path, inode: u64, now_ns: u64) -> Result<Self, OpenError> {
        let limits = LimitsWriter::open(directory)?;
        let words = SuspensionWords::open(directory)?;
        let gpus = limits.limits().devices().collect();
        let is_suspendable = limits.limits().is_suspendable();
        Ok(Self {
            inode,
            denied: words.room_denied()?,
            limits,
            words,
            gpus,
            is_suspendable,
            calls: 0,
            used_ns: now_ns,
            resident_ns: now_ns,
        })
    }

    pub(super) fn gpus(&self) -> Vec<GpuUuid> {
        self.gpus.iter().map(|(_, gpu)| *gpu).collect()
    }

    /// Looks for calls. A file that cannot be read counts as used.
    fn look(&mut self, now_ns: u64) {
        let gates = self.words.gates().unwrap_or_default();
        let calls = gates.iter().fold(0, |sum: u64, gate| sum.wrapping_add(gate.calls));
        let is_inside = gates.iter().any(|gate| gate.inside > 0);
        if is_inside || calls != self.calls || gates.is_empty() {
            self.used_ns = now_ns;
        }
        self.calls = calls;
    }

    /// Number of refusals for want of room since the last look.
    fn new_denials(&mut self) -> u32 {
        let now = self.words.room_denied().unwrap_or(self.denied);
        let more = now.wrapping_sub(self.denied);
        self.denied = now;
        more
    }
}

impl Tenants {
    pub(super) fn find(&self, id: &str) -> Option<&Known> {
        self.known.get(id)
    }

    /// Notes that the tenant's memory has come to its GPUs.
    pub(super) fn came(&mut self, id: &str, now_ns: u64) {
        if let Some(known) = self.known.get_mut(id) {
            known.resident_ns = now_ns;
        }
    }

    /// Follows the tenants' directories, and tells each that room is made. Returns the tenants that were refused an
    /// allocation for want of room.
    pub(super) fn follow(&mut self, directories: &TenantDirectories, now_ns: u64) -> Vec<String> {
        let changed = directories.changed();
        let is_due = now_ns.saturating_sub(self.offered_ns) >= OFFER_EVERY_NS;
        if changed != self.listed || is_due {
            self.listed = changed;
            self.list(directories, now_ns);
        }
        if is_due {
            self.offered_ns = now_ns;
            // One that cannot be written is gone soon, or opened again.
            self.known.retain(|_, known| known.limits.offer_room(now_ns).is_ok());
        }
        if now_ns.saturating_sub(self.looked_ns) < LOOK_EVERY_NS {
            return Vec::new();
        }
        self.looked_ns = now_ns;
        let mut denied = Vec::new();
        for (id, known) in &mut self.known {
            if known.is_suspendable {
                known.look(now_ns);
            }
            if known.new_denials() > 0 {
                denied.push(id.clone());
            }
        }
        denied
    }

    fn list(&mut self, directories: &TenantDirectories, now_ns: u64) {
        let listed = directories.list().into_iter();
        let found: HashMap<String, (u64, PathBuf)> = listed
            .filter_map(|(name, path)| Some((name, (path.symlink_metadata().ok()?.ino(), path))))
            .collect();
        let is_same = |id: &str, known: &Known| found.get(id).is_some_and(|(inode, _)| *inode == known.inode);
        self.known.retain(|id, known| is_same(id, known));
        for (name, (inode, path)) in found {
            if self.known.contains_key(&name) {
                continue;
            }
            // One that is not whole yet is opened at the next look.
            if let Ok(known) = Known::open(&path, inode, now_ns) {
                // At once: a process of it may start now.
                let _ = known.limits.offer_room(now_ns);
                self.known.insert(name, known);
            }
        }
    }

    /// Takes the requests: each tenant with the GPUs on which it wants room.
    pub(super) fn requests(&self) -> Vec<(String, Vec<GpuUuid>)> {
        let wanting = self.known.iter().filter_map(|(id, known)| {
            let bits = known.words.take_room_wanted().unwrap_or(0);
            let wanted = known.gpus.iter().filter(|(index, _)| bits & bit(*index) != 0);
            let gpus: Vec<GpuUuid> = wanted.map(|(_, gpu)| *gpu).collect();
            (!gpus.is_empty()).then(|| (id.clone(), gpus))
        });
        wanting.collect()
    }
}
