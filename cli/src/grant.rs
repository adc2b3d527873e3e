//! `vcuda grant`: what a container may use of the node's GPUs, asked of the manager.

use std::io::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use vcuda_manager_api::v1::{self, Amounts, CreateGrantRequest, Grant, ResizeGrantRequest};
use vcuda_quota::{CoreShare, MemorySize};
use vcuda_region::limits::{Policy, Priority};

use crate::args::{GrantAction, GrantCreateArgs, QuotaArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::node::{Node, view};
use crate::quota::Quota;
use crate::render::clipped;

/// Does what was asked for.
pub(crate) fn grant(action: &GrantAction, environment: &Environment) -> Result<(), Failure> {
    let node = Node::required(environment)?;
    match action {
        GrantAction::Create(args) => create(&node, args),
        GrantAction::Resize { name, quota } => {
            if quota.is_empty() {
                return Err(Failure::Usage(format!(
                    "grant resize {name}: nothing to change; give --memory, --cores or another option of its quota"
                )));
            }
            let grant = node.grant(name)?.ok_or_else(|| unknown(&node, name))?;
            resize(&node, &grant, quota)
        }
        GrantAction::Release { name, force } => {
            let grant = node.grant(name)?.ok_or_else(|| unknown(&node, name))?;
            node.release(&grant.id, *force).map(drop)
        }
        GrantAction::List { json } => list(&node.list()?, *json),
    }
}

/// No grant of this name.
pub(crate) fn unknown(node: &Node, name: &str) -> Failure {
    let known = node.list().unwrap_or_default();
    let known: Vec<&str> = known.iter().map(|grant| grant.id.as_str()).collect();
    Failure::Usage(if known.is_empty() {
        format!("grant {name}: no such grant; there is none (`vcuda grant create {name} ...` makes one)")
    } else {
        format!("grant {name}: no such grant; there are: {}", known.join(", "))
    })
}

fn create(node: &Node, args: &GrantCreateArgs) -> Result<(), Failure> {
    let quota = Quota::try_from(&args.quota)?;
    let gpu_uuids = node.chosen("--gpu", &args.gpu)?;
    let grant = node.create(CreateGrantRequest {
        request_id: request_id(),
        key: args.name.clone(),
        amounts: Some(amounts(&quota)),
        gpu_count: if gpu_uuids.is_empty() { args.gpus } else { 0 },
        gpu_uuids,
        ..CreateGrantRequest::default()
    })?;
    let mut out = std::io::stdout().lock();
    if args.directory {
        return Ok(writeln!(out, "{}", grant.directory)?);
    }
    Ok(writeln!(
        out,
        "{}: {} on {}; vcuda run --grant {} -- CMD",
        grant.id,
        described(&grant),
        grant.gpu_uuids.join(", "),
        grant.key
    )?)
}

/// Puts the given options in place of the grant's own.
pub(crate) fn resize(node: &Node, grant: &Grant, args: &QuotaArgs) -> Result<(), Failure> {
    let quota = quota(&grant.amounts.unwrap_or_default()).changed(args)?;
    node.resize(ResizeGrantRequest {
        request_id: request_id(),
        id: grant.id.clone(),
        amounts: Some(amounts(&quota)),
        // What another has changed meanwhile is not undone.
        expected_generation: grant.generation,
    })
    .map(drop)
}

/// A request that is made once: this process, and when.
fn request_id() -> String {
    format!("cli-{}-{}", std::process::id(), vcuda_region::clock::now_ns())
}

fn amounts(quota: &Quota) -> Amounts {
    Amounts {
        memory_bytes: quota.memory.map_or(0, |memory| memory.0),
        cores_permille: quota.cores.0,
        cores_max_permille: quota.cores_max.0,
        policy: i32::from(match quota.policy {
            Policy::Fixed => v1::Policy::Fixed,
            Policy::Burst => v1::Policy::Burst,
            Policy::BestEffort => v1::Policy::BestEffort,
        }),
        priority: i32::from(match quota.priority {
            Priority::Low => v1::Priority::Low,
            Priority::Normal => v1::Priority::Normal,
            Priority::High => v1::Priority::High,
        }),
        weight: quota.weight.unwrap_or(0),
    }
}

fn quota(amounts: &Amounts) -> Quota {
    let share = |permille| CoreShare(if permille == 0 { 1000 } else { permille });
    let cores = share(amounts.cores_permille);
    let policy = view::policy(amounts.policy());
    Quota {
        memory: (amounts.memory_bytes != 0).then_some(MemorySize(amounts.memory_bytes)),
        cores,
        cores_max: match policy {
            Policy::Burst => share(amounts.cores_max_permille),
            Policy::Fixed | Policy::BestEffort => cores,
        },
        policy,
        weight: (amounts.weight != 0).then_some(amounts.weight),
        priority: view::priority(amounts.priority()),
    }
}

/// `4 GiB, 30 % fixed`.
fn described(grant: &Grant) -> String {
    let quota = quota(&grant.amounts.unwrap_or_default());
    let memory = quota
        .memory
        .map_or_else(|| "whole GPU".to_owned(), |memory| memory.to_string());
    format!("{memory}, {} {}", quota.cores, quota.policy)
}

fn list(grants: &[Grant], is_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if is_json {
        serde_json::to_writer_pretty(&mut out, &Document::of(grants))?;
        return Ok(writeln!(out)?);
    }
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_header(["GRANT", "GPUS", "QUOTA", "FOR"]);
    for grant in grants {
        let holder = grant.holder.as_ref().and_then(view::words);
        table.add_row([
            clipped(&grant.id, 28),
            grant.gpu_uuids.len().to_string(),
            described(grant),
            clipped(&holder.unwrap_or_default(), 24),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
        if column.index == 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `vcuda grant list --json`. The keys are a promise to other programs.
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
    gpu_uuids: &'a [String],
    /// 0: the whole GPU.
    memory_bytes: u64,
    cores_permille: u32,
    cores_max_permille: u32,
    policy: &'static str,
    priority: &'static str,
    weight: u32,
    directory: &'a str,
    created_unix_ms: i64,
    generation: u64,
}

impl<'a> Document<'a> {
    fn of(grants: &'a [Grant]) -> Self {
        let one = |grant: &'a Grant| {
            let quota = quota(&grant.amounts.unwrap_or_default());
            One {
                id: &grant.id,
                key: &grant.key,
                holder: grant.holder.as_ref().and_then(view::words),
                gpu_uuids: &grant.gpu_uuids,
                memory_bytes: quota.memory.map_or(0, |memory| memory.0),
                cores_permille: quota.cores.0,
                cores_max_permille: quota.cores_max.0,
                policy: quota.policy.name(),
                priority: quota.priority.name(),
                weight: quota.config().weight,
                directory: &grant.directory,
                created_unix_ms: grant.created_unix_ms,
                generation: grant.generation,
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
    fn a_quota_survives_the_api() {
        for policy in Policy::ALL {
            for priority in Priority::ALL {
                for (memory, cores, weight) in [(None, 1000, None), (Some(MemorySize(4 << 30)), 300, Some(7))]
                {
                    let cores = CoreShare(cores);
                    let quota_ = Quota {
                        memory,
                        cores,
                        cores_max: if policy == Policy::Burst {
                            CoreShare(cores.0.max(900))
                        } else {
                            cores
                        },
                        policy,
                        weight,
                        priority,
                    };
                    assert_eq!(quota(&amounts(&quota_)), quota_);
                }
            }
        }
        // What is left out.
        assert_eq!(quota(&Amounts::default()), Quota::UNLIMITED);
    }
}
