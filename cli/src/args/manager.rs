//! Arguments of commands that use the node's manager.

use clap::{Args, Subcommand, ValueEnum};

use super::{QuotaArgs, json, without_default};
use crate::completion;
use crate::inventory::GpuSelector;

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  vcuda top                       live; ? lists the keys, q ends it
  vcuda top --sort memory";

pub(super) const PS_EXAMPLES: &str = "\
Examples:
  vcuda ps
  vcuda ps --json | jq '.processes[] | select(.memory_used_bytes > 1e9)'";

pub(super) const EVENTS_EXAMPLES: &str = "\
Examples:
  vcuda events                    what the manager remembers
  vcuda events --follow
  vcuda events --container web-7 --json";

pub(super) const GRANT_EXAMPLES: &str = "\
Examples:
  vcuda grant create web --memory 4GiB --cores 30
  vcuda run --grant web -- ./server
  vcuda grant resize web --memory 6GiB
  vcuda grant create nb --user alice --memory 2GiB --cores 10
  vcuda grant list
  vcuda grant release web";

pub(super) const GRANT_DETAILS: &str = "\
Asks the node's manager, or else the user's own. The node's keeps grants across \
restarts, of its own and of the programs, and refuses what does not fit on any \
GPU, with what is free.";

pub(super) const DOCKER_ARGS_EXAMPLES: &str = "\
Examples:
  vcuda docker-args web
  docker run $(vcuda docker-args web) IMAGE
  podman run --device vcuda.io/grant=web IMAGE    the same by CDI";

pub(super) const DOCKER_ARGS_DETAILS: &str = "\
For engines without CDI. Needs the node's manager. See docs/operations.md.";

/// Column by which `top` sorts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// Highest use of GPU time first
    #[default]
    Cores,
    /// Highest use of memory first
    Memory,
    /// By name
    Name,
    /// Highest part of the memory quota first
    Quota,
    /// Most denied allocations first
    Denied,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Order of the tenants
    #[arg(long, value_enum, default_value_t)]
    pub(crate) sort: SortKey,
    /// Show the simulated machine of VCUDA_SIM even if there is a real GPU
    #[arg(long)]
    pub(crate) sim: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    /// Print JSON
    #[arg(long, long_help = json::PS)]
    pub(crate) json: bool,
    /// Show the simulated machine of VCUDA_SIM even if there is a real GPU
    #[arg(long)]
    pub(crate) sim: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Keep running, and print new events
    #[arg(long)]
    pub(crate) follow: bool,
    /// Only events of this container, by its id or the name of its grant
    #[arg(long, value_name = "NAME", add = completion::ids())]
    pub(crate) container: Option<String>,
    /// Print JSON, one object a line
    #[arg(long, long_help = json::EVENTS)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct GrantArgs {
    #[command(subcommand)]
    pub(crate) action: GrantAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantAction {
    /// Grant a tenant a quota on GPUs
    #[command(before_help = "Examples:\n  vcuda grant create web --memory 4GiB --cores 30 --gpus 2")]
    Create(GrantCreateArgs),
    /// Change a grant's quota, also while its programs run
    #[command(before_help = "Examples:\n  vcuda grant resize web --memory 6GiB")]
    Resize(GrantResizeArgs),
    /// Release grants
    #[command(visible_aliases = ["delete", "rm"], before_help = "Examples:\n  vcuda grant release web")]
    Release {
        /// Names or ids of grants
        #[arg(value_name = "NAME", required = true, add = completion::grants_only())]
        names: Vec<String>,
        /// Release it even if its programs run: they keep what they have and get nothing more
        #[arg(long)]
        force: bool,
    },
    /// Show one grant
    #[command(
        before_help = "Examples:\n  vcuda grant show web\n  vcuda grant show web --json | jq .grants[0].directory"
    )]
    Show {
        /// Names or ids of grants
        #[arg(value_name = "NAME", required = true, add = completion::grants_only())]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List all grants of the node
    #[command(
        visible_alias = "ls",
        before_help = "Examples:\n  vcuda grant list\n  vcuda grant list --json | jq '.grants[].id'"
    )]
    List {
        /// Print JSON
        #[arg(long, long_help = json::GRANT_LIST)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[command(mut_args(without_default))]
pub(crate) struct GrantResizeArgs {
    /// Names or ids of grants
    #[arg(value_name = "NAME", required = true, add = completion::grants_only())]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) quota: QuotaArgs,
}

#[derive(Args, Debug)]
pub(crate) struct GrantCreateArgs {
    /// Name of the tenant; its id is NAME and a number
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) quota: QuotaArgs,
    /// A GPU by UUID or by its index in `vcuda smi`; repeat for several [default: the manager chooses]
    #[arg(long, value_name = "UUID|INDEX", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) gpu: Vec<GpuSelector>,
    /// Number of GPUs that the manager chooses
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "gpu", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) gpus: u32,
    /// The user whose limit it counts against, by name or number [default: you, if you have a limit]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Let `vcuda suspend` move its GPU memory to host memory (experimental: docs/suspend.md)
    #[arg(long)]
    pub(crate) suspendable: bool,
    /// Longest wait for GPU memory that the quota allows and the GPU lacks, 0s to 24h [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = super::quota::wait_ms)]
    pub(crate) wait_for_memory: Option<u32>,
    /// Print only the tenant's directory
    #[arg(long)]
    pub(crate) directory: bool,
}
