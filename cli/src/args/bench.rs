//! Arguments of `vcuda demo` and `vcuda bench`, shared with the program `vcuda-bench` that carries them out.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::inventory::GpuSelector;

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  vcuda demo
  vcuda demo --sim         on the simulated GPU, even beside a real one
  vcuda demo --svg s.svg   draw it, too
  vcuda demo --json        for scripts";

pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  vcuda bench                             all tables on this GPU, 5 to 15 min
  vcuda bench --quick --sim               a few rows on the simulated GPU, 30 s
  vcuda bench --only split --svg s.svg    tenants side by side, with a picture
  vcuda bench --without-shim              the same work without limits
  vcuda bench --json | jq .summary";

pub(super) const BENCH_DETAILS: &str = "\
Tenants keep the GPU busy with kernels whose work is fixed, alone and side by \
side, and each should get its share, soon after it was idle or its share was \
changed. On a real GPU a share is the work that was done over the work of the \
same program alone without the shim; on the simulated one it is the exact \
record. Anything else on the GPU disturbs.

ERROR %: share over cap, less 1. MAE pt: mean distance of a window from the cap \
in points, of the worst tenant; IDEAL pt: the same for a limiter that never errs, \
as a kernel cannot be stopped. RATIO %: error of the ratio of two shares to that \
of their caps, worst pair. JAIN: Jain's index of shares over caps; 1 is best. \
USED: all shares over all caps. ADDED: median of a call with the shim less that \
without. Changes: time until nine tenths of a share are back after a second of \
idleness (goal 20 ms), and until a changed share is within ten points (goal 50 ms \
and the running kernel), by the mean of four steps of 5 ms; more than a second is \
\"never\".

Exit status: 0 measured, whatever came out; 1 failed or interrupted; 64 wrong \
use, also no GPU; 69 vcuda's own libraries, or vcuda-bench, are missing.";

/// A command of `vcuda` that `vcuda-bench` carries out.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Show two tenants on one GPU, each limited to its quota
    #[command(before_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Measure the accuracy of shares and the cost of a call on this GPU
    #[command(before_help = BENCH_EXAMPLES, after_help = BENCH_DETAILS)]
    Bench(BenchArgs),
    /// The program of the tenants of `demo` and `bench`.
    #[command(hide = true)]
    FixtureTenant,
}

// No doc comment, as it would replace the command's own in the help.
#[expect(missing_docs, reason = "see above")]
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Use the simulated GPU even if there is a real one
    #[arg(long)]
    pub sim: bool,
    /// Draw the tenants' shares and memory over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print the checks as JSON; the text goes to stderr
    #[arg(long, long_help = super::json::DEMO)]
    pub json: bool,
}

/// A table of `bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchTable {
    /// A single tenant
    Alone,
    /// Tenants side by side
    Split,
    /// Time that the shim adds to a call
    Overhead,
    /// Delay until a share is reached after idleness, and after a change
    Changes,
}

#[expect(missing_docs, reason = "as of `DemoArgs`")]
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Seconds to measure each row, in windows of one second [default: 3, quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Measure only a few rows, in half a minute
    #[arg(long)]
    pub quick: bool,
    /// Measure only this table
    #[arg(long, value_enum, value_name = "TABLE")]
    pub only: Option<BenchTable>,
    /// Run the tenants without the shim, and so without limits, as the baseline
    #[arg(long)]
    pub without_shim: bool,
    /// Draw each tenant's share over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long, long_help = super::json::BENCH)]
    pub json: bool,
    /// Use a fresh simulated GPU even if there is a real one
    #[arg(long)]
    pub sim: bool,
    /// The GPU, by UUID or by its index in `vcuda smi` [default: most free memory]
    #[arg(long, value_name = "UUID|INDEX", allow_negative_numbers = true)]
    pub gpu: Option<GpuSelector>,
}
