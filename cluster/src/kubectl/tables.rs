//! Tables of at most 80 columns where names allow it, and the same as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};
use vcuda_quota::MemorySize;

use super::collect::{Gpu, Share, Snapshot};
use super::explain::{Evidence, phase};
use super::finding::Finding;

/// GPUs, with what each has left.
pub(super) fn gpus(snapshot: &Snapshot, as_json: bool) -> String {
    if as_json {
        return text(&json!({"gpus": snapshot.gpus, "silent_nodes": snapshot.silent}));
    }
    let mut rows = vec![row(["NODE", "GPU", "MEMORY", "FREE", "TIME FREE", "PODS", "HEALTH"])];
    for gpu in &snapshot.gpus {
        rows.push(vec![
            gpu.node.clone(),
            short(&gpu.uuid),
            size(gpu.memory_total_bytes),
            size(gpu.memory_free_bytes),
            format!("{} %", gpu.cores_free_percent),
            gpu.shares.len().to_string(),
            health(gpu),
        ]);
    }
    format!("{}{}", aligned(&rows), silent(snapshot))
}

/// Shares of pods of a namespace, or of all; by name, or the busiest first.
pub(super) fn shares(snapshot: &Snapshot, namespace: Option<&str>, by_use: bool, as_json: bool) -> String {
    let all = snapshot.gpus.iter().flat_map(|gpu| &gpu.shares);
    let mut shares: Vec<&Share> =
        all.filter(|share| namespace.is_none_or(|name| share.namespace == name)).collect();
    let name = |share: &Share| (share.namespace.clone(), share.pod.clone(), share.container.clone());
    shares.sort_by_key(|share| name(share));
    if by_use {
        shares.sort_by(|one, other| {
            let key = |share: &Share| (share.cores_used_percent, share.memory_used_bytes);
            key(other).partial_cmp(&key(one)).unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    if as_json {
        return text(&json!({"shares": shares, "silent_nodes": snapshot.silent}));
    }
    if shares.is_empty() {
        let place =
            namespace.map_or("the cluster".to_owned(), |name| format!("namespace {name}; -A is for all"));
        return format!("no pod has a share of a GPU in {place}\n{}", silent(snapshot));
    }
    let has_states = shares.iter().any(|share| suspension(share).is_some());
    let has_driver_limits = shares.iter().any(|share| share.held_by_driver);
    let mut rows = vec![row([
        "NAMESPACE",
        "POD",
        "CONTAINER",
        "NODE",
        "GPU",
        "MEMORY",
        "TIME",
        if has_driver_limits { "HELD BY" } else { "" },
        if has_states { "STATE" } else { "" },
    ])];
    for share in shares {
        let walls = if share.held_by_driver { "library, driver" } else { "library" };
        rows.push(vec![
            share.namespace.clone(),
            share.pod.clone(),
            share.container.clone(),
            share.node.clone(),
            short(&share.gpu_uuid),
            format!("{} of {}", size(share.memory_used_bytes), size(share.memory_limit_bytes)),
            format!("{} of {} %", share.cores_used_percent, share.cores_limit_percent),
            if has_driver_limits { walls.to_owned() } else { String::new() },
            suspension(share).unwrap_or_default(),
        ]);
    }
    format!("{}{}", aligned(&rows), silent(snapshot))
}

/// What the pods of each namespace have and use now.
pub(super) fn usage(snapshot: &Snapshot, as_json: bool) -> String {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for share in snapshot.gpus.iter().flat_map(|gpu| &gpu.shares) {
        let sum = sums.entry(&share.namespace).or_default();
        sum.pods.insert(share.pod.clone());
        sum.memory_limit_bytes += share.memory_limit_bytes;
        sum.memory_used_bytes += share.memory_used_bytes;
        sum.cores_limit_percent += share.cores_limit_percent;
        sum.cores_used_percent += share.cores_used_percent;
    }
    if as_json {
        return text(&json!({"namespaces": sums, "silent_nodes": snapshot.silent}));
    }
    if sums.is_empty() {
        return format!("no pod has a share of a GPU in the cluster\n{}", silent(snapshot));
    }
    let mut rows = vec![row(["NAMESPACE", "PODS", "MEMORY", "TIME"])];
    for (namespace, sum) in sums {
        rows.push(vec![
            namespace.to_owned(),
            sum.pods.len().to_string(),
            format!("{} of {}", size(sum.memory_used_bytes), size(sum.memory_limit_bytes)),
            format!("{:.1} of {:.1} %", sum.cores_used_percent, sum.cores_limit_percent),
        ]);
    }
    format!("{}{}", aligned(&rows), silent(snapshot))
}

/// Sum over a namespace's shares. Percents are of one GPU.
#[derive(Debug, Default, Serialize)]
struct Sum {
    pods: BTreeSet<String>,
    memory_limit_bytes: u64,
    memory_used_bytes: u64,
    cores_limit_percent: f64,
    cores_used_percent: f64,
}

/// State of a share's container, if it does not run.
fn suspension(share: &Share) -> Option<String> {
    match (share.state.as_str(), share.memory_suspended_bytes) {
        ("" | "running", _) => None,
        (state, 0) => Some(state.to_owned()),
        (state, bytes) => Some(format!("{state}: {} in host memory", size(bytes))),
    }
}

pub(super) fn why(evidence: &Evidence, findings: &[Finding], as_json: bool) -> String {
    let metadata = &evidence.pod.metadata;
    let pod = [&metadata.namespace, &metadata.name].map(|part| part.clone().unwrap_or_default()).join("/");
    let phase = phase(&evidence.pod);
    if as_json {
        return text(&json!({"pod": pod, "phase": phase, "findings": findings, "unread": evidence.unread}));
    }
    let mut lines = vec![format!("{pod}: {phase}")];
    if findings.is_empty() {
        lines.push("nothing is known that would keep it from running".to_owned());
    }
    for finding in findings {
        lines.push(format!("\n{}: {}\n  -> {}", finding.source, finding.reason, finding.remedy));
    }
    for unread in &evidence.unread {
        lines.push(format!("\nnot read: {unread}"));
    }
    lines.join("\n") + "\n"
}

fn text(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn size(bytes: u64) -> String {
    MemorySize(bytes).to_string()
}

/// The beginning of a UUID, which tells the GPUs of a cluster apart.
fn short(uuid: &str) -> String {
    uuid.chars().take(12).collect()
}

fn health(gpu: &Gpu) -> String {
    match (gpu.is_healthy, gpu.is_cordoned) {
        (false, _) => "ill",
        (true, true) => "cordoned",
        (true, false) => "ok",
    }
    .to_owned()
}

fn silent(snapshot: &Snapshot) -> String {
    let lines = snapshot
        .silent
        .iter()
        .map(|(node, why)| format!("node {node}: its manager does not answer: {why}\n"));
    lines.collect()
}

/// Columns as wide as their widest cell, two spaces apart.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
