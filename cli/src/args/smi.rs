//! Arguments of `vcuda smi`, which has nvidia-smi's habits.

use clap::{Args, Subcommand};

use super::fields::{CsvFormat, Field, GPU, PROCESS, TENANT, one_of};
use crate::inventory::GpuSelector;

pub(super) const SMI_EXAMPLES: &str = "\
Examples:
  vcuda smi
  vcuda smi --watch                       redraws until q
  vcuda smi -L                            GPUs with their UUIDs
  vcuda smi -q -i 0                       all that is known of a GPU
  vcuda smi dmon                          a line a second for each GPU
  vcuda smi --query-tenants=name,memory.used,cores.used --format=csv,noheader
  vcuda smi --json | jq '.gpus[].tenants[] | {name, memory_used_bytes}'";

const DMON_EXAMPLES: &str = "\
Examples:
  vcuda smi dmon -d 5
  vcuda smi dmon -i 0 -c 10";

const PMON_EXAMPLES: &str = "\
Examples:
  vcuda smi pmon -c 1";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SmiArgs {
    #[command(subcommand)]
    pub(crate) monitor: Option<Monitor>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["list", "details", "query_gpu", "query_compute_apps", "query_tenants"], long_help = super::json::SMI)]
    pub(crate) json: bool,
    /// Redraw every second until interrupted
    #[arg(long, conflicts_with_all = ["list", "query_gpu", "query_compute_apps", "query_tenants", "seconds"])]
    pub(crate) watch: bool,
    /// List the GPUs with their UUIDs
    #[arg(short = 'L', long = "list-gpus", conflicts_with_all = ["details", "query_gpu", "query_compute_apps", "query_tenants"])]
    pub(crate) list: bool,
    /// Print all that is known of the GPUs, a figure a line
    #[arg(short = 'q', long = "query", conflicts_with_all = ["query_gpu", "query_compute_apps", "query_tenants"])]
    pub(crate) details: bool,
    /// Print again every N seconds until interrupted
    #[arg(
        short = 'l',
        long = "loop",
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "5",
        value_parser = seconds
    )]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) of: OfArgs,
    /// Print these figures of each GPU as CSV
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        value_parser = one_of(GPU),
        conflicts_with_all = ["query_compute_apps", "query_tenants"]
    )]
    pub(crate) query_gpu: Vec<&'static Field>,
    /// Print these figures of each process on each GPU as CSV
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = one_of(PROCESS), conflicts_with = "query_tenants")]
    pub(crate) query_compute_apps: Vec<&'static Field>,
    /// Print these figures of each tenant on each GPU as CSV
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = one_of(TENANT))]
    pub(crate) query_tenants: Vec<&'static Field>,
    /// Form of a query: csv, with noheader for no heading and nounits for no units
    #[arg(long, value_name = "csv[,noheader][,nounits]", default_value = "csv")]
    pub(crate) format: CsvFormat,
    /// Show UUIDs in the table
    #[arg(long)]
    pub(crate) uuid: bool,
}

/// GPUs that are shown.
#[derive(Args, Clone, Debug)]
pub(crate) struct OfArgs {
    /// Only these GPUs, by index or UUID [default: all]
    #[arg(short = 'i', long = "id", value_name = "INDEX|UUID", value_delimiter = ',')]
    pub(crate) gpus: Vec<GpuSelector>,
    /// Show the simulated machine of VCUDA_SIM even if there is a real GPU
    #[arg(long)]
    pub(crate) sim: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Monitor {
    /// Log each GPU's load, a line per GPU and interval
    #[command(before_help = DMON_EXAMPLES)]
    Dmon(MonitorArgs),
    /// Log each process's memory, a line per process and interval
    #[command(before_help = PMON_EXAMPLES)]
    Pmon(MonitorArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MonitorArgs {
    #[command(flatten)]
    pub(crate) of: OfArgs,
    /// Interval in seconds
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// End after so many intervals [default: never]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Seconds of an interval.
fn seconds(text: &str) -> Result<u64, String> {
    // `-lms 500` of nvidia-smi.
    if text == "ms" {
        return Err("there is no -lms: a look takes part of a second; write -l and whole seconds".to_owned());
    }
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| "give whole seconds, from 1 to 86400".to_owned())
}
