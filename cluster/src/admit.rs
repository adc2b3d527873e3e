//! Admission of a pod: what it asks for, brought into the form that the node's parts take, or a sentence why not. No network,
//! no clock: a pod and the rules in, a pod out.
//!
//! The story of one pod: requests of other systems are rewritten ([`foreign`]); each container's request becomes counts with
//! defaults ([`share`]); annotations are checked in the device plugin's own words; in mode dra the counts become a claim
//! ([`claims`]); toleration and runtime class are added. [`confine`] refuses pods that would defeat the limits. What a pod or a
//! claim chooses is within the bounds of its namespace ([`validate_claim`]).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use vcuda_quota::pods::annotations::{DOMAIN, quota_change};
use vcuda_quota::pods::{AmountsError, Counts, CountsError, lowered_quota, without_guarantee};
use vcuda_quota::{Policy, QuotaChange};

mod claim_bounds;
pub(crate) mod claims;
pub(crate) mod confine;
pub(crate) mod foreign;
pub(crate) mod pod;
mod refusal;
mod rules;
mod share;

pub(crate) use claim_bounds::validate_claim;
pub(crate) use refusal::{Refusal, RequestError};
pub(crate) use rules::{AliyunUnit, Mode, Rules};
pub(crate) use share::Share;

/// Annotation by which a pod chooses between counts and claims. It is for the webhook alone, and taken off.
const MODE: &str = "vcuda.io/mode";
/// All of a GPU's time (thousandths).
const WHOLE_PERMILLE: u32 = 1000;

/// The pod of this namespace as it is to be made. One that asks for no share stays as it is.
pub(crate) fn admit(namespace: &str, pod: &Value, rules: &Rules) -> Result<Value, Refusal> {
    let mut edited = pod.clone();
    foreign::convert(&mut edited, rules)?;
    let shares = shares(&edited, rules)?;
    if shares.iter().all(Option::is_none) {
        check_words(namespace, &edited, rules)?;
        return Ok(pod.clone());
    }
    let mode = take_mode(&mut edited, rules)?;
    write_choices(&mut edited, &shares, mode, rules)?;
    check_choices(namespace, &edited, &shares, (mode, rules))?;
    match mode {
        Mode::Dra => claims::convert(&mut edited, &shares, rules),
        Mode::Plugin => {
            let mut of_containers = shares.iter();
            pod::edit_containers(&mut edited, |container| {
                if let Some(Some(share)) = of_containers.next() {
                    share.write(container, rules);
                }
                Ok::<(), Refusal>(())
            })?;
        }
    }
    place(&mut edited, rules);
    Ok(edited)
}

/// Checks a pod as it will be made, after all webhooks that change pods.
pub(crate) fn validate(namespace: &str, pod: &Value, rules: &Rules) -> Result<(), Refusal> {
    let shares = shares(pod, rules)?;
    let has_counts = shares.iter().any(Option::is_some);
    if has_counts && !has_claim(pod) {
        check_choices(namespace, pod, &shares, (Mode::Plugin, rules))?;
    } else {
        check_words(namespace, pod, rules)?;
    }
    let Ok(typed) = serde_json::from_value::<Pod>(pod.clone()) else {
        return Err(Refusal::Defeats("it is not a pod that this release can read".to_owned()));
    };
    // A claim of any driver: a pod names its claim, and what it is of is not known here.
    let spec = typed.spec.as_ref();
    let has_claims = spec.is_some_and(|spec| spec.resource_claims.iter().flatten().next().is_some());
    confine::check(&typed, has_counts || has_claims, &rules.host_paths)
}

/// Whether the pod has a claim that [`admit`] made for it.
fn has_claim(pod: &Value) -> bool {
    let claims = pod.pointer("/spec/resourceClaims").and_then(Value::as_array);
    claims.into_iter().flatten().any(|claim| claim["name"] == claims::CLAIM)
}

/// Shares of the pod's containers, in the order of [`pod::containers`].
fn shares(pod: &Value, rules: &Rules) -> Result<Vec<Option<Share>>, Refusal> {
    let empty = Map::new();
    let of_container = |container: &Value| {
        let container = container.as_object().unwrap_or(&empty);
        Share::asked(container, rules).map_err(|error| Refusal::Container(pod::name(container), error))
    };
    pod::containers(pod).map(of_container).collect()
}

/// Names of the containers that have shares.
fn names(pod: &Value, shares: &[Option<Share>]) -> Vec<(String, Share)> {
    let named = pod::containers(pod).zip(shares).filter_map(|(container, share)| {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        Some((name.to_owned(), (*share)?))
    });
    named.collect()
}

/// Takes the annotation off that names the mode.
fn take_mode(pod: &mut Value, rules: &Rules) -> Result<Mode, Refusal> {
    let annotations = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(mode) = annotations.and_then(|annotations| annotations.remove(MODE)) else {
        return Ok(rules.mode);
    };
    match mode.as_str() {
        Some("plugin") => Ok(Mode::Plugin),
        Some("dra") if rules.makes_claims => Ok(Mode::Dra),
        Some("dra") => Err(Refusal::NoClaims),
        other => Err(Refusal::Mode(other.unwrap_or_default().to_owned())),
    }
}

/// Adds the annotations that say what counts cannot: a fraction of a percent, and no promise of time.
fn write_choices(
    pod: &mut Value,
    shares: &[Option<Share>],
    mode: Mode,
    rules: &Rules,
) -> Result<(), Refusal> {
    for (name, share) in names(pod, shares) {
        if let Some(permille) = share.cores_permille {
            let percent = vcuda_quota::CoreShare(permille).percent();
            foreign::annotate_container(pod, "cores", &name, &percent)?;
        }
        // A claim says so by itself. Kubelet counts whole percents: one is promised, and idle time is borrowed.
        if mode == Mode::Plugin && share.is_unpromised {
            let chosen = quota_change(&pod::annotations(pod), &name, &BTreeSet::new())?;
            match chosen.policy {
                None => foreign::annotate_container(pod, "policy", &name, Policy::Burst.name())?,
                Some(Policy::Burst) => {}
                Some(_) => return Err(Refusal::Container(name, without_cores(&share, rules).into())),
            }
        }
    }
    Ok(())
}

/// The device plugin's sentence for a container that asks for no share of time.
fn without_cores(share: &Share, rules: &Rules) -> CountsError {
    let counts =
        Counts { gpus: share.gpus, chunks: share.each.chunks.saturating_mul(share.gpus), percents: 0 };
    let error = counts.of_each_gpu(rules.chunk_bytes, rules.resources_of(share.is_suspendable));
    error.err().unwrap_or_else(|| unreachable!("no percent is always refused"))
}

/// Checks the annotations of a pod of `namespace` whose containers have these shares.
fn check_choices(
    namespace: &str,
    pod: &Value,
    shares: &[Option<Share>],
    (mode, rules): (Mode, &Rules),
) -> Result<(), Refusal> {
    let annotations = pod::annotations(pod);
    let named = names(pod, shares);
    let all: BTreeSet<String> = named.iter().map(|(name, _)| name.clone()).collect();
    for (name, share) in named {
        let mut chosen = quota_change(&annotations, &name, &all)?;
        if share.is_suspendable {
            if chosen.suspendable == Some(false) {
                return Err(Refusal::Container(name, AmountsError::NotSuspendable.into()));
            }
            chosen.suspendable = Some(true);
        }
        let (bytes, promised) = match mode {
            Mode::Dra if share.is_unpromised => (share.memory_bytes, 0),
            Mode::Dra => (share.memory_bytes, share.each.percents * 10),
            Mode::Plugin => {
                (u64::from(share.each.chunks).saturating_mul(rules.chunk_bytes), share.each.percents * 10)
            }
        };
        let most = if promised == 0 { WHOLE_PERMILLE } else { promised };
        let change = without_guarantee(promised, chosen);
        let checked = lowered_quota(bytes, most, &change).map_err(RequestError::from);
        checked
            .and_then(|quota| check_bounds(namespace, &change, quota.cores_permille, rules))
            .map_err(|error| Refusal::Container(name, error))?;
    }
    Ok(())
}

/// Checks that the namespace allows this change of a share that is promised `cores_permille` of GPU time.
fn check_bounds(
    namespace: &str,
    change: &QuotaChange,
    cores_permille: u32,
    rules: &Rules,
) -> Result<(), RequestError> {
    let checked = rules.bounds.check_change(namespace, change, cores_permille);
    checked.map_err(RequestError::Bounds)
}

/// Checks annotations of ours on a pod whose containers are not known to have shares. Amounts of its claims are not known, so
/// the manager decides about what depends on them.
fn check_words(namespace: &str, pod: &Value, rules: &Rules) -> Result<(), Refusal> {
    let mut annotations = pod::annotations(pod);
    annotations.retain(|key, _| key.starts_with(DOMAIN) && key != MODE);
    quota_change(&annotations, "", &BTreeSet::new())?;
    let has_claims = |container: &&Value| container.pointer("/resources/claims").is_some();
    for container in pod::containers(pod).filter(has_claims) {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let change = quota_change(&annotations, name, &BTreeSet::new())?;
        let check = |change: &QuotaChange| check_bounds(namespace, change, WHOLE_PERMILLE, rules);
        // Allowed either with a promise of time or without one.
        check(&change)
            .or_else(|why| check(&without_guarantee(0, change)).map_err(|_| why))
            .map_err(|error| Refusal::Container(name.to_owned(), error))?;
    }
    Ok(())
}

/// Adds tolerations and the runtime class.
fn place(pod: &mut Value, rules: &Rules) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for toleration in &rules.tolerations {
        let has = spec.get("tolerations").and_then(Value::as_array);
        if !has.is_some_and(|has| has.contains(toleration)) {
            pod::push(spec, "tolerations", toleration.clone());
        }
    }
    if let Some(class) = &rules.runtime_class
        && spec.get("runtimeClassName").is_none_or(Value::is_null)
    {
        spec.insert("runtimeClassName".to_owned(), json!(class));
    }
}

#[cfg(test)]
mod tests;
