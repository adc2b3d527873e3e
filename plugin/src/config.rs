//! The configuration. Flags win over the environment, the environment wins over the file. All of it is checked before any part
//! starts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vcuda_daemon::config::{self, ConfigError};
use vcuda_daemon::logging::Log;

use crate::cdi::Inject;
use crate::dra::device::Effect;
use crate::pods::ExtendedResources;
use crate::register::Directories;
use crate::release::ReleaseTimes;

mod file;
mod flags;
mod value;

pub use flags::Flags;

/// Path of the file unless a flag names another. The file at this path may be missing.
pub const DEFAULT_FILE: &str = "/etc/vcuda/device-plugin.toml";

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) manager: PathBuf,
    pub(crate) directories: Directories,
    pub(crate) cdi: PathBuf,
    pub(crate) devices: PathBuf,
    /// The part that brings device nodes and the driver's libraries.
    pub(crate) inject: Inject,
    /// The driver's root on the host, and the path at which this process sees it.
    pub(crate) driver: (PathBuf, PathBuf),
    /// Use of the API server.
    pub(crate) cluster: Cluster,
    pub(crate) names: ExtendedResources,
    pub(crate) chunk_bytes: u64,
    /// Whether a container that has its GPUs alone gets the shim too.
    pub(crate) shim_for_whole_gpus: bool,
    /// Whether a container starts only if the shim is loaded in it.
    pub(crate) strict: bool,
    /// Effect of the taint of an unhealthy GPU in the ResourceSlices.
    pub(crate) unhealthy_effect: Effect,
    pub(crate) release: ReleaseTimes,
    /// Address of metrics and health; `None` if they are not served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Filter and format of the log.
    pub log: Log,
}

/// Use of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) node: String,
    pub(crate) api: Api,
    /// Path of the kubeconfig file; `None` for the pod's service account.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Whether the manager's events about a container become Kubernetes events of its pod.
    pub(crate) events: bool,
    /// Whether what the GPUs have left is published on the node, for the scheduler extender.
    pub(crate) publish: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Api {
    /// If a kubeconfig is set, or this process runs in a pod with a service account.
    #[default]
    Auto,
    /// Never: annotations are not read.
    Off,
}

impl Config {
    /// Reads the file that `flags` name, or the default one if it exists, and applies the flags.
    pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
        let (path, text) = config::read(flags.config.as_deref(), Path::new(DEFAULT_FILE))?;
        Config::from_toml(&text, path, flags)
    }

    fn from_toml(text: &str, path: &Path, flags: &Flags) -> Result<Config, ConfigError> {
        let file: file::File = config::parse(text, path)?;
        let resources = file.resources;
        let config = Config {
            manager: flags.manager.clone().unwrap_or(file.manager),
            directories: Directories { kubelet: flags.kubelet.clone().unwrap_or(file.kubelet) },
            cdi: flags.cdi.clone().unwrap_or(file.cdi),
            devices: file.devices,
            inject: file.driver.inject,
            driver: (file.driver.root.clone(), file.driver.seen_at.unwrap_or(file.driver.root)),
            cluster: Cluster {
                node: flags.node.clone().unwrap_or_else(config::host_name),
                api: file.cluster.api,
                kubeconfig: file.cluster.kubeconfig,
                events: file.cluster.events,
                publish: file.cluster.publish,
            },
            names: ExtendedResources::new(
                [resources.gpu.0, resources.memory.0, resources.cores.0],
                resources.suspendable_memory.map(|name| name.0),
            ),
            chunk_bytes: flags.chunk.unwrap_or(resources.chunk).0,
            shim_for_whole_gpus: file.whole_cards.shim,
            strict: file.strict,
            unhealthy_effect: file.dra.unhealthy_effect,
            release: ReleaseTimes { interval: file.release.interval.0, grace: file.release.grace.0 },
            metrics: flags.metrics.unwrap_or(file.metrics.listen).0,
            log: file.log.with(flags.log.as_ref(), flags.log_format),
        };
        config.check()
    }

    fn check(self) -> Result<Config, ConfigError> {
        let together = |message| Err(ConfigError::Together(message));
        for (key, path) in [
            ("manager", &self.manager),
            ("kubelet", &self.directories.kubelet),
            ("cdi", &self.cdi),
            ("devices", &self.devices),
            ("driver.root", &self.driver.0),
            ("driver.seen_at", &self.driver.1),
        ] {
            config::absolute(key, path)?;
        }
        let names: Vec<&str> = self.names.kinds().map(|kind| self.names.name(kind)).collect();
        let different: BTreeSet<&&str> = names.iter().collect();
        if different.len() < names.len() {
            return together(format!("resources {}: give each a name of its own", names.join(", ")));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;

    fn load(text: &str, flags: &[&str]) -> Result<Config, String> {
        let flags = Flags::parse_from(["device-plugin"].iter().chain(flags));
        Config::from_toml(text, Path::new("p.toml"), &flags).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = load("", &[]).unwrap();
        assert_eq!(config.manager, Path::new("/run/vcuda/manager.sock"));
        assert_eq!(config.chunk_bytes, 256 << 20);
        assert_eq!(config.names.name(crate::ids::Kind::Cores), "vcuda.io/cores");
        assert_eq!(config.release.grace, Duration::from_secs(30));
        assert_eq!(
            config.directories.pod_resources(),
            Path::new("/var/lib/kubelet/pod-resources/kubelet.sock")
        );
    }

    #[test]
    fn the_documented_file_is_the_defaults() {
        let documented = include_str!("../../deploy/device-plugin.toml");
        assert_eq!(load(documented, &[]).unwrap(), load("", &[]).unwrap());
        let keys = "manager kubelet cdi devices strict [resources] gpu memory cores suspendable_memory chunk [driver] inject root \
                    seen_at [cluster] api kubeconfig events publish [whole_cards] shim [dra] unhealthy_effect [release] interval \
                    grace [metrics] listen [log] filter format";
        for key in keys.split_whitespace() {
            assert!(documented.contains(key), "{key}");
        }
    }

    #[test]
    fn flags_win() {
        let config = load(
            "cdi = \"/a\"\n[resources]\nchunk = \"1Gi\"",
            &["--cdi", "/b", "--metrics", "off", "--chunk", "512Mi"],
        )
        .unwrap();
        assert_eq!((config.cdi.as_path(), config.metrics), (Path::new("/b"), None));
        assert_eq!(config.chunk_bytes, 512 << 20);
    }

    #[test]
    fn errors_name_line_value_and_remedy() {
        for (text, expected) in [
            ("\n\ncdi = 7", "p.toml:3: "),
            ("cid = \"/a\"", "p.toml:1: unknown field `cid`"),
            ("[resources]\nchunk = \"1\"", "p.toml:2: '1': outside 16 MiB to 64 GiB"),
            ("[resources]\nchunk = \"100000000\"", "whole MiB"),
            ("[resources]\ngpu = \"gpu\"", "p.toml:2: 'gpu': not a resource's name"),
            ("[resources]\ngpu = \"kubernetes.io/gpu\"", "p.toml:2: "),
            ("[resources]\ngpu = \"vcuda.io/memory\"", "give each a name of its own"),
            (
                "[resources]\nsuspendable_memory = \"vcuda.io/memory\"",
                "vcuda.io/memory, vcuda.io/cores, vcuda.io/memory: give each",
            ),
            ("[dra]\nunhealthy_effect = \"Evict\"", "p.toml:2: unknown variant `Evict`"),
            ("[release]\ngrace = \"1ms\"", "p.toml:2: '1ms': outside"),
            ("[metrics]\nlisten = \"here\"", "p.toml:2: 'here': neither"),
            ("kubelet = \"here\"", "absolute path"),
            ("[log]\nfilter = \"vcuda=loud\"", "p.toml:2: 'vcuda=loud'"),
        ] {
            let error = load(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_named_file_must_be_there() {
        let flags = Flags::parse_from(["device-plugin", "--config", "/nowhere/p.toml"]);
        let error = Config::load(&flags).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/p.toml: "), "{error}");
    }
}
