//! Command line. Each flag has an environment variable; the flag takes precedence, and both override the file.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use vcuda_daemon::value::{Filter, Listen, LogFormat};

use crate::grant_devices::Folder;

const EXAMPLES: &str = "\
Examples:
  vcuda-manager                                    as /etc/vcuda/manager.toml says
  vcuda-manager --check                            is that file right?
  vcuda-manager --root /tmp/v/run --state /tmp/v/state --metrics off";

const DETAILS: &str = "\
SIGTERM and SIGINT end it: calls under way are finished, tenants go on as they
are. SIGHUP reads the configuration again; what needs a restart is named in the
log. A killed manager loses nothing: see docs/operations.md.

Exit status: 0 ended by a signal; 64 the configuration is wrong (file, line and
value are named); 69 another manager owns the runtime directory, or a socket
cannot be made; 1 another failure.";

/// Processes of a user's own manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Starts the keeper and ends, so that the keeper is no child of the command that `vcuda run` becomes.
    Start,
    /// Starts the manager, and again should it be killed or stopped.
    Keep,
    /// The manager itself.
    Serve,
}

impl Stage {
    /// The flag with which a process of this stage is started.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Start => "--own=start",
            Self::Keep => "--own=keep",
            Self::Serve => "--own=serve",
        }
    }
}

/// Owner of this node's GPUs and of the record of their grants
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "vcuda-manager", version, before_help = EXAMPLES, after_help = DETAILS)]
pub struct Flags {
    /// The configuration file [default: /etc/vcuda/manager.toml if it is there]
    #[arg(long, value_name = "FILE", env = "VCUDA_MANAGER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Runtime directory: tenants' directories, and the API's socket [default: /run/vcuda]
    #[arg(long, value_name = "DIR", env = "VCUDA_MANAGER_ROOT")]
    pub root: Option<PathBuf>,
    /// The ledger and the installed libraries [default: /var/lib/vcuda]
    #[arg(long, value_name = "DIR", env = "VCUDA_MANAGER_STATE")]
    pub state: Option<PathBuf>,
    /// The node's name in metrics and events [default: the host's]
    #[arg(long, value_name = "NAME", env = "VCUDA_MANAGER_NODE")]
    pub node: Option<String>,
    /// NVML [default: libnvidia-ml.so.1 as the loader finds it]
    #[arg(long, value_name = "FILE", env = "VCUDA_MANAGER_NVML")]
    pub nvml_library: Option<PathBuf>,
    /// The CUDA driver, asked where NVML does not tell a GPU's memory [default: libcuda.so.1 as the loader finds it]
    #[arg(long, value_name = "FILE", env = "VCUDA_MANAGER_CUDA")]
    pub cuda_library: Option<PathBuf>,
    /// The shim to install under the state directory, under a name of its version [default: libvcuda_shim.so beside
    /// this program or in ../lib]
    #[arg(long, value_name = "FILE", env = "VCUDA_MANAGER_SHIM")]
    pub shim_library: Option<PathBuf>,
    /// The vcuda command to install beside it, for containers [default: vcuda beside this program]
    #[arg(long, value_name = "FILE", env = "VCUDA_MANAGER_PROGRAM")]
    pub vcuda_program: Option<PathBuf>,
    /// Folder of the grants' CDI devices, or off [default: /var/run/cdi if it can be written]
    #[arg(long, value_name = "DIR", env = "VCUDA_MANAGER_CDI")]
    pub cdi: Option<Folder>,
    /// Address of the Prometheus metrics, or off [default: 127.0.0.1:9436]
    #[arg(long, value_name = "ADDRESS:PORT", env = "VCUDA_MANAGER_METRICS")]
    pub metrics: Option<Listen>,
    /// Messages to log [default: info]
    #[arg(long, value_name = "FILTER", env = "VCUDA_MANAGER_LOG")]
    pub log: Option<Filter>,
    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", env = "VCUDA_MANAGER_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Serve the runs of one user, and end with the last of them, as `vcuda run` starts it
    #[arg(
        long,
        value_name = "STAGE",
        hide = true,
        requires = "root",
        num_args = 0..=1,
        default_missing_value = "start",
        require_equals = true
    )]
    pub own: Option<Stage>,
    /// Directory of the simulated machine, where NVML is the simulator's
    #[arg(long, hide = true, env = "VCUDA_SIM")]
    pub machine: Option<PathBuf>,
    /// Only divide GPU time, as experiments in virtual time need it
    #[arg(long, hide = true, requires = "root")]
    pub only_divide: bool,
    /// Wait for the end of a manager that owns the runtime directory, instead of failing
    #[arg(long, env = "VCUDA_MANAGER_WAIT")]
    pub wait: bool,
    /// Check the configuration and end
    #[arg(long)]
    pub check: bool,
}
