//! Processes that hold a slot of a tenant, living and dead, and the tenant's figures without the dead ones.

use vcuda_region::DeviceIndex;
use vcuda_region::limits::OpenError;
use vcuda_region::process::Identity;
use vcuda_region::usage_reader::{ProcessUse, UsageReader};

use super::totals::{Recent, Totals};
use super::{Device, Process};
use crate::reaper::{Fate, Reaper};
use crate::registration::{Key, Members};

/// The processes that hold a slot, by whether they live.
pub(super) struct SlotProcesses {
    /// The living processes, each with its PID on the host if known.
    living: Vec<(ProcessUse, Option<u32>)>,
    /// Whether a child keeps memory of a dead process.
    pub(super) has_kept: bool,
    /// Dead processes of which no child keeps memory.
    dead: Vec<ProcessUse>,
}

impl SlotProcesses {
    /// Sorts the processes by whether they live.
    pub(super) fn classify(
        processes: Vec<ProcessUse>,
        reader: &UsageReader,
        members: &Members,
        reaper: &mut Reaper,
        now_ns: u64,
    ) -> Self {
        let (mut living, mut has_kept, mut dead) = (Vec::new(), false, Vec::new());
        for process in processes {
            let is_unlocked = || reader.is_unlocked(process.slot, &process.identity);
            match reaper.fate(&process.identity, members, is_unlocked, now_ns) {
                Fate::Alive(host_pid) => living.push((process, host_pid)),
                Fate::Dead if reader.is_kept(process.slot, &process.identity) => has_kept = true,
                Fate::Dead => dead.push(process),
            }
        }
        Self { living, has_kept, dead }
    }

    /// Living processes that have not registered: slot, identity, and the PID on the host if known.
    pub(super) fn not_registered(&self, members: &Members) -> Vec<(usize, Identity, Option<u32>)> {
        let living = self.living.iter();
        living
            .filter(|(process, _)| !is_member(members, process))
            .map(|(process, host_pid)| (process.slot, process.identity, *host_pid))
            .collect()
    }

    /// Updates the tenant's use of a device: that of its living processes, their shared memory, memory that children keep of
    /// dead processes, and exported memory that outlives them.
    pub(super) fn update_device(
        &self,
        device: &mut Device,
        index: DeviceIndex,
        reader: &UsageReader,
        totals: &mut Totals,
        now_ns: u64,
    ) -> Result<(), OpenError> {
        let own = |process: &ProcessUse| process.devices.get(index.get()).copied().unwrap_or_default();
        device.used_bytes = if self.living.is_empty() && !self.has_kept {
            reader.left_bytes(index)?
        } else {
            let of_dead =
                self.dead.iter().fold(0_u64, |sum, process| sum.saturating_add(own(process).used_bytes));
            reader.memory(index)?.used_bytes.saturating_sub(of_dead)
        };
        let uses = || self.living.iter().map(|(process, _)| own(process));
        device.overhead_bytes =
            uses().fold(0_u64, |sum, one| sum.saturating_add(one.overhead_bytes)).min(device.used_bytes);
        let bucket = reader.bucket(index)?;
        let of_processes = reader.peak_bytes(index)?.max(bucket.peak_bytes);
        device.peak_bytes = device.peak_bytes.max(device.used_bytes).max(of_processes);
        device.denied = bucket.denied;
        device.denied_bytes = bucket.denied_bytes;
        device.denied_used_bytes = bucket.denied_used_bytes;
        device.served_ns = bucket.served_ns;
        device.forgiven_ns = bucket.forgiven_ns;
        device.host_copies = bucket.host_copies;
        device.host_copied_bytes = bucket.host_copied_bytes;
        for process in self.living.iter().map(|(process, _)| process).chain(&self.dead) {
            let one = own(process);
            totals.add(
                process.slot,
                Key::of(&process.identity),
                [one.launches, one.held_ns, one.debt_admits],
            );
        }
        [device.launches, device.held_ns, device.debt_admits] = totals.sums();
        device.cores_used_permille = totals.recent(Recent { at_ns: now_ns, served_ns: bucket.served_ns });
        Ok(())
    }

    /// Living processes that hold a slot, then those that have registered without one.
    pub(super) fn process_list(&self, members: &Members) -> Vec<Process> {
        let mut list: Vec<Process> = self
            .living
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
        let has_slot = |key: Key| self.living.iter().any(|(process, _)| Key::of(&process.identity) == key);
        list.extend(members.living.iter().filter(|known| !has_slot(Key::of(&known.identity))).map(|known| {
            Process {
                host_pid: Some(known.host_pid),
                pid: known.identity.pid,
                name: known.identity.command(),
                registered: true,
                release: Some(known.release),
                used_bytes: Vec::new(),
            }
        }));
        list
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
