//! `kubectl vcuda`: GPUs, shares and what keeps a pod from starting, over all nodes, with the user's own rights: the managers'
//! metrics come through the API server's proxy.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use vcuda_daemon::api_server::kubeconfig_text;
use vcuda_daemon::life::{self, RunError};

use controller::Subject;

mod claimed;
mod collect;
mod controller;
pub mod explain;
mod finding;
mod gather;
pub mod metrics;
mod no_place;
mod shared_claim;
mod tables;
pub mod too_large;

const EXAMPLES: &str = "\
Examples:
  kubectl vcuda gpus                what each GPU of the cluster has left
  kubectl vcuda top -A              shares of all namespaces, the busiest first
  kubectl vcuda usage               what each namespace has and uses
  kubectl vcuda why web-0           why does this pod not start?
  kubectl vcuda why job/train       why does this job have no running pod?
  kubectl vcuda ps --json | jq .shares";

const DETAILS: &str = "\
gpus, ps, top and usage read the managers' metrics. They take the rights to
list pods and to get pods/proxy in the namespace of the chart; with those to
list all resourceclaims and resourceslices, what claims of pods that do not
start hold is not shown as free. why takes get of the pod,
list of events, get of resourceclaims in the pod's namespace; list of nodes
and resourceslices to tell whether it can ever start; of job/NAME and others,
get of these and list of pods.

Exit status: 0 done; 64 wrong use; 69 the API server or a manager does not
answer, or refuses; 1 another failure.";

/// Shows GPUs and shares of a cluster.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubectl-vcuda", version, before_help = EXAMPLES, after_help = DETAILS)]
pub struct Flags {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Args)]
struct Common {
    /// Configuration of the API server [default: as kubectl has it]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context in it
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// Namespace of pods [default: that of the context]
    #[arg(short, long, value_name = "NAME", global = true)]
    namespace: Option<String>,
    /// Pods of all namespaces
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Namespace of vcuda's chart
    #[arg(long, value_name = "NAME", default_value = "vcuda-system", global = true)]
    system_namespace: String,
    /// Labels of the pods of vcuda's chart
    #[arg(long, value_name = "SELECTOR", default_value = "app.kubernetes.io/name=vcuda", global = true)]
    selector: String,
    /// JSON, with units in its keys
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// GPUs: what is granted, what is free on each, which pods have shares
    Gpus,
    /// Shares of pods: quota and use
    Ps,
    /// As ps, the busiest first
    Top,
    /// What each namespace has and uses
    Usage,
    /// Why a pod, or a pod of a controller, does not start, and what to do
    Why {
        /// Name of the pod, or job/NAME, deployment/NAME, statefulset/NAME, replicaset/NAME, daemonset/NAME
        pod: Subject,
    },
}

/// Carries out a command.
pub fn run(flags: &Flags) -> Result<(), RunError> {
    life::block_on(work(flags))
}

async fn work(flags: &Flags) -> Result<(), RunError> {
    let common = &flags.common;
    let (client, of_context) = client(common).await?;
    let namespace = common.namespace.clone().unwrap_or(of_context);
    let text = match &flags.command {
        Command::Why { pod } => {
            let evidence = gather::evidence(&client, &namespace, pod).await?;
            let findings = explain::findings(&evidence);
            tables::why(&evidence, &findings, common.json)
        }
        listed => {
            let snapshot = collect::snapshot(&client, &common.system_namespace, &common.selector).await?;
            let of_pods = (!common.all_namespaces).then_some(namespace.as_str());
            match listed {
                Command::Gpus => tables::gpus(&snapshot, common.json),
                Command::Usage => tables::usage(&snapshot, common.json),
                Command::Top => tables::shares(&snapshot, of_pods, true, common.json),
                Command::Ps | Command::Why { .. } => tables::shares(&snapshot, of_pods, false, common.json),
            }
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Its reader has seen enough: `kubectl vcuda ps | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| RunError::Failed(error.to_string())),
    }
}

/// A client with the user's rights, and the namespace of its context.
async fn client(common: &Common) -> Result<(Client, String), RunError> {
    let config = config(common).await?;
    let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let unavailable = |error: &dyn Error| {
        RunError::Unavailable(format!("the API server {server} does not answer: {}", cause(error)))
    };
    let client = Client::try_from(config).map_err(|error| unavailable(&error))?;
    match client.apiserver_version().await {
        Ok(_) | Err(kube::Error::Api(_)) => Ok((client, namespace)),
        Err(error) => Err(unavailable(&error)),
    }
}

/// The error below all others, which says most.
fn cause(mut error: &dyn Error) -> &dyn Error {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// The configuration that kubectl would use, or that of the pod in which this runs.
async fn config(common: &Common) -> Result<Config, RunError> {
    let options = KubeConfigOptions { context: common.context.clone(), ..KubeConfigOptions::default() };
    let read = match common.kubeconfig.as_ref().map(Kubeconfig::read_from) {
        Some(Ok(file)) => Config::from_custom_kubeconfig(file, &options).await,
        Some(Err(error)) => Err(error),
        None => Config::from_kubeconfig(&options).await,
    };
    let is_default = common.kubeconfig.is_none() && options.context.is_none();
    read.or_else(|error| {
        let of_pod = Config::incluster().ok().filter(|_| is_default);
        of_pod.ok_or_else(|| RunError::Unavailable(format!("kubeconfig: {}", kubeconfig_text(&error))))
    })
}

/// An answer of the API server that is none, as the exit status and the sentence for it.
fn refused(what: &str, error: &kube::Error) -> RunError {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            RunError::Failed(format!("{what}: {}", status.message))
        }
        kube::Error::Api(status) => RunError::Unavailable(format!("{what}: {}", status.message)),
        error => RunError::Unavailable(format!("{what}: {error}")),
    }
}
