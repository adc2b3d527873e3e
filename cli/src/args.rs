//! Command-line types. Help, completions and man pages are generated from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueHint};
use vcuda_machine::Config;

mod apply;
pub mod bench;
pub(crate) mod fields;
mod gpu;
mod json;
mod manager;
mod quota;
mod reasons;
mod smi;
mod support_bundle;
mod usage;

pub(crate) use apply::ApplyArgs;
use apply::{APPLY_DETAILS, APPLY_EXAMPLES};
use bench::BenchCommand;
use gpu::{GPU_DETAILS, GPU_EXAMPLES};
pub(crate) use gpu::{GpuAction, GpuArgs};
use manager::{
    DOCKER_ARGS_DETAILS, DOCKER_ARGS_EXAMPLES, EVENTS_EXAMPLES, GRANT_DETAILS, GRANT_EXAMPLES, PS_EXAMPLES,
    TOP_EXAMPLES,
};
pub(crate) use manager::{
    EventsArgs, GrantAction, GrantArgs, GrantCreateArgs, GrantResizeArgs, PsArgs, SortKey, TopArgs,
};
pub use quota::changed_quota;
pub(crate) use quota::{QuotaArgs, memory as memory_quota, wait_ms as memory_wait_ms};
use smi::SMI_EXAMPLES;
pub(crate) use smi::{Monitor, SmiArgs};
pub(crate) use support_bundle::SupportBundleArgs;
use support_bundle::{BUNDLE_DETAILS, BUNDLE_EXAMPLES};
use usage::{USAGE_DETAILS, USAGE_EXAMPLES};
pub(crate) use usage::{UsageArgs, UsageBy};

use crate::completion::{self, Shell};
use crate::inventory::GpuSelector;
use vcuda_quota::MemorySize;

const MAIN_EXAMPLES: &str = "\
Examples:
  vcuda run --memory 4GiB --cores 30 -- python train.py   under a quota
  vcuda run --name web --memory 4GiB -- ./server          its tenant has a name
  vcuda set web --memory 6GiB                             its quota as it runs
  vcuda smi                                               who uses what
  vcuda run --sim --memory 2GiB -- ./app                  on a simulated GPU
  vcuda doctor -- python -c 'import torch'                why is it not limited?
  vcuda demo                                              see it work, 20 s";

const RUN_EXAMPLES: &str = "\
Examples:
  vcuda run --memory 4GiB --cores 30 -- python train.py
  vcuda run --gpu 1 --memory 12GiB -- ./server      only the GPU with index 1
  vcuda run --name jobs --memory 8GiB -- ./worker   several runs, one quota:
  vcuda run --name jobs -- ./worker                 the second joins the first
  vcuda run --cores 30 --policy burst -- ./server   30 % for sure, idle time too
  vcuda run --priority low -- python train.py       what the others leave
  vcuda run --sim --memory 2GiB -- ./app            without a GPU";

const RUN_DETAILS: &str = "\
The command replaces vcuda: stdin, signals and exit status are its own. All \
processes that it starts share the quota. \
Without --gpu each GPU of the machine gets the quota; with --gpu the command \
sees only these GPUs. \
A run inside a run is refused: a tenant cannot give itself a quota. \
Promises (--cores of fixed and burst) are kept before anything else. What is \
left goes by --priority, then policy, then --weight; each tenant that wants GPU \
time gets some. See docs/policies.md.

Exit status: the command's own; 64 wrong use, also no GPU; 69 not now: \
the manager does not answer or cannot write, or vcuda's libraries are \
missing; 1 another failure of vcuda; 126 the command cannot be \
executed; 127 it was not found.";

const SIM_EXAMPLES: &str = "\
Examples:
  vcuda sim -- ./app                on the simulated driver, without quota
  vcuda sim report --json           the exact record of the machine
  vcuda sim --machine ./m --gpus 2 --memory 24GiB -- ./app
  vcuda sim --machine ./m2 --profile gb10 -- ./app
  vcuda sim report --machine ./m";

const SIM_DETAILS: &str = "\
The machine is a directory: --machine, else VCUDA_SIM, else `machine` under \
the user's runtime directory. A missing one is created: one GPU of 80 GiB, \
unless --gpus, --memory and --profile say otherwise. A file faults.toml in it makes \
NVML show XIDs, lost GPUs or a driver that hangs (simulator/README.md).";

const REPORT_EXAMPLES: &str = "\
Examples:
  vcuda sim report
  vcuda sim report --json | jq '.processes[] | {pid, service_ns}'";

const SET_EXAMPLES: &str = "\
Examples:
  vcuda set web --memory 6GiB
  vcuda set web --cores 50 --policy burst
  vcuda set web --memory 6GiB --for 1h    then as before again
  vcuda set batch --priority low --weight 50";

const SET_DETAILS: &str = "\
Takes effect at once in running programs. Memory may be set below what is in \
use: nothing is taken away, new allocations are denied until enough is freed. \
Names are those of `vcuda smi`.

With --for the manager gives a grant its lasting quota back when the time is \
over, also after a restart; room for it is kept. A later set replaces both: it \
changes the lasting quota.";

const SUSPEND_EXAMPLES: &str = "\
Examples:
  vcuda grant create notebook --memory 8GiB --suspendable
  vcuda run --grant notebook -- jupyter lab
  vcuda suspend notebook          its 8 GiB are free until its next call
  vcuda resume notebook           or this";

const SUSPEND_DETAILS: &str = "\
The programs keep running; calls of CUDA wait until the memory is back. Limits \
and sources: docs/suspend.md.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  vcuda doctor                              this machine
  vcuda doctor -- python train.py           what it would meet under vcuda run
  vcuda doctor notebook                     what is wrong with this tenant?
  vcuda run --memory 2GiB -- vcuda doctor   from inside a tenant";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  vcuda completions bash > ~/.local/share/bash-completion/completions/vcuda
  vcuda completions fish > ~/.config/fish/completions/vcuda.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  vcuda man > ~/.local/share/man/man1/vcuda.1
  vcuda man run > ~/.local/share/man/man1/vcuda-run.1
  vcuda man --all ~/.local/share/man/man1    every page";

/// Share an NVIDIA GPU: memory and GPU-time quotas for unmodified programs.
#[derive(Debug, Parser)]
#[command(name = "vcuda", version, before_help = MAIN_EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a GPU quota
    #[command(before_help = RUN_EXAMPLES, after_help = RUN_DETAILS)]
    Run(RunArgs),
    /// Run a command on the simulated driver without a quota, or report what happened there
    #[command(before_help = SIM_EXAMPLES, after_help = SIM_DETAILS, args_conflicts_with_subcommands = true)]
    Sim(SimArgs),
    /// Show GPUs, tenants and processes
    #[command(before_help = SMI_EXAMPLES)]
    Smi(SmiArgs),
    /// Watch GPUs and tenants live
    #[command(before_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// List the processes that use a GPU, with their tenants
    #[command(before_help = PS_EXAMPLES)]
    Ps(PsArgs),
    /// Show what tenants used over hours or days, for chargeback and right-sizing
    #[command(before_help = USAGE_EXAMPLES, after_help = USAGE_DETAILS)]
    Usage(UsageArgs),
    /// Change a tenant's quota while it runs
    #[command(before_help = SET_EXAMPLES, after_help = SET_DETAILS)]
    Set(SetArgs),
    /// Manage tenants' quotas on the node's GPUs (needs the manager)
    #[command(before_help = GRANT_EXAMPLES, after_help = GRANT_DETAILS)]
    Grant(GrantArgs),
    /// Bring grants to what a file says (needs the manager)
    #[command(before_help = APPLY_EXAMPLES, after_help = APPLY_DETAILS)]
    Apply(ApplyArgs),
    /// Print the arguments with which docker or podman starts a container in a grant
    #[command(before_help = DOCKER_ARGS_EXAMPLES, after_help = DOCKER_ARGS_DETAILS)]
    DockerArgs {
        /// Name or id of the grant
        #[arg(value_name = "NAME", add = completion::grants_only())]
        name: String,
    },
    /// Move the GPU memory of suspendable tenants to host memory until their next call (needs the manager; experimental)
    #[command(before_help = SUSPEND_EXAMPLES, after_help = SUSPEND_DETAILS)]
    Suspend {
        /// Names or ids of tenants
        #[arg(value_name = "NAME", required = true, add = completion::tenants())]
        names: Vec<String>,
    },
    /// Move it back (needs the manager; experimental)
    #[command(before_help = "Examples:\n  vcuda resume notebook")]
    Resume {
        /// Names or ids of tenants
        #[arg(value_name = "NAME", required = true, add = completion::tenants())]
        names: Vec<String>,
    },
    /// List the node's GPUs, and cordon or uncordon them
    // The previous release called it `vcuda node gpus|cordon|uncordon`.
    #[command(before_help = GPU_EXAMPLES, after_help = GPU_DETAILS)]
    Gpu(GpuArgs),
    /// Show the node's events
    #[command(before_help = EVENTS_EXAMPLES, after_help = "With --help: all reasons, and what to do about each", after_long_help = reasons::help())]
    Events(EventsArgs),
    /// Check each link between a program and its quota, with a remedy for each that is broken
    #[command(before_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Write one archive with what a maintainer needs to help, without secrets
    #[command(before_help = BUNDLE_EXAMPLES, after_help = BUNDLE_DETAILS)]
    SupportBundle(SupportBundleArgs),
    #[command(flatten)]
    OfBench(BenchCommand),
    /// Print a completion script for a shell
    #[command(before_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell to complete for.
        shell: Shell,
    },
    /// Print the version
    #[command(before_help = "Examples:\n  vcuda version")]
    Version,
    /// Print the man page of vcuda or of one of its commands
    #[command(before_help = MAN_EXAMPLES)]
    Man {
        /// The command, such as `run` or `grant create` [default: vcuda itself].
        command: Vec<String>,
        /// Write the pages of vcuda and all of its commands into this folder.
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        all: Option<PathBuf>,
    },
    /// Proves that programs of this container are limited; the hook of strict containers.
    #[command(hide = true)]
    Attached(AttachedArgs),
    /// Has the driver limit a container that its runtime, whose hook this is, is about to start.
    #[command(hide = true)]
    LimitContainer(LimitContainerArgs),
    /// Reports what it finds in its own environment for `doctor -- CMD`, as JSON.
    #[command(hide = true)]
    DoctorProbe,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A GPU by UUID or by its index in `vcuda smi`; repeat for several [default: all]
    #[arg(long, value_name = "UUID|INDEX", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) gpu: Vec<GpuSelector>,
    #[command(flatten)]
    pub(crate) quota: QuotaArgs,
    /// The tenant's name; runs of one name share one quota [default: COMMAND-PID]
    #[arg(long, value_name = "NAME", add = completion::run_tenants_only())]
    pub(crate) name: Option<String>,
    /// Run in this grant of the manager (`vcuda grant create`) with its quota and GPUs
    #[arg(long, value_name = "NAME", add = completion::grants_only(), conflicts_with_all = ["gpu", "name", "memory", "cores", "cores_max", "policy", "weight", "priority"])]
    pub(crate) grant: Option<String>,
    /// Let `vcuda suspend` move its GPU memory to host memory (experimental: docs/suspend.md)
    #[arg(long, conflicts_with = "grant")]
    pub(crate) suspendable: bool,
    /// Longest wait for GPU memory that the quota allows and the GPU lacks, 0s to 24h [default: 120s]
    #[arg(long, value_name = "TIME", conflicts_with = "grant", value_parser = quota::wait_ms)]
    pub(crate) wait_for_memory: Option<u32>,
    /// Use the simulated driver, with the machine of VCUDA_SIM: for programs of the driver API, whose kernels take time and
    /// compute nothing
    #[arg(long)]
    pub(crate) sim: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, value_hint = ValueHint::AnyPath)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) action: Option<SimAction>,
    /// The simulated machine's directory [default: VCUDA_SIM, else the user's own]
    #[arg(long, value_name = "DIR")]
    pub(crate) machine: Option<PathBuf>,
    /// Number of GPUs if the machine is created [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) gpus: Option<u8>,
    /// Real driver and GPU to imitate if the machine is created [default: h200-580]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Config::profiles()))]
    pub(crate) profile: Option<String>,
    /// Memory of each GPU if the machine is created [default: the profile's]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<MemorySize>,
    /// The command and its arguments, after `--`
    #[arg(value_name = "CMD", required = true, last = true, value_hint = ValueHint::AnyPath)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimAction {
    /// Print the exact record of a simulated machine's use
    #[command(before_help = REPORT_EXAMPLES)]
    Report {
        /// The simulated machine's directory [default: VCUDA_SIM, else the user's own]
        #[arg(long, value_name = "DIR")]
        machine: Option<PathBuf>,
        /// Print JSON
        #[arg(long, long_help = json::SIM_REPORT)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[command(mut_args(without_default))]
pub(crate) struct SetArgs {
    /// Names of tenants in `vcuda smi`
    #[arg(value_name = "NAME", required = true, add = completion::tenants())]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) quota: QuotaArgs,
    /// Time after which the quota goes back by itself, 1s to 8784h, such as 90m or 1h30m (needs the manager)
    #[arg(long = "for", value_name = "TIME", value_parser = quota::time)]
    pub(crate) time: Option<Duration>,
}

/// An option of a new quota for `set` and `grant resize`, where an omitted option changes nothing.
fn without_default(arg: clap::Arg) -> clap::Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default: ") {
        Some((help, _)) => arg.help(format!("{help} [default: as it is]")),
        None => arg,
    }
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// What is wrong with this tenant, and whether it can be suspended (needs the manager)
    #[arg(value_name = "NAME", add = completion::tenants(), conflicts_with = "command")]
    pub(crate) tenant: Option<String>,
    /// Check as for `run --sim`
    #[arg(long)]
    pub(crate) sim: bool,
    /// Print JSON
    #[arg(long, long_help = json::DOCTOR)]
    pub(crate) json: bool,
    /// A command to check, without running it
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct LimitContainerArgs {
    /// Directory of the container's grant on the host
    pub(crate) directory: PathBuf,
    /// Fail if the driver does not limit the container though it could
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AttachedArgs {
    /// Also write the reason into this file, if it exists
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
