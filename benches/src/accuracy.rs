//! Accuracy of shares of GPU time: cases in virtual time ([`crate::lab`]), their results, and the goals.

mod cases;
mod contended;
#[cfg(test)]
mod ideal;
mod matrix;
mod report;
mod tail;

pub use cases::{PROGRAMS, Program, caps, processes, threads};
pub use contended::{Split, bursts, changes, splits, worst_error};
pub use matrix::{matrix, matrix_as_json, matrix_as_table};
pub use report::{Figure, Goal, Row, as_json, as_table, missed};
pub use tail::tails;
pub use vcuda_figures::mean;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::lab::{self, Lab, Load, ratio};

const SECOND_NS: u64 = 1_000_000_000;
/// Virtual time before a measurement (ns), for predictions and the arbiter.
const WARM_UP_NS: u64 = 2 * SECOND_NS;

/// The compiled program, and the settings of its runs.
#[derive(Debug)]
pub struct Bench {
    dir: tempfile::TempDir,
    /// Number of windows of one second per case.
    pub windows: usize,
    /// Time slice of the simulated GPU (ns).
    pub slice_ns: u64,
}

/// Default time slice, and time of a context switch (ns): an H200's (docs/evidence.md).
pub const SLICE_NS: u64 = 2_091_000;
/// See [`SLICE_NS`].
pub const SWITCH_NS: u64 = 152_000;

impl Bench {
    /// A bench that measures this number of windows. Fails without a C compiler.
    pub fn new(windows: usize) -> Result<Bench> {
        let dir = tempfile::tempdir()?;
        let bench = Bench { dir, windows, slice_ns: SLICE_NS };
        lab::compile(&bench.program())?;
        Ok(bench)
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("load")
    }

    /// A lab whose GPU has this duration of a context switch (ns).
    fn lab(&self, switch_ns: u64) -> Result<Lab> {
        Lab::new(Path::new(&self.program()), &machine(switch_ns, self.slice_ns))
    }

    /// The shares of tenants in windows of one second (1 is the whole GPU).
    pub fn shares(&self, switch_ns: u64, loads: &[Load<'_>]) -> Result<Vec<Vec<f64>>> {
        self.shares_and_parts(switch_ns, loads).map(|(shares, _)| shares)
    }

    /// Shares of tenants in windows of one second on a machine with this `machine.toml`, without the named refinements of
    /// the limiter.
    pub fn shares_on(&self, machine: &str, without: &str, loads: &[Load<'_>]) -> Result<Shares> {
        let mut lab = Lab::new(Path::new(&self.program()), machine)?;
        lab.leave_out(without);
        for load in loads {
            lab.start(*load)?;
        }
        lab.run_for(WARM_UP_NS)?;
        lab.windows(self.windows, SECOND_NS)
    }

    /// Shares of tenants in windows of one second, and of each of their processes over all windows.
    pub fn shares_and_parts(&self, switch_ns: u64, loads: &[Load<'_>]) -> Result<(Shares, Shares)> {
        let mut lab = self.lab(switch_ns)?;
        for load in loads {
            lab.start(*load)?;
        }
        lab.run_for(WARM_UP_NS)?;
        let before = lab.service_ns()?;
        let shares = lab.windows(self.windows, SECOND_NS)?;
        let all_ns = SECOND_NS * self.windows as u64;
        let after = lab.service_ns()?;
        let parts = after.iter().zip(&before).map(|(after, before)| {
            let served = after.iter().zip(before);
            served.map(|(after, before)| ratio(after - before, all_ns)).collect()
        });
        Ok((shares, parts.collect()))
    }
}

/// Shares by tenant and window; 1 is the whole GPU.
pub type Shares = Vec<Vec<f64>>;

/// Configuration with small contexts, so that many processes fit.
fn machine(switch_ns: u64, slice_ns: u64) -> String {
    format!("context_bytes = \"64MiB\"\nswitch_ns = {switch_ns}\nslice_ns = {slice_ns}\n")
}
