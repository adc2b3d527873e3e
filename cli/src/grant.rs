//! `vcuda grant`: quotas of tenants on the node's GPUs, kept by the manager.

mod list;
mod resize;

use std::io::Write as _;

use vcuda_manager_api::v1::{self, CreateGrantRequest, Grant};
use vcuda_quota::{MemorySize, Quota};

use crate::args::{GrantAction, GrantCreateArgs, GrantResizeArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::output::{Output, warn};
use crate::render::quota::{described, quota};
use list::list;
use resize::resize;
pub(crate) use resize::{change, set};

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
            quota.warning().into_iter().try_for_each(|warning| warn(&warning))
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

/// The grants of these names or ids. All are looked up before the first is changed.
fn named(node: &ManagerClient, names: &[String]) -> Result<Vec<Grant>, Failure> {
    let find = |name: &String| node.grant(name)?.ok_or_else(|| unknown(node, name));
    names.iter().map(find).collect()
}

pub(crate) fn unknown(node: &ManagerClient, name: &str) -> Failure {
    let known = node.list().unwrap_or_default();
    // As `grant list` shows them.
    let known: Vec<&str> =
        known.iter().filter(|grant| !grant.transient).map(|grant| grant.id.as_str()).collect();
    Failure::Usage(if known.is_empty() {
        format!("grant {name}: no such grant; there is none (`vcuda grant create {name} ...` makes one)")
    } else {
        format!("grant {name}: no such grant; there are: {}", known.join(", "))
    })
}

/// A warning for each GPU of the grant on which processes of no tenant hold what tenants were promised.
fn taken_outside(node: &ManagerClient, grant: &Grant) -> Vec<String> {
    let of_gpu = |gpu: v1::Gpu| {
        let held: u64 = gpu.outside_processes.iter().flat_map(|process| &process.memory_used_bytes).sum();
        let is_short = held > 0 && gpu.memory_granted_bytes.saturating_add(held) > gpu.memory_total_bytes;
        (is_short && grant.gpu_uuids.contains(&gpu.uuid)).then(|| {
            format!(
                "{}: processes outside vcuda hold {} (`vcuda ps` lists them), so that it may be full before a quota is",
                gpu.uuid,
                MemorySize(held)
            )
        })
    };
    let gpus = node.gpus_with_processes().map(|answer| answer.gpus).unwrap_or_default();
    gpus.into_iter().filter_map(of_gpu).collect()
}

fn create(node: &ManagerClient, args: &GrantCreateArgs) -> Result<(), Failure> {
    let wanted = Quota::UNLIMITED.merge(&args.quota.change())?;
    let gpu_uuids = node.chosen("--gpu", &args.gpu)?;
    let grant = node.create(CreateGrantRequest {
        request_id: request_id(),
        key: args.name.clone(),
        amounts: Some((&wanted).into()),
        gpu_count: if gpu_uuids.is_empty() { args.gpus } else { 0 },
        gpu_uuids,
        suspendable: args.suspendable,
        memory_wait_ms: args.wait_for_memory,
        user_uid: args.user.as_deref().map(|user| uid("--user", user)).transpose()?,
        ..CreateGrantRequest::default()
    })?;
    args.quota.warning().into_iter().try_for_each(|warning| warn(&warning))?;
    taken_outside(node, &grant).iter().try_for_each(|warning| warn(warning))?;
    let mut out = std::io::stdout().lock();
    if args.directory {
        return Ok(writeln!(out, "{}", grant.directory)?);
    }
    writeln!(
        out,
        "{}: {} on {}; vcuda run --grant {} -- CMD",
        grant.id,
        described(&quota(&grant)),
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
