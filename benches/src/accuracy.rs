//! Accuracy of shares of GPU time: cases in virtual time ([`crate::lab`]), their results, and the promises.

mod cases;
mod contended;
#[cfg(test)]
mod ideal;
mod matrix;
mod report;

pub use cases::{PROGRAMS, Program, caps, processes, threads};
pub use contended::{Split, bursts, changes, splits, worst_error};
pub use matrix::{matrix, matrix_as_json, matrix_as_table};
pub use report::{Figure, Goal, Row, as_json, as_table, missed};
pub use vcuda_figures::mean;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::lab::{self, Lab, Load, ratio};

const SECOND_NS: u64 = 1_000_000_000;
/// Virtual time before anything is measured (ns): predictions are learnt, and the arbiter knows who is there.
const WARM_UP_NS: u64 = 2 * SECOND_NS;

/// The compiled program, and the duration of its runs.
#[derive(Debug)]
pub struct Bench {
    dir: tempfile::TempDir,
    /// Windows of one second in which a case is measured.
    pub windows: usize,
    /// Time that the simulated GPU lets a context run (ns).
    pub slice_ns: u64,
}

/// Its default.
pub const SLICE_NS: u64 = 1_024_000;

impl Bench {
    /// One that measures for so many windows.
    ///
    /// # Errors
    /// There is no C compiler.
    pub fn new(windows: usize) -> Result<Bench> {
        let dir = tempfile::tempdir()?;
        let bench = Bench {
            dir,
            windows,
            slice_ns: SLICE_NS,
        };
        lab::compile(&bench.program())?;
        Ok(bench)
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("load")
    }

    /// A lab whose GPU needs so long to change from one context to another (ns).
    fn lab(&self, switch_ns: u64) -> Result<Lab> {
        Lab::new(Path::new(&self.program()), &machine(switch_ns, self.slice_ns))
    }

    /// The shares of tenants in windows of one second (1 is the whole GPU).
    ///
    /// # Errors
    /// See [`Lab`].
    pub fn shares(&self, switch_ns: u64, loads: &[Load<'_>]) -> Result<Vec<Vec<f64>>> {
        self.shares_and_parts(switch_ns, loads).map(|(shares, _)| shares)
    }

    /// The shares of tenants in windows of one second on a machine with this `machine.toml`, by a limiter without some of
    /// its refinements.
    ///
    /// # Errors
    /// See [`Lab`].
    pub fn shares_on(&self, machine: &str, without: &str, loads: &[Load<'_>]) -> Result<Shares> {
        let mut lab = Lab::new(Path::new(&self.program()), machine)?;
        lab.leave_out(without);
        for load in loads {
            lab.start(*load)?;
        }
        lab.run_for(WARM_UP_NS)?;
        lab.windows(self.windows, SECOND_NS)
    }

    /// The shares of tenants in windows of one second, and of each of their processes in all of them.
    ///
    /// # Errors
    /// See [`Lab`].
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
            served
                .map(|(after, before)| ratio(after - before, all_ns))
                .collect()
        });
        Ok((shares, parts.collect()))
    }
}

/// Tenant by tenant, parts of the GPU: 1 is the whole.
pub type Shares = Vec<Vec<f64>>;

/// Small contexts, so that many processes fit.
fn machine(switch_ns: u64, slice_ns: u64) -> String {
    format!("context_bytes = \"64MiB\"\nswitch_ns = {switch_ns}\nslice_ns = {slice_ns}\n")
}
