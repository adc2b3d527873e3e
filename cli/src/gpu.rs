//! `vcuda gpu`: lists the GPUs that the manager grants, and cordons or uncordons them.

use std::io::Write as _;

use serde::Serialize;
use vcuda_manager_api::v1::{self, ListGpusResponse};
use vcuda_quota::{CoreShare, MemorySize};
use vcuda_region::GpuUuid;

use crate::args::GpuAction;
use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::GpuSelector;
use crate::manager_client::ManagerClient;
use crate::output::Output;
use crate::render::columns::{Column, Table};

pub(crate) fn gpu(action: &GpuAction, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let (selectors, cordoned) = match action {
        GpuAction::List { json } => return show(&node.gpus()?, *json, &Output::find(environment)),
        GpuAction::Cordon { gpu } => (gpu, true),
        GpuAction::Uncordon { gpu } => (gpu, false),
    };
    // All GPUs are looked up before the first is changed.
    let chosen = |selector: &GpuSelector| match selector {
        // A cordon outlives its GPU.
        GpuSelector::Uuid(uuid) if !cordoned && uuid.parse::<GpuUuid>().is_ok() => Ok(vec![uuid.clone()]),
        _ => node.chosen("GPU", std::slice::from_ref(selector)),
    };
    let uuids = selectors.iter().map(chosen).collect::<Result<Vec<_>, _>>()?;
    for uuid in uuids.into_iter().flatten() {
        let word = if cordoned { "cordoned" } else { "uncordoned" };
        node.cordon(uuid.clone(), cordoned)?;
        writeln!(std::io::stdout(), "{uuid} {word}")?;
    }
    Ok(())
}

fn show(seen: &ListGpusResponse, is_json: bool, output: &Output) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if is_json {
        let gpus = seen.gpus.iter().map(One::of).collect();
        let problem = (!seen.problem.is_empty()).then_some(seen.problem.as_str());
        serde_json::to_writer_pretty(&mut out, &Document { gpus, problem })?;
        return Ok(writeln!(out)?);
    }
    for line in lines(&seen.gpus, output) {
        writeln!(out, "{line}")?;
    }
    if !seen.problem.is_empty() {
        writeln!(out, "{}", seen.problem)?;
    }
    Ok(())
}

/// A table, and why GPUs are unhealthy: whole, as this is what the operator came for.
fn lines(gpus: &[v1::Gpu], output: &Output) -> Vec<String> {
    let mut table = Table::new(&[
        Column::figure("INDEX", 0),
        // Cut after SHARERS has gone and before any other column has: the index tells the GPU, too.
        Column::telling("GPU", 1, 33),
        Column::figure("GRANTED", 2),
        Column::figure("OF", 4),
        Column::figure("TIME", 3),
        Column::figure("SHARERS", 5),
        Column::words("STATUS", 0, 9),
    ]);
    for (index, gpu) in gpus.iter().enumerate() {
        table.row([
            index.to_string().into(),
            gpu.uuid.as_str().into(),
            MemorySize(gpu.memory_granted_bytes).to_string().into(),
            MemorySize(gpu.memory_grantable_bytes).to_string().into(),
            CoreShare(gpu.cores_granted_permille).to_string().into(),
            gpu.sharers.to_string().into(),
            word_of(gpu).into(),
        ]);
    }
    let mut lines = table.lines(output.width, output.is_colored);
    let unhealthy = gpus.iter().filter(|gpu| !gpu.healthy);
    lines.extend(unhealthy.map(|gpu| {
        let cordoned = if gpu.cordoned { "cordoned; " } else { "" };
        format!("{}: {cordoned}unhealthy: {}", gpu.uuid, gpu.health_reason)
    }));
    lines
}

/// Whether the GPU takes new tenants, in a word.
fn word_of(gpu: &v1::Gpu) -> &'static str {
    match (gpu.healthy, gpu.cordoned) {
        (true, false) => "ready",
        (true, true) => "cordoned",
        (false, _) => "unhealthy",
    }
}

/// JSON form of `vcuda gpu list`. The keys are stable for other programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    gpus: Vec<One<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct One<'a> {
    uuid: &'a str,
    name: &'a str,
    memory_total_bytes: u64,
    memory_grantable_bytes: u64,
    memory_granted_bytes: u64,
    cores_granted_permille: u32,
    sharers: u32,
    sharers_max: u32,
    cordoned: bool,
    healthy: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    health_reason: &'a str,
}

impl<'a> One<'a> {
    fn of(gpu: &'a v1::Gpu) -> Self {
        Self {
            uuid: &gpu.uuid,
            name: &gpu.name,
            memory_total_bytes: gpu.memory_total_bytes,
            memory_grantable_bytes: gpu.memory_grantable_bytes,
            memory_granted_bytes: gpu.memory_granted_bytes,
            cores_granted_permille: gpu.cores_granted_permille,
            sharers: gpu.sharers,
            sharers_max: gpu.sharers_max,
            cordoned: gpu.cordoned,
            healthy: gpu.healthy,
            health_reason: &gpu.health_reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_why_a_gpu_takes_no_new_tenants_is_whole() {
        let ready = v1::Gpu {
            uuid: "GPU-1a497c88-3151-4241-88ec-d1ddbd2b5072".to_owned(),
            healthy: true,
            ..v1::Gpu::default()
        };
        let cordoned = v1::Gpu { cordoned: true, ..ready.clone() };
        let reason = "XID 79: it has fallen off the bus; ".repeat(3);
        let unhealthy = v1::Gpu { healthy: false, health_reason: reason.clone(), ..cordoned.clone() };
        let output = Output { is_terminal: false, width: 60, is_colored: false };
        let lines = lines(&[ready, cordoned, unhealthy], &output);
        let ends = ["STATUS", "ready", "cordoned", "unhealthy", &reason];
        assert_eq!(lines.len(), ends.len());
        for (line, end) in lines.iter().zip(ends) {
            assert!(line.ends_with(end), "{line}");
        }
    }
}
