//! Rendering of snapshots of GPUs, tenants and processes: as JSON, and as a table of 80 columns.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use vcuda_quota::{CoreShare, MemorySize, Priority, Quota};

/// JSON form of `vcuda smi`. The keys are stable for other programs.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// GPUs by index.
    pub gpus: Vec<GpuView>,
}

/// A GPU and the tenants with a quota on it.
#[derive(Clone, Debug, Serialize)]
pub struct GpuView {
    /// UUID, `GPU-...`.
    pub uuid: String,
    pub(crate) name: String,
    pub(crate) memory_total_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    /// Tenants by name.
    pub tenants: Vec<TenantView>,
}

/// Quota and use of a tenant on one GPU.
#[derive(Clone, Debug, Serialize)]
pub struct TenantView {
    /// Name given by `vcuda run --name` or by its grant.
    pub name: String,
    /// Owner of a granted tenant, as `namespace/pod/container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// Memory limit (bytes).
    pub memory_limit_bytes: u64,
    /// Memory of all its processes (bytes).
    pub memory_used_bytes: u64,
    /// Number of denied allocations since the tenant began.
    pub(crate) memory_denied: u64,
    /// Maximum share of GPU time (thousandths).
    pub core_limit_permille: u32,
    /// Guaranteed share of GPU time (thousandths).
    pub(crate) core_guarantee_permille: u32,
    /// Share used over the last second (thousandths).
    pub core_used_permille: u32,
    /// GPU time used since the tenant began (s).
    pub(crate) gpu_seconds: f64,
    /// Number of copies between host and GPU since the tenant began, if its GPU time is metered. They are not charged.
    pub(crate) host_copies: u64,
    pub(crate) host_copied_bytes: u64,
    pub(crate) policy: String,
    /// Weight for time beyond the guarantees.
    pub(crate) weight: u32,
    pub(crate) priority: String,
    /// Whether weight or priority was chosen; both are then shown in the table.
    #[serde(skip)]
    pub(crate) is_ranked: bool,
    pub(crate) processes: Vec<ProcessView>,
}

impl TenantView {
    /// A tenant with this quota and no use; `memory_limit_bytes` is the quota's memory on this GPU.
    pub(crate) fn unused(name: &str, quota: &Quota, memory_limit_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            holder: None,
            memory_limit_bytes,
            memory_used_bytes: 0,
            memory_denied: 0,
            core_limit_permille: quota.cores_max_permille,
            core_guarantee_permille: quota.promised_permille(),
            core_used_permille: 0,
            gpu_seconds: 0.0,
            host_copies: 0,
            host_copied_bytes: 0,
            policy: quota.policy.to_string(),
            weight: quota.weight(),
            priority: quota.priority.to_string(),
            is_ranked: quota.weight.is_some_and(|weight| weight != quota.cores_permille)
                || quota.priority != Priority::Normal,
            processes: Vec::new(),
        }
    }
}

/// A process of a tenant that holds memory of the GPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessView {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) memory_used_bytes: u64,
}

/// Width of tables (columns).
pub const WIDTH: usize = 80;
const BAR_WIDTH: usize = 5;

/// Text table of a snapshot, with bars if `bars`, as for a terminal.
pub fn table(snapshot: &Snapshot, bars: bool) -> String {
    let mut text = String::new();
    for (index, gpu) in snapshot.gpus.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        gpu_lines(&mut text, index, gpu, bars);
        if gpu.tenants.is_empty() {
            text.push_str("  no tenants; start one with: vcuda run --memory 4GiB --cores 30 -- CMD\n");
        } else {
            tenant_lines(&mut text, gpu, bars);
        }
    }
    text
}

fn gpu_lines(text: &mut String, index: usize, gpu: &GpuView, bars: bool) {
    let rule = if bars { "─" } else { "-" }.repeat(WIDTH);
    let title = format!("GPU {index}  {}", gpu.name);
    let used = pair(gpu.memory_used_bytes, gpu.memory_total_bytes);
    let bar = if bars {
        format!("  {}", bar(gpu.memory_used_bytes, gpu.memory_total_bytes, 14))
    } else {
        String::new()
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}\n{}  memory {used}{bar}\n{rule}",
        clipped(&title, WIDTH),
        gpu.uuid
    );
}

fn tenant_lines(text: &mut String, gpu: &GpuView, bars: bool) {
    let mut rows = vec![heading(bars)];
    for tenant in &gpu.tenants {
        rows.push(tenant_row(tenant, bars));
        rows.extend(tenant.holder.as_ref().map(|holder| vec![format!("  {holder}")]));
        if tenant.is_ranked {
            let words = format!("  {} priority, weight {}", tenant.priority, tenant.weight);
            rows.push(vec![words]);
        }
        for process in &tenant.processes {
            let name = format!("  {} {}", process.pid, process.name);
            rows.push(vec![name, MemorySize(process.memory_used_bytes).to_string()]);
        }
    }
    // Names get the width that the figures leave.
    let figures: usize = (1..heading(bars).len())
        .map(|column| 1 + width_of(&rows, column))
        .sum();
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    for mut row in rows {
        if let Some(name) = row.first_mut() {
            *name = clipped(name, WIDTH.saturating_sub(figures).max(8));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
        if column.index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn width_of(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter()
        .filter_map(|row| row.get(column))
        .map(|text| text.chars().count())
        .max()
        .unwrap_or(0)
}

fn heading(bars: bool) -> Vec<String> {
    let words: &[&str] = if bars {
        &["TENANT", "MEMORY", "", "GPU TIME", "", "POLICY", "DENIED"]
    } else {
        &["TENANT", "MEMORY", "GPU TIME", "POLICY", "DENIED"]
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn tenant_row(tenant: &TenantView, bars: bool) -> Vec<String> {
    let used = format!(
        "{}.{}",
        tenant.core_used_permille / 10,
        tenant.core_used_permille % 10
    );
    let memory_bar = bar(tenant.memory_used_bytes, tenant.memory_limit_bytes, BAR_WIDTH);
    let cores_bar = bar(
        tenant.core_used_permille.into(),
        tenant.core_limit_permille.into(),
        BAR_WIDTH,
    );
    let mut row = vec![
        tenant.name.clone(),
        pair(tenant.memory_used_bytes, tenant.memory_limit_bytes),
    ];
    row.extend(bars.then_some(memory_bar));
    let limit = CoreShare(tenant.core_limit_permille);
    row.push(
        if (1..tenant.core_limit_permille).contains(&tenant.core_guarantee_permille) {
            let guarantee = CoreShare(tenant.core_guarantee_permille).percent();
            format!("{used} / {guarantee}-{limit}")
        } else {
            format!("{used} / {limit}")
        },
    );
    row.extend(bars.then_some(cores_bar));
    row.extend([tenant.policy.clone(), tenant.memory_denied.to_string()]);
    row
}

/// Used and limit in the unit of the limit, such as `3.5 / 4 GiB`; the used figure is rounded down.
fn pair(used_bytes: u64, limit_bytes: u64) -> String {
    let limit = MemorySize(limit_bytes).to_string();
    let scale: u64 = match limit.rsplit(' ').next() {
        Some("TiB") => 1 << 40,
        Some("GiB") => 1 << 30,
        Some("MiB") => 1 << 20,
        Some("KiB") => 1 << 10,
        _ => 1,
    };
    let tenths = u128::from(used_bytes) * 10 / u128::from(scale);
    format!("{}.{} / {limit}", tenths / 10, tenths % 10)
}

/// A bar of `width` cells that is full at `limit`.
fn bar(used: u64, limit: u64, width: usize) -> String {
    let share = u128::from(used.min(limit)) * (width as u128) / u128::from(limit.max(1));
    let filled = usize::try_from(share).unwrap_or(width).min(width);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

/// `text` cut to `width` characters with an ellipsis. Control characters are replaced, as names come from other users.
pub fn clipped(text: &str, width: usize) -> String {
    let clean: Vec<char> = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if clean.len() <= width {
        return clean.into_iter().collect();
    }
    clean
        .into_iter()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let tenant = TenantView {
            name: "a-very-long-tenant-name-from-a-pipeline-123456".to_owned(),
            holder: Some("a-namespace-of-a-team/a-pod-of-a-deployment-7d9f-x2x/main".to_owned()),
            memory_limit_bytes: (1 << 40) - 1,
            memory_used_bytes: (1 << 40) - 2,
            memory_denied: 1234,
            core_limit_permille: 999,
            core_guarantee_permille: 998,
            core_used_permille: 1001,
            gpu_seconds: 12.5,
            host_copies: 3,
            host_copied_bytes: 1 << 20,
            policy: "best-effort".to_owned(),
            weight: 10_000,
            priority: "normal".to_owned(),
            is_ranked: true,
            processes: vec![ProcessView {
                pid: 4_194_304,
                name: "python\u{1b}[2J".to_owned(),
                memory_used_bytes: 3 << 29,
            }],
        };
        let gpu = GpuView {
            uuid: "GPU-00000000-0000-0000-0000-000000000000".to_owned(),
            name: "Simulated".to_owned(),
            memory_total_bytes: 80 << 30,
            memory_used_bytes: 20 << 30,
            tenants: vec![tenant],
        };
        Snapshot {
            gpus: vec![
                gpu.clone(),
                GpuView {
                    tenants: Vec::new(),
                    ..gpu
                },
            ],
        }
    }

    #[test]
    fn tables_fit_80_columns_and_carry_no_control_characters() {
        for bars in [false, true] {
            let text = table(&snapshot(), bars);
            for line in text.lines() {
                assert!(
                    line.chars().count() <= WIDTH,
                    "{} columns: {line}",
                    line.chars().count()
                );
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
            assert_eq!(text.contains('█'), bars);
        }
    }

    #[test]
    fn json_keys_are_the_promised_ones() {
        let json = serde_json::to_value(snapshot()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&json), ["gpus"]);
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys.join(" ")
        };
        let gpu = &json["gpus"][0];
        assert_eq!(
            sorted(keys(gpu)),
            "memory_total_bytes memory_used_bytes name tenants uuid"
        );
        let tenant = &gpu["tenants"][0];
        assert_eq!(
            sorted(keys(tenant)),
            "core_guarantee_permille core_limit_permille core_used_permille gpu_seconds holder host_copied_bytes host_copies \
             memory_denied memory_limit_bytes memory_used_bytes name policy priority processes weight"
        );
        assert_eq!(
            sorted(keys(&tenant["processes"][0])),
            "memory_used_bytes name pid"
        );
    }

    #[test]
    fn bars_are_full_at_the_limit() {
        assert_eq!(bar(0, 10, 4), "░░░░");
        assert_eq!(bar(5, 10, 4), "██░░");
        assert_eq!(bar(20, 10, 4), "████");
        assert_eq!(bar(1, 0, 4), "░░░░");
    }

    #[test]
    fn used_is_shown_in_the_unit_of_the_limit() {
        assert_eq!(pair(3 << 29, 4 << 30), "1.5 / 4 GiB");
        assert_eq!(pair(0, 480 << 20), "0.0 / 480 MiB");
    }
}
