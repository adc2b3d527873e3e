//! Arguments of `vcuda gpu`: the GPUs that the manager grants.

use clap::{Args, Subcommand};

use crate::inventory::GpuSelector;

pub(super) const GPU_EXAMPLES: &str = "\
Examples:
  vcuda gpu list
  vcuda gpu cordon GPU-f46c2ba1          nothing new is placed there
  vcuda gpu uncordon GPU-f46c2ba1";

pub(super) const GPU_DETAILS: &str = "\
Asks the node's manager, or else the user's own. What runs on a cordoned GPU \
goes on; the manager remembers the cordon across its restarts.";

#[derive(Args, Debug)]
pub(crate) struct GpuArgs {
    #[command(subcommand)]
    pub(crate) action: GpuAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GpuAction {
    /// List the node's GPUs with their grants and status
    #[command(
        alias = "gpus",
        visible_alias = "ls",
        before_help = "Examples:\n  vcuda gpu list\n  vcuda gpu list --json | jq '.gpus[] | select(.cordoned)'"
    )]
    List {
        /// Print JSON
        #[arg(long, long_help = super::json::GPU_LIST)]
        json: bool,
    },
    /// Exclude GPUs from new grants; running tenants keep them
    #[command(before_help = "Examples:\n  vcuda gpu cordon 1\n  vcuda gpu cordon GPU-f46c2ba1")]
    Cordon {
        /// A GPU by UUID (its beginning is enough) or by its index in `vcuda gpu list`
        #[arg(value_name = "UUID|INDEX", required = true, allow_negative_numbers = true)]
        gpu: Vec<GpuSelector>,
    },
    /// Allow new grants on GPUs again
    #[command(before_help = "Examples:\n  vcuda gpu uncordon 1")]
    Uncordon {
        /// A GPU by UUID (its beginning is enough) or by its index in `vcuda gpu list`
        #[arg(value_name = "UUID|INDEX", required = true, allow_negative_numbers = true)]
        gpu: Vec<GpuSelector>,
    },
}
