//! What one look finds: arithmetic on what was seen, nothing else.

use std::collections::{BTreeMap, BTreeSet};

use vcuda_region::GpuUuid;

use vcuda_region::release;

use super::{DETACHED, LOOKS, NOT_ATTACHED, NOT_REGISTERED, OLDER_SHIM, OVER_LIMIT, TAMPERED, UNREGISTERED};
use crate::observe::{Container, Process, Snapshot};

/// Between what NVML says and what is counted: it rounds, and what a driver takes is charged a moment later (bytes).
const SLACK_BYTES: u64 = 64 << 20;

/// A process registers within a moment, or after two seconds where a manager was too busy: so many looks are enough.
const UNHEARD_LOOKS: u32 = 10;

/// One process on one GPU, as NVML knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) gpu: GpuUuid,
    pub(super) host_pid: u32,
    /// Memory (bytes), if NVML says.
    pub(super) used_bytes: Option<u64>,
    pub(super) owner: Owner,
}

/// Whose a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// This container's, whose limits it has loaded.
    Attached(String),
    /// This container's, and it has not.
    Inside(String),
    /// This container's, whose files were deleted: it has loaded what nobody can change any more.
    Detached(String),
    /// Nobody's that is known.
    Unknown,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) key: Key,
    /// In how many looks in a row it must be found.
    pub(super) looks: u32,
    pub(super) text: String,
    /// Something to know, not to mend: told once, and it does not stand in the findings.
    pub(super) is_note: bool,
    /// How much memory it is about (bytes).
    pub(super) bytes: u64,
}

/// What makes two findings the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) reason: &'static str,
    pub(super) container: Option<String>,
    pub(super) gpu: Option<GpuUuid>,
    pub(super) host_pid: Option<u32>,
}

impl Finding {
    pub(super) fn new(
        reason: &'static str,
        container: Option<&str>,
        gpu: Option<GpuUuid>,
        host_pid: Option<u32>,
        text: String,
    ) -> Self {
        let key = Key {
            reason,
            container: container.map(str::to_owned),
            gpu,
            host_pid,
        };
        Self {
            key,
            looks: LOOKS,
            text,
            is_note: false,
            bytes: 0,
        }
    }
}

/// The GPUs that containers were given.
pub(super) fn gpus_of(snapshot: &Snapshot) -> BTreeSet<GpuUuid> {
    let devices = snapshot
        .containers
        .iter()
        .flat_map(|container| &container.devices);
    devices.map(|device| device.gpu).collect()
}

/// All that one look finds.
pub(super) fn findings_in(snapshot: &Snapshot, uses: &[Use]) -> Vec<Finding> {
    let mut found: Vec<Finding> = uses.iter().filter_map(of_process).collect();
    let mut by_owner: BTreeMap<(&str, GpuUuid), (u64, u64)> = BTreeMap::new();
    for one in uses {
        let bytes = one.used_bytes.unwrap_or(0);
        let (name, attached) = match &one.owner {
            Owner::Attached(name) => (name, bytes),
            Owner::Inside(name) | Owner::Detached(name) => (name, 0),
            Owner::Unknown => continue,
        };
        let sums = by_owner.entry((name.as_str(), one.gpu)).or_default();
        *sums = (sums.0.saturating_add(bytes), sums.1.saturating_add(attached));
    }
    for container in &snapshot.containers {
        found.extend(of_files(container));
        found.extend(of_slots(container));
        found.extend(of_releases(container));
        for device in &container.devices {
            let sums = by_owner
                .get(&(container.id.as_str(), device.gpu))
                .copied()
                .unwrap_or_default();
            found.extend(of_amounts(container, device, sums));
        }
    }
    found
}

fn of_process(one: &Use) -> Option<Finding> {
    let Use {
        gpu, host_pid: pid, ..
    } = one;
    match &one.owner {
        Owner::Attached(_) => None,
        Owner::Inside(name) => Some(Finding::new(
            NOT_ATTACHED,
            Some(name),
            Some(*gpu),
            Some(*pid),
            format!(
                "process {pid} of {name} uses {gpu} and has not loaded its limits: is it linked statically, or was the preloaded library removed from its environment?"
            ),
        )),
        Owner::Detached(name) => Some(Finding {
            bytes: one.used_bytes.unwrap_or(0),
            ..Finding::new(
                DETACHED,
                Some(name),
                Some(*gpu),
                Some(*pid),
                format!(
                    "process {pid} of {name} uses {gpu} with files that were deleted: it keeps the limits of then, and what it has is in no figure but NVML's; restart it"
                ),
            )
        }),
        Owner::Unknown => Some(Finding {
            bytes: one.used_bytes.unwrap_or(0),
            ..Finding::new(
                UNREGISTERED,
                None,
                Some(*gpu),
                Some(*pid),
                format!(
                    "process {pid} uses {gpu}, which is shared, and belongs to no container: nothing limits it; end it, or start it with `vcuda run`"
                ),
            )
        }),
    }
}

/// A process that has memory by its slot and has not said that it is there.
fn of_slots(container: &Container) -> Option<Finding> {
    let is_unheard =
        |process: &&Process| !process.registered && process.used_bytes.iter().any(|bytes| *bytes > 0);
    let process = container.processes.iter().find(is_unheard)?;
    let text = format!(
        "process {} of {} has GPU memory by its slot and has not registered: can it reach manager.sock (mount the directory, not its files), and is its library of a release that speaks with this manager?",
        process.host_pid.unwrap_or(process.pid),
        container.id
    );
    Some(Finding {
        looks: UNHEARD_LOOKS,
        ..Finding::new(NOT_REGISTERED, Some(&container.id), None, process.host_pid, text)
    })
}

/// Processes whose library is older than the manager: they go on, and new ones of the container get the newer.
fn of_releases(container: &Container) -> Option<Finding> {
    let own = release::number();
    let is_older = |process: &&Process| process.release.is_some_and(|release| release < own);
    let older = container.processes.iter().filter(is_older).count();
    let oldest = container
        .processes
        .iter()
        .filter_map(|process| process.release)
        .min()?;
    (older > 0).then(|| Finding {
        is_note: true,
        ..Finding::new(
            OLDER_SHIM,
            Some(&container.id),
            None,
            None,
            format!(
                "{older} processes of {} have loaded libvcuda_shim {}, the manager is {}: they work together; restart them when it suits",
                container.id,
                release::name(oldest),
                release::name(own)
            ),
        )
    })
}

fn of_files(container: &Container) -> Option<Finding> {
    let problem = container.problem.as_ref()?;
    let text = format!(
        "the files of {} cannot be trusted: {problem}; start it again",
        container.id
    );
    Some(Finding {
        // Files are made whole: once is enough, but for one that is just being removed.
        looks: 2,
        ..Finding::new(TAMPERED, Some(&container.id), None, None, text)
    })
}

fn of_amounts(
    container: &Container,
    device: &crate::observe::Device,
    (all_bytes, attached_bytes): (u64, u64),
) -> Vec<Finding> {
    let (gpu, used, limit) = (device.gpu, device.used_bytes, device.config.memory_limit_bytes);
    let finding = |reason, text| Finding::new(reason, Some(&container.id), Some(gpu), None, text);
    let mut found = Vec::new();
    if limit > 0 && all_bytes.max(used) > limit.saturating_add(SLACK_BYTES) {
        let have = all_bytes.max(used);
        let text = format!(
            "{} has {have} bytes of {gpu} and may have {limit}; end its processes that use most",
            container.id
        );
        found.push(Finding {
            bytes: have - limit,
            ..finding(OVER_LIMIT, text)
        });
    }
    if attached_bytes > used.saturating_add(SLACK_BYTES.max(used / 20)) {
        found.push(finding(
            TAMPERED,
            format!(
                "{} says that it uses {used} bytes of {gpu}, and NVML says {attached_bytes}: its processes hide memory",
                container.id
            ),
        ));
    }
    found
}
