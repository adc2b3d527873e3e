//! The command line. Each flag has an environment variable. The flag wins over the variable, and both win over the file.

use std::path::PathBuf;

use clap::Parser;
use vcuda_daemon::value::{Filter, Listen, LogFormat};

use super::value::Chunk;

const EXAMPLES: &str = "\
Examples:
  vcuda-kubernetes device-plugin                        as /etc/vcuda/device-plugin.toml says
  vcuda-kubernetes device-plugin --check                is that file right?
  vcuda-kubernetes dra-driver --node gpu-1 --metrics off";

const DETAILS: &str = "\
SIGTERM and SIGINT end it; pods run on, and none is admitted until it is back. A
second one on the same node waits until the first has ended. /healthz says that
the process answers, /readyz that kubelet and manager do.

Exit status: 0 ended by a signal; 64 the configuration is wrong (file, line and
value are named); 69 an address or directory cannot be used; 1 another failure.";

/// Flags of the device plugin and of the DRA driver, which read one file.
#[derive(Debug, Clone, Default, Parser)]
#[command(about = None, before_help = EXAMPLES, after_help = DETAILS)]
pub struct Flags {
    /// The configuration file [default: /etc/vcuda/device-plugin.toml if it is there]
    #[arg(long, value_name = "FILE", env = "VCUDA_PLUGIN_CONFIG")]
    pub config: Option<PathBuf>,
    /// The manager's socket [default: /run/vcuda/manager.sock]
    #[arg(long, value_name = "SOCKET", env = "VCUDA_PLUGIN_MANAGER")]
    pub manager: Option<PathBuf>,
    /// Kubelet's directory [default: /var/lib/kubelet]
    #[arg(long, value_name = "DIR", env = "VCUDA_PLUGIN_KUBELET")]
    pub kubelet: Option<PathBuf>,
    /// Where container specifications lie [default: /var/run/cdi]
    #[arg(long, value_name = "DIR", env = "VCUDA_PLUGIN_CDI")]
    pub cdi: Option<PathBuf>,
    /// This node's name for the API server [default: the host's]
    #[arg(long, value_name = "NAME", env = "VCUDA_PLUGIN_NODE")]
    pub node: Option<String>,
    /// Size of a chunk of memory, the same on all nodes [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "VCUDA_PLUGIN_CHUNK")]
    pub(crate) chunk: Option<Chunk>,
    /// Where metrics and health are served, or off [default: 0.0.0.0:9437]
    #[arg(long, value_name = "ADDRESS:PORT", env = "VCUDA_PLUGIN_METRICS")]
    pub metrics: Option<Listen>,
    /// Messages to log [default: info]
    #[arg(long, value_name = "FILTER", env = "VCUDA_PLUGIN_LOG")]
    pub log: Option<Filter>,
    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", env = "VCUDA_PLUGIN_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Check the configuration and end
    #[arg(long)]
    pub check: bool,
}
