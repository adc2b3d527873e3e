//! Live bars: redrawn in place on a terminal, a line per update elsewhere.

use super::bars::bars;
use super::history::History;
use super::output::Output;
use crate::fixture::Fixture;
use vcuda_cli::failure::Failure;
use vcuda_cli::manager_client::{ManagerClient, view};
use vcuda_cli::render::Snapshot;
use vcuda_quota::{CoreShare, MemorySize};

/// View of the tenants, as `vcuda smi` shows them.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    fixture: &'a Fixture,
    /// The manager, connected at the first look: the first tenant starts it.
    node: Option<ManagerClient>,
    drawn_lines: usize,
    output: Output,
    history: History,
}

impl<'a> Live<'a> {
    /// Bars for the fixture's tenants.
    pub(crate) fn new(fixture: &'a Fixture, output: Output) -> Live<'a> {
        Live { fixture, node: None, drawn_lines: 0, output, history: History::default() }
    }

    /// Updates without drawing.
    pub(crate) fn look(&mut self) -> Result<Snapshot, Failure> {
        let snapshot = self.snapshot()?;
        self.history.note(&snapshot, false);
        Ok(snapshot)
    }

    fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        let node = match self.node.take() {
            Some(node) => node,
            None => self.fixture.node()?,
        };
        let mut snapshot = view::snapshot(&node)?;
        self.node = Some(node);
        let uuid = self.fixture.gpu().uuid.to_string();
        snapshot.gpus.retain(|gpu| gpu.uuid == uuid);
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
