//! Live bars: redrawn in place on a terminal, a line per update elsewhere.

use super::bars::bars;
use super::history::History;
use super::output::Output;
use vcuda_cli::failure::Failure;
use vcuda_cli::inventory::Inventory;
use vcuda_cli::render::Snapshot;
use vcuda_cli::smi::Watch;
use vcuda_quota::{CoreShare, MemorySize};

/// View of the tenants, as `vcuda smi` shows them.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    inventory: &'a Inventory,
    watch: Watch,
    uuid: String,
    drawn_lines: usize,
    output: Output,
    history: History,
}

impl<'a> Live<'a> {
    /// Bars for the tenants of the GPU `uuid`; the first ones show no shares.
    pub(crate) fn new(inventory: &'a Inventory, watch: Watch, uuid: String, output: Output) -> Live<'a> {
        Live { inventory, watch, uuid, drawn_lines: 0, output, history: History::default() }
    }

    /// Updates without drawing.
    pub(crate) fn look(&mut self) -> Result<Snapshot, Failure> {
        let snapshot = self.snapshot()?;
        self.history.note(&snapshot, false);
        Ok(snapshot)
    }

    fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        let mut snapshot = self.watch.look(self.inventory)?;
        snapshot.gpus.retain(|gpu| gpu.uuid == self.uuid);
        Ok(snapshot)
    }

    /// What was shown so far.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Updates and draws.
    pub(crate) fn draw(&mut self) -> Result<Snapshot, Failure> {
        let snapshot = self.snapshot()?;
        self.history.note(&snapshot, true);
        if self.output.is_terminal() {
            let back = match self.drawn_lines {
                0 => String::new(),
                lines => format!("\x1b[{lines}A\x1b[J"),
            };
            let chart = bars(&snapshot);
            self.drawn_lines = chart.lines().count();
            self.output.write(format_args!("{back}{chart}"))?;
        } else {
            self.output.say(format_args!("   {}", line(&snapshot)))?;
        }
        Ok(snapshot)
    }

    /// Leaves the bars on the screen, and continues below it.
    pub(crate) fn leave(&mut self) {
        self.drawn_lines = 0;
    }
}

/// A line such as `a 29.9 of 30 %, 1 GiB of 4 GiB;  b ...`.
fn line(snapshot: &Snapshot) -> String {
    let tenants = snapshot.gpus.iter().flat_map(|gpu| &gpu.tenants).map(|tenant| {
        let used = tenant.core_used_permille;
        let (cores, limit) = (CoreShare(tenant.core_limit_permille), MemorySize(tenant.memory_limit_bytes));
        let memory = MemorySize(tenant.memory_used_bytes);
        format!("{} {}.{} of {cores}, {memory} of {limit}", tenant.name, used / 10, used % 10)
    });
    tenants.collect::<Vec<_>>().join(";  ")
}
