//! `vcuda grant`: quotas of tenants on the node's GPUs, kept by the manager.

mod list;

use std::io::Write as _;
use std::time::Duration;

use vcuda_manager_api::v1::{CreateGrantRequest, Grant, ResizeGrantRequest};
use vcuda_quota::{CoreShare, MemorySize, Policy, Quota};

use crate::args::{GrantAction, GrantCreateArgs, GrantResizeArgs, QuotaArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::output::Output;
use crate::render::temporary::Temporary;
use crate::set::{self, Resized};
use list::list;

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
            grants.iter().try_for_each(|grant| resize(&node, grant, quota, None)?.print())?;
            quota.warning().into_iter().try_for_each(|warning| set::warn(&warning))
        }
        GrantAction::Release { names, force } => named(&node, names)?.iter().try_for_each(|grant| {
            node.release(&grant.id, *force)?;
            Ok(writeln!(std::io::stdout(), "{} released", grant.id)?)
        }),
        GrantAction::Show { names, json } => list(&named(&node, names)?, *json, &output),
        GrantAction::List { json } => {
            let mut grants = node.list()?;
            // Those of `vcuda run` are in `vcuda smi`.
            grants.retain(|grant| !grant.transient);
            list(&grants, *json, &output)
        }
    }
}

/// The grant of this id, else of this name.
pub(crate) fn find<'g>(grants: &'g [Grant], name: &str) -> Option<&'g Grant> {
    let by_id = grants.iter().find(|grant| grant.id == name);
    by_id.or_else(|| grants.iter().find(|grant| grant.key == name))
}

/// The grants of these names or ids. All are looked up before the first is changed.
fn named(node: &ManagerClient, names: &[String]) -> Result<Vec<Grant>, Failure> {
    let find = |name: &String| node.grant(name)?.ok_or_else(|| unknown(node, name));
    names.iter().map(find).collect()
}

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
        suspendable: args.suspendable,
        memory_wait_ms: args.wait_for_memory,
        user_uid: args.user.as_deref().map(|user| uid("--user", user)).transpose()?,
        ..CreateGrantRequest::default()
    })?;
    args.quota.warning().into_iter().try_for_each(|warning| set::warn(&warning))?;
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
    match grant.cdi_device.as_str() {
        // Where no container can be started, `vcuda doctor` says why: not each grant is for one.
        "" if node.container_edits(&grant.id).is_err() => {}
        "" => writeln!(out, "in a container: docker run $(vcuda docker-args {}) IMAGE", grant.key)?,
        device => writeln!(out, "in a container: podman run --device {device} IMAGE")?,
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
    let used = own.flat_map(|container| &container.devices).map(|device| device.memory_used_bytes);
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
    found.ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// Id of a request, unique by process and time.
pub(crate) fn request_id() -> String {
    format!("cli-{}-{}", std::process::id(), vcuda_region::clock::now_ns())
}

pub(crate) fn json(node: &ManagerClient) -> Result<String, Failure> {
    list::json(&node.list()?)
}

/// Quota of the grant's tenant on each of its GPUs.
pub(crate) fn quota(grant: &Grant) -> Quota {
    Quota::from(&grant.amounts.unwrap_or_default())
}

/// Quota that comes back when the time of a change is over, else the present one.
pub(crate) fn lasting(grant: &Grant) -> Quota {
    grant.lasting_amounts.as_ref().map_or_else(|| quota(grant), Quota::from)
}

/// Text of a quota, such as `4 GiB, 30 % fixed`. A quota without a guarantee of GPU time is named so.
pub(crate) fn described(quota: &Quota) -> String {
    let memory =
        quota.memory_bytes.map_or_else(|| "whole GPU".to_owned(), |bytes| MemorySize(bytes).to_string());
    if quota.policy == Policy::Fixed && quota.reserved_permille() == 0 {
        return format!("{memory}, no guarantee (what is left)");
    }
    format!("{memory}, {} {}", CoreShare(quota.cores_permille), quota.policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_grant_of_all_the_time_shows_no_guarantee() {
        let text = |cores_permille, policy| {
            let quota = Quota { cores_permille, policy, ..Quota::UNLIMITED };
            described(&quota)
        };
        assert_eq!(text(1000, Policy::Fixed), "whole GPU, no guarantee (what is left)");
        assert_eq!(text(300, Policy::Fixed), "whole GPU, 30 % fixed");
        assert_eq!(text(1000, Policy::Burst), "whole GPU, 100 % burst");
    }
}
