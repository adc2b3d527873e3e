//! The command line. Every flag has its variable; a flag wins over the variable, both over the file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use vcuda_daemon::value::{Filter, Listen, LogFormat};

const EXAMPLES: &str = "\
Examples:
  vcuda-kubernetes cluster                         as /etc/vcuda/cluster.toml says
  vcuda-kubernetes cluster --check                 is that file right?
  vcuda-kubernetes cluster --certificate /tls --listen 127.0.0.1:8443 --metrics off";

const DETAILS: &str = "\
Certificate and key are read again if they change. SIGTERM and SIGINT end it,
after what is in flight. /healthz says that the process answers, /readyz that it
has a certificate and is not about to end.

Exit status: 0 ended by a signal; 64 the configuration is wrong (file, line and
value are named); 69 an address or the certificate cannot be used; 1 another
failure.";

/// Admits pods with shares of GPUs, and filters nodes for them.
#[derive(Debug, Clone, Default, Parser)]
#[command(before_help = EXAMPLES, after_help = DETAILS)]
pub struct Flags {
    /// The configuration file [default: /etc/vcuda/cluster.toml if it is there]
    #[arg(long, value_name = "FILE", env = "VCUDA_CLUSTER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where the webhook is served [default: 0.0.0.0:8443]
    #[arg(long, value_name = "ADDRESS:PORT", env = "VCUDA_CLUSTER_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Folder of tls.crt and tls.key [default: /etc/vcuda-cluster/tls]
    #[arg(long, value_name = "DIR", env = "VCUDA_CLUSTER_CERTIFICATE")]
    pub certificate: Option<PathBuf>,
    /// The API server's configuration [default: that of the pod]
    #[arg(long, value_name = "FILE", env = "VCUDA_CLUSTER_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and health are served, or off [default: 0.0.0.0:9438]
    #[arg(long, value_name = "ADDRESS:PORT", env = "VCUDA_CLUSTER_METRICS")]
    pub metrics: Option<Listen>,
    /// Messages to log [default: info]
    #[arg(long, value_name = "FILTER", env = "VCUDA_CLUSTER_LOG")]
    pub log: Option<Filter>,
    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", env = "VCUDA_CLUSTER_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Check the configuration and end
    #[arg(long)]
    pub check: bool,
}
