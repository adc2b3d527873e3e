//! The program `vcuda-kubernetes`: all that Kubernetes runs of vcuda, in one, as the parts share most of their code. Called by
//! the name `kubectl-vcuda` it is the plugin of kubectl.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vcuda_cluster::{config as cluster, kubectl};
use vcuda_daemon::life::{self, RunError};
use vcuda_daemon::logging::Logging;
use vcuda_plugin::config as plugin;

/// Name of the link by which kubectl calls this program.
const KUBECTL_PLUGIN: &str = "kubectl-vcuda";

/// Shares of GPUs for Kubernetes pods.
#[derive(Debug, Parser)]
#[command(name = "vcuda-kubernetes", version)]
struct Program {
    #[command(subcommand)]
    daemon: Daemon,
}

#[derive(Debug, Subcommand)]
enum Daemon {
    /// Gives shares of the node's GPUs to pods that count them
    DevicePlugin(plugin::Flags),
    /// Gives shares of the node's GPUs to claims that Kubernetes' scheduler allocates
    DraDriver(plugin::Flags),
    /// Admits pods with shares of GPUs, and filters nodes for them
    Cluster(cluster::Flags),
}

fn main() -> ExitCode {
    let name = env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == KUBECTL_PLUGIN) {
        return life::main(KUBECTL_PLUGIN, |flags| kubectl::run(&flags));
    }
    life::main("vcuda-kubernetes", |Program { daemon }| match daemon {
        Daemon::DevicePlugin(flags) => on_node(&flags, vcuda_plugin::run_device_plugin),
        Daemon::DraDriver(flags) => on_node(&flags, vcuda_plugin::run_dra_driver),
        Daemon::Cluster(flags) => {
            let config = cluster::Config::load(&flags)?;
            if flags.check {
                return Ok(());
            }
            let _logging = Logging::start(&config.log);
            vcuda_cluster::run(config)
        }
    })
}

/// Runs a daemon of the node, or only checks its configuration.
fn on_node(
    flags: &plugin::Flags,
    run: impl FnOnce(plugin::Config) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let config = plugin::Config::load(flags)?;
    if flags.check {
        return Ok(());
    }
    let _logging = Logging::start(&config.log);
    run(config)
}
