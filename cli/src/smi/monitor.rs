//! `vcuda smi dmon` and `pmon`: logs of the GPUs' load and of the processes' memory. A heading is printed again after so many
//! lines.

use crate::render::words::{clipped, tenths};
use crate::render::{GpuView, ProcessView, Snapshot};

/// Number of lines after which the heading is printed again.
const HEADING_EVERY: usize = 20;
/// Width to which a tenant's name is cut (columns).
const TENANT_WIDTH: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// The GPUs.
    Devices,
    /// The processes.
    Processes,
}

/// Writer of a log, which knows when the heading is due.
#[derive(Debug)]
pub(crate) struct Logger {
    log: Log,
    width: usize,
    lines: usize,
}

impl Logger {
    pub(crate) fn new(log: Log, width: usize) -> Logger {
        Logger { log, width, lines: 0 }
    }

    pub(crate) fn lines(&mut self, snapshot: &Snapshot) -> String {
        let rows: Vec<String> = match self.log {
            Log::Devices => snapshot.gpus.iter().map(device).collect(),
            Log::Processes => snapshot.gpus.iter().flat_map(processes).collect(),
        };
        let mut text = String::new();
        for row in rows {
            if self.lines.is_multiple_of(HEADING_EVERY) {
                text.push_str(self.heading());
            }
            self.lines += 1;
            text.push_str(clipped(&row, self.width).trim_end());
            text.push('\n');
        }
        text
    }

    fn heading(&self) -> &'static str {
        match self.log {
            Log::Devices => {
                "# gpu   pwr gtemp   sm  mem       fb granted   time  tenants\n\
                 # Idx     W     C    %    %      MiB     MiB      %        #\n"
            }
            Log::Processes => {
                "# gpu      pid  tenant                     fb  command\n\
                 # Idx        #  name                      MiB  name\n"
            }
        }
    }
}

/// Text of a figure, `-` if it is unknown, as in nvidia-smi's logs.
fn or_dash(figure: Option<u64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

fn device(gpu: &GpuView) -> String {
    let watts = gpu.power_draw_mw.map(|mw| u64::from(mw.saturating_add(500) / 1000));
    format!(
        "{:>5} {:>5} {:>5} {:>4} {:>4} {:>8} {:>7} {:>6} {:>8}",
        gpu.index,
        or_dash(watts),
        or_dash(gpu.temperature_celsius.map(u64::from)),
        or_dash(gpu.utilization_percent.map(u64::from)),
        or_dash(gpu.memory_utilization_percent.map(u64::from)),
        gpu.memory_used_bytes >> 20,
        gpu.memory_granted_bytes >> 20,
        tenths(gpu.cores_granted_permille),
        gpu.tenants.len()
    )
}

fn processes(gpu: &GpuView) -> Vec<String> {
    let row = |tenant: &str, process: &ProcessView| {
        let container = if process.is_in_container { "(in container) " } else { "" };
        format!(
            "{:>5} {:>8}  {:<TENANT_WIDTH$} {:>8}  {container}{}",
            gpu.index,
            process.pid,
            clipped(tenant, TENANT_WIDTH),
            or_dash(process.memory_used_bytes.map(|bytes| bytes >> 20)),
            process.name
        )
    };
    let mut rows = Vec::new();
    for tenant in &gpu.tenants {
        rows.extend(tenant.processes.iter().map(|process| row(&tenant.name, process)));
    }
    rows.extend(gpu.outside_processes.iter().map(|process| row("outside vcuda", process)));
    if rows.is_empty() {
        rows.push(format!("{:>5} {:>8}  {:<TENANT_WIDTH$} {:>8}  -", gpu.index, "-", "-", "-"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_comes_again() {
        let snapshot = Snapshot::of(vec![GpuView::new(0, "GPU-0", "S")]);
        for log in [Log::Devices, Log::Processes] {
            let mut logger = Logger::new(log, 80);
            let text: String = (0..21).map(|_| logger.lines(&snapshot)).collect();
            assert_eq!(text.lines().count(), 21 + 4, "{text}");
            assert_eq!(text.matches("# Idx").count(), 2);
        }
    }
}
