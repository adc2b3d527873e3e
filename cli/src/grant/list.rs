//! `vcuda grant list` and `show`: as a table and as JSON.

use std::io::Write as _;

use serde::Serialize;
use vcuda_manager_api::v1::Grant;

use super::user_name;
use crate::failure::Failure;
use crate::manager_client::view;
use crate::output::Output;
use crate::render::columns::{Column, Table};
use crate::render::quota::{described, quota};
use crate::render::temporary::Temporary;
use crate::render::words::natural;

pub(super) fn list(grants: &[Grant], is_json: bool, output: &Output) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if is_json {
        return Ok(out.write_all(json(grants)?.as_bytes())?);
    }
    let mut table = Table::new(&[
        Column::telling("GRANT", 0, 12),
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

pub(super) fn json(grants: &[Grant]) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&Document::of(grants))? + "\n")
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
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    suspendable: bool,
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
                suspendable: grant.suspendable,
                temporary: Temporary::of(grant),
            }
        };
        Self { grants: grants.iter().map(one).collect() }
    }
}
