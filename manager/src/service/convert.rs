//! Conversion between the API's messages and the manager's types. All requests are checked here.

use std::ops::RangeInclusive;
use std::path::Path;

use tonic::Status;
use vcuda_cdi::ContainerEdits;
use vcuda_manager_api::v1;
use vcuda_quota::Quota;
use vcuda_quota::pods::bounds::Chosen;
use vcuda_region::{GpuUuid, MAX_DEVICES};

use crate::accounting::{By, KEPT_S};
use crate::admission::Placement;
use crate::grant::{Grant, Holder, KEY_MAX, REQUEST_MAX, RUN_MAX, is_key, is_name, is_run_name};
use crate::state::{Asked, Create, GrantError, Resize};
use crate::users::Owner;

/// Maximum length of a holder's names (Kubernetes has 253 characters).
const HOLDER_MAX: usize = 253;
/// Times for which amounts can hold (milliseconds): a second to 366 days.
const TIMES_MS: RangeInclusive<u64> = 1_000..=31_622_400_000;
/// Maximum number of GPUs in a list.
const LIST_MAX: usize = 1024;

impl From<GrantError> for Status {
    fn from(error: GrantError) -> Self {
        let text = error.to_string();
        match error {
            GrantError::NotFound(_) => Self::not_found(text),
            GrantError::Conflict(_) => Self::already_exists(text),
            GrantError::Changed(_) => Self::aborted(text),
            GrantError::NoRoom(_) => Self::resource_exhausted(text),
            GrantError::Refused(_) => Self::failed_precondition(text),
            GrantError::Denied(_) => Self::permission_denied(text),
            GrantError::Returning(_) | GrantError::Unavailable(_) => Self::unavailable(text),
        }
    }
}

fn invalid<T>(text: String) -> Result<T, Status> {
    Err(Status::invalid_argument(text))
}

/// A caller's text, shortened for an error message.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

pub(super) fn create(request: v1::CreateGrantRequest, owner: Option<Owner>) -> Result<Create, Status> {
    Ok(Create {
        owner,
        is_suspendable: request.suspendable,
        memory_wait_ms: request.memory_wait_ms,
        request_id: request_id(request.request_id)?,
        key: key("key", request.key, request.transient)?,
        is_transient: request.transient,
        holder: holder(request.holder.unwrap_or_default())?,
        chosen: chosen(&request.amounts.unwrap_or_default()),
        amounts: amounts(request.amounts)?,
        asked: asked(
            &request.gpu_uuids,
            request.gpu_count,
            request.placement,
            &request.include_gpu_uuids,
            &request.exclude_gpu_uuids,
        )?,
    })
}

pub(super) fn resize(request: v1::ResizeGrantRequest, owner: Option<Owner>) -> Result<Resize, Status> {
    Ok(Resize {
        owner,
        request_id: request_id(request.request_id)?,
        id: id(request.id)?,
        chosen: chosen(&request.amounts.unwrap_or_default()),
        amounts: amounts(request.amounts)?,
        expected_generation: (request.expected_generation != 0).then_some(request.expected_generation),
        for_ms: time_ms(request.for_ms)?,
    })
}

fn time_ms(given: u64) -> Result<Option<u64>, Status> {
    if given == 0 || TIMES_MS.contains(&given) {
        return Ok((given != 0).then_some(given));
    }
    invalid(format!(
        "for_ms {given}: give {} to {}, or 0 for amounts that last",
        TIMES_MS.start(),
        TIMES_MS.end()
    ))
}

fn request_id(text: String) -> Result<String, Status> {
    if is_name(&text, REQUEST_MAX) {
        return Ok(text);
    }
    invalid(format!("request_id {}: give 1 to {REQUEST_MAX} letters, digits, '.', '_' or '-'", quoted(&text)))
}

fn key(field: &str, text: String, is_transient: bool) -> Result<String, Status> {
    let (is_right, most) =
        if is_transient { (is_run_name(&text), RUN_MAX) } else { (is_key(&text), KEY_MAX) };
    if is_right {
        return Ok(text);
    }
    invalid(format!(
        "{field} {}: give 1 to {most} letters, digits, '.', '_' or '-', and the first is not '.'",
        quoted(&text)
    ))
}

/// The id in a request. Only its length is checked, as an impossible id is simply not found.
pub(super) fn id(text: String) -> Result<String, Status> {
    if (1..=64).contains(&text.len()) {
        return Ok(text);
    }
    invalid(format!("id {}: give a grant's id, 1 to 64 characters", quoted(&text)))
}

/// Keys that a caller names as living. They and their `prefix` must have the form of keys.
pub(super) fn keys(prefix: &str, living: Vec<String>) -> Result<Vec<String>, Status> {
    if !prefix.is_empty() && !is_key(prefix) {
        key("key_prefix", prefix.to_owned(), false)?;
    }
    living.into_iter().map(|text| key("living_keys", text, false)).collect()
}

pub(super) fn holder(holder: v1::Holder) -> Result<Holder, Status> {
    let names = [
        ("holder.namespace", &holder.namespace),
        ("holder.pod", &holder.pod),
        ("holder.container", &holder.container),
        ("holder.pod_uid", &holder.pod_uid),
    ];
    for (field, name) in names {
        if name.len() > HOLDER_MAX || name.chars().any(char::is_control) {
            return invalid(format!(
                "{field} {}: at most {HOLDER_MAX} characters, none of them a control character",
                quoted(name)
            ));
        }
    }
    Ok(Holder {
        namespace: holder.namespace,
        pod: holder.pod,
        container: holder.container,
        pod_uid: holder.pod_uid,
    })
}

/// The amounts that a request sets; all others are defaults.
fn chosen(given: &v1::Amounts) -> Chosen {
    Chosen {
        policy: given.policy() != v1::Policy::Unspecified,
        priority: given.priority() != v1::Priority::Unspecified,
        cores_max: given.cores_max_permille != 0,
    }
}

fn amounts(given: Option<v1::Amounts>) -> Result<Quota, Status> {
    let checked = given.unwrap_or_default().checked();
    checked.map_err(|error| Status::invalid_argument(error.to_string()))
}

fn asked(
    named: &[String],
    count: u32,
    placement: i32,
    include: &[String],
    exclude: &[String],
) -> Result<Asked, Status> {
    let named = uuids("gpu_uuids", named)?;
    let (include, exclude) = (uuids("include_gpu_uuids", include)?, uuids("exclude_gpu_uuids", exclude)?);
    let placement = match v1::Placement::try_from(placement) {
        Ok(v1::Placement::Unspecified) => None,
        Ok(v1::Placement::Binpack) => Some(Placement::Binpack),
        Ok(v1::Placement::Spread) => Some(Placement::Spread),
        Ok(v1::Placement::Topology) => Some(Placement::Topology),
        Err(_) => return invalid(format!("placement {placement}: there is none")),
    };
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    if named.is_empty() {
        if !(1..=MAX_DEVICES).contains(&wanted) {
            return invalid(format!("gpu_count {count}: give 1 to {MAX_DEVICES}, or name GPUs in gpu_uuids"));
        }
        return Ok(Asked::Any { count: wanted, placement, include, exclude });
    }
    if named.len() > MAX_DEVICES {
        return invalid(format!("gpu_uuids: {}; a container has 1 to {MAX_DEVICES}", named.len()));
    }
    if wanted != 0 && wanted != named.len() {
        return invalid(format!("gpu_count {count}: {} GPUs are named; leave it 0", named.len()));
    }
    if placement.is_some() || !include.is_empty() || !exclude.is_empty() {
        return invalid(
            "placement, include_gpu_uuids and exclude_gpu_uuids go with gpu_count, not with gpu_uuids"
                .to_owned(),
        );
    }
    Ok(Asked::Named(named))
}

/// What usage is summed by, and the length of the period (s).
pub(super) fn usage(request: v1::GetUsageRequest) -> Result<(By, u64), Status> {
    let by = match v1::UsageKey::try_from(request.by) {
        Ok(v1::UsageKey::Unspecified | v1::UsageKey::Tenant) => By::Tenant,
        Ok(v1::UsageKey::Namespace) => By::Namespace,
        Ok(v1::UsageKey::User) => By::User,
        Err(_) => {
            return invalid(format!("by {}: there is none; give tenant, namespace or user", request.by));
        }
    };
    match request.since_seconds {
        since_s @ 1..=KEPT_S => Ok((by, since_s)),
        since_s => invalid(format!(
            "since_seconds {since_s}: usage is kept for {KEPT_S} s (31 days); give 1 to {KEPT_S}"
        )),
    }
}

fn uuids(field: &str, texts: &[String]) -> Result<Vec<GpuUuid>, Status> {
    if texts.len() > LIST_MAX {
        return invalid(format!("{field}: {} GPUs; at most {LIST_MAX}", texts.len()));
    }
    let mut uuids = Vec::with_capacity(texts.len());
    for text in texts {
        let uuid = uuid(field, text)?;
        if uuids.contains(&uuid) {
            return invalid(format!("{field} {uuid}: name each GPU once"));
        }
        uuids.push(uuid);
    }
    Ok(uuids)
}

pub(super) fn uuid(field: &str, text: &str) -> Result<GpuUuid, Status> {
    text.parse()
        .or_else(|_| invalid(format!("{field} {}: give a UUID as nvidia-smi -L shows it", quoted(text))))
}

/// Changes of a container for the API.
pub(super) fn edits(edits: &ContainerEdits) -> v1::ContainerEdits {
    let text = |path: &Path| path.display().to_string();
    v1::ContainerEdits {
        env: edits.env.clone(),
        device_nodes: edits
            .device_nodes
            .iter()
            .map(|node| v1::container_edits::Node {
                host: text(node.host()),
                container: text(node.container()),
            })
            .collect(),
        mounts: edits
            .mounts
            .iter()
            .map(|mount| v1::container_edits::Mount {
                host: text(mount.host()),
                container: text(mount.container()),
                writable: mount.is_writable(),
            })
            .collect(),
    }
}

/// A grant for the API; `directory` is its tenant's, `device` its name for container engines.
pub(super) fn grant(grant: &Grant, directory: &Path, device: Option<String>) -> v1::Grant {
    v1::Grant {
        id: grant.id.to_string(),
        key: grant.key.clone(),
        number: grant.number,
        holder: Some(v1::Holder {
            namespace: grant.holder.namespace.clone(),
            pod: grant.holder.pod.clone(),
            container: grant.holder.container.clone(),
            pod_uid: grant.holder.pod_uid.clone(),
        }),
        amounts: Some(v1::Amounts::from(&grant.amounts)),
        gpu_uuids: grant.gpus.iter().map(ToString::to_string).collect(),
        directory: directory.display().to_string(),
        created_unix_ms: grant.created_unix_ms,
        generation: grant.generation,
        cdi_device: device.unwrap_or_default(),
        lasting_amounts: Some(v1::Amounts::from(&grant.lasting_amounts())),
        user_uid: grant.owner,
        until_unix_ms: grant.lasting.map_or(0, |lasting| lasting.until_unix_ms),
        suspendable: grant.is_suspendable,
        memory_wait_ms: grant.memory_wait_ms,
        transient: grant.is_transient,
    }
}

#[cfg(test)]
mod tests;
