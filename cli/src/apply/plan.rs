//! The difference between a file of grants and the node's grants.

use std::path::Path;
use std::time::Duration;

use vcuda_manager_api::v1::{Grant, Holder};
use vcuda_quota::{CoreShare, MemorySize, Quota};
use vcuda_region::room::USUAL_WAIT_MS;

use super::file::{Wanted, WantedGpus, wrong};
use crate::failure::Failure;
use crate::grant::user_name;
use crate::manager_client::view;
use crate::render::quota::{described, lasting};

/// A change that brings the node nearer to the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// A grant that is not there.
    Create(Wanted),
    /// A grant with another quota.
    Resize(Box<Grant>, Quota),
    /// A grant that is not in the file.
    Release(Box<Grant>),
}

/// All changes, in the order in which they are made: first those that free room.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// Number of grants that are as the file says.
    pub(super) unchanged: usize,
}

/// The changes from `present` to `wanted`; with `prune` also the release of what is not wanted, but for grants of pods.
///
/// # Errors
/// Fails if a grant of the file is a pod's, or differs from the file in what a grant keeps: its user, its GPUs, whether it may be
/// suspended, and how long it waits for memory.
pub(super) fn plan(path: &Path, wanted: &[Wanted], present: &[Grant], prune: bool) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    for wanted in wanted {
        let Some(grant) = present.iter().find(|grant| grant.key == wanted.name) else {
            plan.changes.push(Change::Create(wanted.clone()));
            continue;
        };
        check(wanted, grant).map_err(|words| wrong(path, wanted.line, &words))?;
        if lasting(grant) == wanted.quota {
            plan.unchanged += 1;
        } else {
            plan.changes.push(Change::Resize(Box::new(grant.clone()), wanted.quota));
        }
    }
    let is_wanted = |grant: &Grant| wanted.iter().any(|wanted| wanted.name == grant.key);
    let unwanted = present.iter().filter(|grant| prune && is_known_as_no_pods(grant) && !is_wanted(grant));
    plan.changes.extend(unwanted.map(|grant| Change::Release(Box::new(grant.clone()))));
    plan.changes.sort_by_key(Change::order);
    Ok(plan)
}

/// Whether it is known that no pod has this grant. Of one that was rebuilt from a tenant's limits alone, which tell no time of creation,
/// it is not.
fn is_known_as_no_pods(grant: &Grant) -> bool {
    !is_pods(grant) && grant.created_unix_ms != 0
}

/// Whether a pod has this grant.
fn is_pods(grant: &Grant) -> bool {
    grant.holder.as_ref().is_some_and(|holder| *holder != Holder::default())
}

fn check(wanted: &Wanted, grant: &Grant) -> Result<(), String> {
    let name = &wanted.name;
    if is_pods(grant) {
        let holder = grant.holder.as_ref().and_then(view::words).unwrap_or_default();
        return Err(format!(
            "name '{name}': a grant of Kubernetes ({holder}); change its pod, and take it out of the file"
        ));
    }
    if wanted.user.is_some() && wanted.user != grant.user_uid {
        let has = grant.user_uid.map_or_else(|| "no user".to_owned(), user_name);
        return Err(format!(
            "name '{name}': {} counts for {has}; a grant keeps its user: release it first",
            grant.id
        ));
    }
    check_suspension(wanted, grant)?;
    let has = grant.gpu_uuids.len();
    let differs = |says: String| {
        Err(format!(
            "name '{name}': {} has {}, the file says {says}; a grant keeps its GPUs: release it first",
            grant.id,
            grant.gpu_uuids.join(", ")
        ))
    };
    match &wanted.gpus {
        WantedGpus::Number(Some(number)) if usize::try_from(*number) != Ok(has) => {
            differs(format!("gpus: {number}"))
        }
        WantedGpus::Named(uuids) if *uuids != grant.gpu_uuids => {
            differs(format!("gpu: {}", uuids.join(", ")))
        }
        _ => Ok(()),
    }
}

/// Checks what is fixed when a grant is made, as its processes read it once.
fn check_suspension(wanted: &Wanted, grant: &Grant) -> Result<(), String> {
    let name = &wanted.name;
    if wanted.is_suspendable != grant.suspendable {
        let (has, says) = match grant.suspendable {
            true => ("is suspendable", "it is not"),
            false => ("is not suspendable", "it is"),
        };
        return Err(format!(
            "name '{name}': {} {has}, the file says {says}; that cannot be changed later: release it first",
            grant.id
        ));
    }
    let wait_ms = |wait_ms: Option<u32>| wait_ms.unwrap_or(USUAL_WAIT_MS);
    let [has, says] = [grant.memory_wait_ms, wanted.memory_wait_ms].map(wait_ms);
    if has != says {
        let [has, says] = [has, says].map(|wait_ms| Duration::from_millis(wait_ms.into()));
        return Err(format!(
            "name '{name}': {} waits {has:?} for memory, the file says wait-for-memory: {says:?}; that cannot be changed later: \
             release it first",
            grant.id
        ));
    }
    Ok(())
}

impl Change {
    fn order(&self) -> u8 {
        match self {
            Self::Release(_) => 0,
            Self::Resize(grant, after) if !is_larger(&lasting(grant), after) => 1,
            Self::Resize(..) => 2,
            Self::Create(_) => 3,
        }
    }

    /// The change in words, such as `change web-1: memory 2 GiB -> 4 GiB`.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Create(wanted) => {
                let gpus = match &wanted.gpus {
                    WantedGpus::Number(number) => format!("{} GPU(s)", number.unwrap_or(1)),
                    WantedGpus::Named(uuids) => uuids.join(", "),
                };
                format!("create {}: {} on {gpus}", wanted.name, described(&wanted.quota))
            }
            Self::Resize(grant, after) => {
                format!("change {}: {}", grant.id, differences(&lasting(grant), after).join(", "))
            }
            Self::Release(grant) => format!("release {}: {}", grant.id, described(&lasting(grant))),
        }
    }
}

/// Whether `after` takes more of a GPU in any amount.
fn is_larger(before: &Quota, after: &Quota) -> bool {
    let bytes = |quota: &Quota| quota.memory_bytes.unwrap_or(u64::MAX);
    bytes(after) > bytes(before) || after.reserved_permille() > before.reserved_permille()
}

/// Each part that differs, as `memory 2 GiB -> 4 GiB`.
fn differences(before: &Quota, after: &Quota) -> Vec<String> {
    let memory = |quota: &Quota| {
        quota.memory_bytes.map_or_else(|| "whole GPU".to_owned(), |bytes| MemorySize(bytes).to_string())
    };
    let parts = [
        ("memory", memory(before), memory(after)),
        ("cores", CoreShare(before.cores_permille).to_string(), CoreShare(after.cores_permille).to_string()),
        (
            "cores-max",
            CoreShare(before.cores_max_permille).to_string(),
            CoreShare(after.cores_max_permille).to_string(),
        ),
        ("policy", before.policy.to_string(), after.policy.to_string()),
        ("priority", before.priority.to_string(), after.priority.to_string()),
        ("weight", before.weight().to_string(), after.weight().to_string()),
    ];
    // The maximum follows the share but for burst, and so does the weight unless it was chosen.
    let is_shown = |name: &str| match name {
        "cores-max" => [before.policy, after.policy].contains(&vcuda_quota::Policy::Burst),
        "weight" => before.weight != after.weight,
        _ => true,
    };
    parts
        .into_iter()
        .filter(|(name, from, to)| from != to && is_shown(name))
        .map(|(name, from, to)| format!("{name} {from} -> {to}"))
        .collect()
}

#[cfg(test)]
mod tests;
