//! The configuration: a file, over it the environment, over that the flags. Everything is checked before anything starts.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::cdi::Inject;
use crate::pods::Names;
use crate::register::{Directories, Ways};
use crate::release::Pace;

mod file;
mod flags;
mod value;

pub use flags::Flags;
pub use value::LogFormat;

/// Where the file is unless a flag says otherwise. That one may be missing.
pub const DEFAULT_FILE: &str = "/etc/vcuda/device-plugin.toml";

/// Everything that can be configured, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The manager's socket.
    pub manager: PathBuf,
    /// Kubelet's directories.
    pub directories: Directories,
    /// Where container specifications lie.
    pub cdi: PathBuf,
    /// Where device nodes are.
    pub devices: PathBuf,
    /// Who brings device nodes and the driver's libraries.
    pub inject: Inject,
    /// The driver's root on the host, and where it is seen from here.
    pub driver: (PathBuf, PathBuf),
    /// Whether pods' annotations are read from an API server.
    pub cluster: Cluster,
    /// Under which names kubelet knows our resources.
    pub names: Names,
    /// Of a chunk of memory.
    pub chunk_bytes: u64,
    /// How to register.
    pub ways: Ways,
    /// Whether a container that has its cards alone gets the shim too.
    pub shim_for_whole_cards: bool,
    /// When grants without a container end.
    pub release: Pace,
    /// Where metrics and health are served; nowhere if none.
    pub metrics: Option<SocketAddr>,
    /// What is logged, in the words of `tracing-subscriber`'s filter.
    pub log_filter: String,
    /// As text or as JSON.
    pub log_format: LogFormat,
}

/// The API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// This node's name there.
    pub node: String,
    /// Whether it is asked.
    pub api: Api,
    /// How it is reached, if not as any pod does.
    pub kubeconfig: Option<PathBuf>,
}

/// Whether the API server is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// If a kubeconfig is named, or this is a pod with a token.
    #[default]
    Auto,
    /// Never: every pod competes in the same way.
    Off,
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The configuration cannot be used. Exit status 64.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {}; name another with --config, or create it", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// A line of it is wrong.
    #[error("{}:{line}: {message}", .file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, and what to write.
        message: String,
    },
    /// Values that are fine alone do not go together, or a flag is wrong.
    #[error("{0}")]
    Together(String),
}

impl Config {
    /// Reads the file that `flags` name (or the default one, where it exists) and puts the flags over it.
    ///
    /// # Errors
    /// Names file, line and value: see [`ConfigError`].
    pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
        let (path, may_be_missing) = match &flags.config {
            Some(path) => (path.as_path(), false),
            None => (Path::new(DEFAULT_FILE), true),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(ConfigError::Unreadable(path.to_owned(), error)),
        };
        Config::of(&text, path, flags)
    }

    fn of(text: &str, path: &Path, flags: &Flags) -> Result<Config, ConfigError> {
        let file: file::File = toml::from_str(text).map_err(|error| ConfigError::Line {
            file: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        let resources = file.resources;
        let config = Config {
            manager: flags.manager.clone().unwrap_or(file.manager),
            directories: Directories {
                kubelet: flags.kubelet.clone().unwrap_or(file.kubelet),
            },
            cdi: flags.cdi.clone().unwrap_or(file.cdi),
            devices: file.devices,
            inject: file.driver.inject,
            driver: (
                file.driver.root.clone(),
                file.driver.seen_at.unwrap_or(file.driver.root),
            ),
            cluster: Cluster {
                node: flags.node.clone().unwrap_or_else(host_name),
                api: file.cluster.api,
                kubeconfig: file.cluster.kubeconfig,
            },
            names: Names::new([resources.gpu.0, resources.memory.0, resources.cores.0]),
            chunk_bytes: flags.chunk.unwrap_or(resources.chunk).0,
            ways: file.registration,
            shim_for_whole_cards: file.whole_cards.shim,
            release: Pace {
                interval: file.release.interval.0,
                grace: file.release.grace.0,
            },
            metrics: flags.metrics.unwrap_or(file.metrics.listen).0,
            log_filter: flags.log.clone().unwrap_or(file.log.filter.0),
            log_format: flags.log_format.unwrap_or(file.log.format),
        };
        config.check()
    }

    fn check(self) -> Result<Config, ConfigError> {
        let together = |message| Err(ConfigError::Together(message));
        for (name, path) in [
            ("manager", &self.manager),
            ("kubelet", &self.directories.kubelet),
            ("cdi", &self.cdi),
            ("devices", &self.devices),
            ("driver.root", &self.driver.0),
            ("driver.seen_at", &self.driver.1),
        ] {
            if !path.is_absolute() {
                let path = path.display();
                return together(format!("{name} = \"{path}\": write an absolute path"));
            }
        }
        let [gpu, memory, cores] = crate::ids::Kind::ALL.map(|kind| self.names.of(kind));
        if gpu == memory || gpu == cores || memory == cores {
            return together(format!(
                "resources.gpu \"{gpu}\", memory \"{memory}\" and cores \"{cores}\": give them three names"
            ));
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.log_filter) {
            let filter = &self.log_filter;
            return together(format!(
                "log filter \"{filter}\": {error}; write for example info,vcuda_plugin=debug"
            ));
        }
        Ok(self)
    }
}

/// The line (from 1) of the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;

    fn of(text: &str, flags: &[&str]) -> Result<Config, String> {
        let flags = Flags::parse_from(["vcuda-device-plugin"].iter().chain(flags));
        Config::of(text, Path::new("p.toml"), &flags).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = of("", &[]).unwrap();
        assert_eq!(config.manager, Path::new("/run/vcuda/manager.sock"));
        assert_eq!(config.chunk_bytes, 256 << 20);
        assert_eq!(config.names.of(crate::ids::Kind::Cores), "vcuda.io/cores");
        assert_eq!(config.release.grace, Duration::from_secs(30));
        assert_eq!(
            config.directories.pod_resources(),
            Path::new("/var/lib/kubelet/pod-resources/kubelet.sock")
        );
    }

    #[test]
    fn the_documented_file_is_the_defaults() {
        let documented = include_str!("../../deploy/device-plugin.toml");
        assert_eq!(of(documented, &[]).unwrap(), of("", &[]).unwrap());
        for key in file::KEYS {
            assert!(documented.contains(key), "{key}");
        }
    }

    #[test]
    fn flags_win() {
        let config = of(
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
            (
                "[resources]\nchunk = \"1\"",
                "p.toml:2: '1': outside 16 MiB to 64 GiB",
            ),
            ("[resources]\nchunk = \"100000000\"", "whole MiB"),
            (
                "[resources]\ngpu = \"gpu\"",
                "p.toml:2: 'gpu': not a resource's name",
            ),
            ("[resources]\ngpu = \"kubernetes.io/gpu\"", "p.toml:2: "),
            ("[resources]\ngpu = \"vcuda.io/memory\"", "give them three names"),
            ("registration = \"guess\"", "p.toml:1: "),
            ("[release]\ngrace = \"1ms\"", "p.toml:2: '1ms': outside"),
            ("[metrics]\nlisten = \"here\"", "p.toml:2: 'here': neither"),
            ("kubelet = \"here\"", "absolute path"),
            ("[log]\nfilter = \"vcuda=loud\"", "p.toml:2: 'vcuda=loud'"),
        ] {
            let error = of(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_named_file_must_be_there() {
        let flags = Flags::parse_from(["vcuda-device-plugin", "--config", "/nowhere/p.toml"]);
        let error = Config::load(&flags).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/p.toml: "), "{error}");
    }
}
