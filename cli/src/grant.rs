//! `vcuda grant`: quotas of tenants on the node's GPUs, kept by the manager.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use vcuda_manager_api::v1::{CreateGrantRequest, Grant, ResizeGrantRequest};
use vcuda_quota::{CoreShare, MemorySize, Policy, Quota};

use crate::args::{GrantAction, GrantCreateArgs, GrantResizeArgs, QuotaArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::{ManagerClient, view};
use crate::output::Output;
use crate::render::columns::{Column, Table};
use crate::render::temporary::Temporary;
use crate::render::words::natural;
use crate::set::{self, Resized};

/// Carries out a `vcuda grant` command.
pub(crate) fn grant(action: &GrantAction, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let output = Output::find(environment);
    match action {
        GrantAction::Create(args) => create(&node, args),
        GrantAction::Resize(GrantResizeArgs { names, quota }) => {
            if quota.is_empty() {
                return Err(Failure::Usage(format!(
                    "grant resize {}: nothing to change; give --memory, --cores or another option of its quota",
                    names.join(" ")
                )));
            }
            let grants = named(&node, names)?;
            grants
                .iter()
                .try_for_each(|grant| resize(&node, grant, quota, None)?.print())?;
            quota
                .warning()
                .into_iter()
                .try_for_each(|warning| set::warn(&warning))
        }
        GrantAction::Release { names, force } => named(&node, names)?.iter().try_for_each(|grant| {
            node.release(&grant.id, *force)?;
            Ok(writeln!(std::io::stdout(), "{} released", grant.id)?)
        }),
        GrantAction::Show { names, json } => list(&named(&node, names)?, *json, &output),
        GrantAction::List { json } => list(&node.list()?, *json, &output),
    }
}

/// The grants of these names or ids. All are looked up before the first is changed.
fn named(node: &ManagerClient, names: &[String]) -> Result<Vec<Grant>, Failure> {
    let find = |name: &String| node.grant(name)?.ok_or_else(|| unknown(node, name));
    names.iter().map(find).collect()
}

/// Failure for a grant that does not exist.
pub(crate) fn unknown(node: &ManagerClient, name: &str) -> Failure {
    let known = node.list().unwrap_or_default();
    let known: Vec<&str> = known.iter().map(|grant| grant.id.as_str()).collect();
    Failure::Usage(if known.is_empty() {
        format!("grant {name}: no such grant; there is none (`vcuda grant create {name} ...` makes one)")
    } else {
        format!("grant {name}: no such grant; there are: {}", known.join(", "))
    })
}

fn create(node: &ManagerClient, args: &GrantCreateArgs) -> Result<(), Failure> {
    let quota = Quota::UNLIMITED.merge(&args.quota.change())?;
    let gpu_uuids = node.chosen("--gpu", &args.gpu)?;
    let grant = node.create(CreateGrantRequest {
        request_id: request_id(),
        key: args.name.clone(),
        amounts: Some((&quota).into()),
        gpu_count: if gpu_uuids.is_empty() { args.gpus } else { 0 },
        gpu_uuids,
        user_uid: args.user.as_deref().map(|user| uid("--user", user)).transpose()?,
        ..CreateGrantRequest::default()
    })?;
    check_user(node, &grant, args.user.as_deref())?;
    args.quota
        .warning()
        .into_iter()
        .try_for_each(|warning| set::warn(&warning))?;
    let mut out = std::io::stdout().lock();
    if args.directory {
        return Ok(writeln!(out, "{}", grant.directory)?);
    }
    writeln!(
        out,
        "{}: {} on {}; vcuda run --grant {} -- CMD",
        grant.id,
        described(&self::quota(&grant)),
        grant.gpu_uuids.join(", "),
        grant.key
    )?;
    if !grant.cdi_device.is_empty() {
        writeln!(
            out,
            "in a container: podman run --device {} IMAGE",
            grant.cdi_device
        )?;
    }
    Ok(())
}

/// Replaces the given options of the grant's lasting quota, for good or for a time.
pub(crate) fn resize(
    node: &ManagerClient,
    grant: &Grant,
    args: &QuotaArgs,
    time: Option<Duration>,
) -> Result<Resized, Failure> {
    let quota = lasting(grant).merge(&args.change())?;
    let now = node.resize(ResizeGrantRequest {
        request_id: request_id(),
        id: grant.id.clone(),
        amounts: Some((&quota).into()),
        // A concurrent change by another caller is not overwritten.
        expected_generation: grant.generation,
        for_ms: time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    })?;
    let containers = node.containers()?.containers;
    let own = containers.iter().filter(|container| container.id == grant.id);
    let used = own
        .flat_map(|container| &container.devices)
        .map(|device| device.memory_used_bytes);
    Ok(Resized {
        name: grant.id.clone(),
        quota: self::quota(&now),
        used_bytes: used.max().unwrap_or(0),
        temporary: Temporary::of(&now),
    })
}

/// Number of the user that `option` names, by name or number.
pub(crate) fn uid(option: &str, user: &str) -> Result<u32, Failure> {
    let named = || nix::unistd::User::from_name(user).ok().flatten();
    let uid = user.parse().ok().or_else(|| Some(named()?.uid.as_raw()));
    uid.ok_or_else(|| Failure::Usage(format!("{option} {user}: no such user; give a name or a number")))
}

/// Name of a user, else its number.
pub(crate) fn user_name(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    found
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// Releases a new grant that does not count for the user it was made for, as an older manager knows no users.
fn check_user(node: &ManagerClient, grant: &Grant, user: Option<&str>) -> Result<(), Failure> {
    if user.is_none() || grant.user_uid.is_some() {
        return Ok(());
    }
    node.release(&grant.id, false)?;
    Err(Failure::Failed(
        "--user: the manager is older than this vcuda and limits no user; update it".to_owned(),
    ))
}

/// Id of a request, unique by process and time.
pub(crate) fn request_id() -> String {
    format!("cli-{}-{}", std::process::id(), vcuda_region::clock::now_ns())
}

/// Quota of the grant's tenant on each of its GPUs.
pub(crate) fn quota(grant: &Grant) -> Quota {
    Quota::from(&grant.amounts.unwrap_or_default())
}

/// Quota that comes back when the time of a change is over, else the present one.
pub(crate) fn lasting(grant: &Grant) -> Quota {
    grant
        .lasting_amounts
        .as_ref()
        .map_or_else(|| quota(grant), Quota::from)
}

/// Text of a quota, such as `4 GiB, 30 % fixed`. A quota without a guarantee of GPU time is named so.
pub(crate) fn described(quota: &Quota) -> String {
    let memory = quota
        .memory_bytes
        .map_or_else(|| "whole GPU".to_owned(), |bytes| MemorySize(bytes).to_string());
    if quota.policy == Policy::Fixed && quota.reserved_permille() == 0 {
        return format!("{memory}, no guarantee (what is left)");
    }
    format!("{memory}, {} {}", CoreShare(quota.cores_permille), quota.policy)
}

fn list(grants: &[Grant], is_json: bool, output: &Output) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if is_json {
        serde_json::to_writer_pretty(&mut out, &Document::of(grants))?;
        return Ok(writeln!(out)?);
    }
    let mut table = Table::new(&[
        Column::words("GRANT", 0, 12),
        Column::figure("GPUS", 1),
        Column::words("QUOTA", 0, 16),
        Column::words("FOR", 2, 12),
    ]);
    let mut grants: Vec<&Grant> = grants.iter().collect();
    grants.sort_by(|one, other| natural(&one.id, &other.id));
    for grant in grants {
        let holder = grant.holder.as_ref().and_then(view::words);
        let holder = holder.or_else(|| Some(format!("user {}", user_name(grant.user_uid?))));
        table.row([
            grant.id.as_str().into(),
            grant.gpu_uuids.len().to_string().into(),
            in_force(grant).into(),
            holder.unwrap_or_default().into(),
        ]);
    }
    for line in table.lines(output.width, output.is_colored) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The present quota, and how long it holds if not for good.
fn in_force(grant: &Grant) -> String {
    let now = described(&quota(grant));
    match Temporary::of(grant) {
        Some(temporary) => format!("{now}, {}", temporary.words()),
        None => now,
    }
}

/// JSON form of `vcuda grant list`. The keys are stable for other programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    grants: Vec<One<'a>>,
}

#[derive(Debug, Serialize)]
struct One<'a> {
    id: &'a str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The user whom it counts for.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_uid: Option<u32>,
    gpu_uuids: &'a [String],
    /// Memory limit (bytes); 0: the whole GPU.
    memory_bytes: u64,
    cores_permille: u32,
    cores_max_permille: u32,
    policy: &'static str,
    priority: &'static str,
    weight: u32,
    directory: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cdi_device: &'a str,
    created_unix_ms: i64,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary: Option<Temporary>,
}

impl<'a> Document<'a> {
    fn of(grants: &'a [Grant]) -> Self {
        let one = |grant: &'a Grant| {
            let quota = quota(grant);
            One {
                id: &grant.id,
                key: &grant.key,
                holder: grant.holder.as_ref().and_then(view::words),
                user_uid: grant.user_uid,
                gpu_uuids: &grant.gpu_uuids,
                memory_bytes: quota.memory_bytes.unwrap_or(0),
                cores_permille: quota.cores_permille,
                cores_max_permille: quota.cores_max_permille,
                policy: quota.policy.name(),
                priority: quota.priority.name(),
                weight: quota.weight(),
                directory: &grant.directory,
                cdi_device: &grant.cdi_device,
                created_unix_ms: grant.created_unix_ms,
                generation: grant.generation,
                temporary: Temporary::of(grant),
            }
        };
        Self {
            grants: grants.iter().map(one).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_grant_of_all_the_time_shows_no_guarantee() {
        let text = |cores_permille, policy| {
            let quota = Quota {
                cores_permille,
                policy,
                ..Quota::UNLIMITED
            };
            described(&quota)
        };
        assert_eq!(
            text(1000, Policy::Fixed),
            "whole GPU, no guarantee (what is left)"
        );
        assert_eq!(text(300, Policy::Fixed), "whole GPU, 30 % fixed");
        assert_eq!(text(1000, Policy::Burst), "whole GPU, 100 % burst");
    }
}
