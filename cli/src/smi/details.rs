//! `vcuda smi -L` and `-q`: the GPUs by UUID, and all figures, one a line, as nvidia-smi prints them.

use std::fmt::Write as _;

use vcuda_quota::CoreShare;

use crate::render::words::{UNKNOWN, clipped, exact_watts, known, now, tenths};
use crate::render::{GpuView, ProcessView, Snapshot, TenantView};

const NAME_WIDTH: usize = 256;
/// Column of the colons.
const COLON: usize = 52;

/// A line for each GPU, such as `GPU 0: NVIDIA H200 (UUID: GPU-...)`.
pub(crate) fn list(snapshot: &Snapshot) -> String {
    let line = |gpu: &GpuView| {
        let name = clipped(&gpu.name, NAME_WIDTH);
        format!("GPU {}: {name} (UUID: {})\n", gpu.index, gpu.uuid)
    };
    snapshot.gpus.iter().map(line).collect()
}

pub(crate) fn details(snapshot: &Snapshot) -> String {
    let unknown = || UNKNOWN.to_owned();
    let mut log = Log::default();
    log.figure(0, "Timestamp", &now());
    log.figure(0, "vcuda Version", env!("CARGO_PKG_VERSION"));
    log.figure(0, "Driver Version", &snapshot.driver_version.clone().unwrap_or_else(unknown));
    log.figure(0, "CUDA Version", &snapshot.cuda_version.clone().unwrap_or_else(unknown));
    log.figure(0, "Attached GPUs", &snapshot.gpus.len().to_string());
    for gpu in &snapshot.gpus {
        gpu_figures(&mut log, gpu);
    }
    log.text
}

fn gpu_figures(log: &mut Log, gpu: &GpuView) {
    log.heading(0, &format!("GPU {}", gpu.index));
    log.figure(1, "Product Name", &gpu.name);
    log.figure(1, "GPU UUID", &gpu.uuid);
    if let Some(closed) = &gpu.closed {
        log.figure(1, "State", closed);
    }
    log.heading(1, "FB Memory Usage");
    log.figure(2, "Total", &mib(gpu.memory_total_bytes));
    log.figure(2, "Used", &mib(gpu.memory_used_bytes));
    log.figure(2, "Free", &mib(gpu.memory_total_bytes.saturating_sub(gpu.memory_used_bytes)));
    log.figure(2, "Granted", &mib(gpu.memory_granted_bytes));
    log.heading(1, "Utilization");
    log.figure(2, "GPU", &known(gpu.utilization_percent, |percent| format!("{percent} %")));
    log.figure(2, "Memory", &known(gpu.memory_utilization_percent, |percent| format!("{percent} %")));
    log.figure(2, "Time Granted", &CoreShare(gpu.cores_granted_permille).to_string());
    log.heading(1, "Temperature");
    log.figure(2, "GPU Current Temp", &known(gpu.temperature_celsius, |celsius| format!("{celsius} C")));
    log.heading(1, "GPU Power Readings");
    log.figure(2, "Power Draw", &known(gpu.power_draw_mw, watts));
    log.figure(2, "Current Power Limit", &known(gpu.power_limit_mw, watts));
    log.heading(1, "Tenants");
    for tenant in &gpu.tenants {
        tenant_figures(log, tenant);
    }
    log.heading(1, "Processes outside vcuda");
    for process in &gpu.outside_processes {
        process_figures(log, 2, process);
    }
}

fn tenant_figures(log: &mut Log, tenant: &TenantView) {
    log.figure(2, "Name", &tenant.name);
    log.figure(3, "State", tenant.activity());
    if let Some(holder) = &tenant.holder {
        log.figure(3, "Holder", holder);
    }
    log.figure(3, "Memory Limit", &mib(tenant.memory_limit_bytes));
    let walls = if tenant.held_by_driver { "library and driver" } else { "library" };
    log.figure(3, "Memory Held By", walls);
    log.figure(3, "Memory Used", &mib(tenant.memory_used_bytes));
    log.figure(3, "Memory Suspended", &mib(tenant.suspended_bytes));
    log.figure(3, "Allocations Denied", &tenant.memory_denied.to_string());
    log.figure(3, "GPU Time Limit", &CoreShare(tenant.core_limit_permille).to_string());
    log.figure(3, "GPU Time Guarantee", &CoreShare(tenant.core_guarantee_permille).to_string());
    log.figure(3, "GPU Time Used", &format!("{} %", tenths(tenant.core_used_permille)));
    if let Some(temporary) = &tenant.temporary {
        log.figure(3, "Quota Holds", &temporary.words());
    }
    log.figure(3, "Policy", &tenant.policy);
    log.figure(3, "Priority", &tenant.priority);
    log.figure(3, "Weight", &tenant.weight.to_string());
    for process in &tenant.processes {
        process_figures(log, 3, process);
    }
}

fn process_figures(log: &mut Log, depth: usize, process: &ProcessView) {
    let container = if process.is_in_container { " (in container)" } else { "" };
    log.figure(depth, "Process ID", &format!("{}{container}", process.pid));
    let name = process.command.as_ref().unwrap_or(&process.name);
    log.figure(depth + 1, "Name", name);
    log.figure(depth + 1, "User", process.user.as_deref().unwrap_or(UNKNOWN));
    log.figure(depth + 1, "Used GPU Memory", &known(process.memory_used_bytes, mib));
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn watts(milliwatts: u32) -> String {
    format!("{} W", exact_watts(milliwatts))
}

#[derive(Debug, Default)]
struct Log {
    text: String,
}

impl Log {
    fn heading(&mut self, depth: usize, title: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:indent$}{title}", "", indent = depth * 4);
    }

    fn figure(&mut self, depth: usize, title: &str, value: &str) {
        let indented = format!("{:indent$}{title}", "", indent = depth * 4);
        let _ = writeln!(self.text, "{indented:COLON$}: {}", clipped(value, NAME_WIDTH));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvml_does_not_tell_is_not_available() {
        let snapshot = Snapshot::of(vec![GpuView {
            memory_total_bytes: 80 << 30,
            temperature_celsius: Some(35),
            ..GpuView::new(0, "GPU-0", "NVIDIA H200")
        }]);
        assert_eq!(list(&snapshot), "GPU 0: NVIDIA H200 (UUID: GPU-0)\n");
        let text = details(&snapshot);
        let value = |title: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(title)).unwrap();
            line.split_once(": ").unwrap().1.to_owned()
        };
        assert_eq!(value("Driver Version"), "N/A");
        assert_eq!(value("Power Draw"), "N/A");
        assert_eq!(value("GPU Current Temp"), "35 C");
        assert_eq!(value("Total"), "81920 MiB");
    }
}
