//! The configuration: a file, over it the environment, over that the flags. Everything is checked before anything starts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use vcuda_daemon::config::{self, ConfigError};
use vcuda_daemon::logging::Log;
use vcuda_quota::pods::bounds::bounds;

use crate::admit::Rules;
use crate::extender::Score;

mod file;
mod flags;

pub use flags::Flags;

/// Path of the file if no flag names another. This one may be missing.
pub const DEFAULT_FILE: &str = "/etc/vcuda/cluster.toml";

/// Everything that can be configured, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub(crate) listen: SocketAddr,
    /// Folder of certificate and key.
    pub(crate) certificate: PathBuf,
    pub(crate) rules: Rules,
    /// Which of the nodes that fit is the better one.
    pub(crate) score: Score,
    /// Whether nodes' annotations are followed, for a scheduler that names nodes and does not send them.
    pub(crate) follows_nodes: bool,
    /// The API server's configuration, if not that of any pod.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of metrics and health; `None` if they are not served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Messages that are logged, and their format.
    pub log: Log,
}

impl Config {
    /// Reads the file that `flags` name (or the default one, where it exists) and puts the flags over it.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let (path, text) = config::read(flags.config.as_deref(), Path::new(DEFAULT_FILE))?;
        Self::of(&text, path, flags)
    }

    fn of(text: &str, path: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let file: file::File = config::parse(text, path)?;
        let config = Self {
            listen: flags.listen.unwrap_or(file.listen),
            certificate: flags.certificate.clone().unwrap_or(file.certificate),
            rules: file.admission.rules(file.resources, bounds(file.namespaces)),
            score: file.extender.score,
            follows_nodes: file.extender.follow_nodes,
            kubeconfig: flags.kubeconfig.clone().or(file.kubeconfig),
            metrics: flags.metrics.unwrap_or(file.metrics.listen).0,
            log: file.log.with(flags.log.as_ref(), flags.log_format),
        };
        config::absolute("certificate", &config.certificate)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use vcuda_quota::{Priority, QuotaChange};

    use super::*;
    use crate::admit::{AliyunUnit, Mode};

    fn of(text: &str, flags: &[&str]) -> Result<Config, String> {
        let flags = Flags::parse_from(["cluster"].iter().chain(flags));
        Config::of(text, Path::new("c.toml"), &flags).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = of("", &[]).unwrap();
        assert_eq!(config.rules, Rules::default());
        assert_eq!((config.listen.port(), config.metrics.map(|address| address.port())), (8443, Some(9438)));
    }

    #[test]
    fn the_documented_file_is_the_defaults() {
        let documented = include_str!("../../deploy/cluster.toml");
        assert_eq!(of(documented, &[]).unwrap(), of("", &[]).unwrap());
    }

    #[test]
    fn every_key_is_read() {
        let config = of(
            "listen = \"[::1]:1\"\ncertificate = \"/a\"\nkubeconfig = \"/k\"\n\
             [resources]\ngpu = \"a.b/c\"\nmemory = \"a.b/d\"\ncores = \"a.b/e\"\nsuspendable_memory = \"a.b/f\"\nchunk = \"1Gi\"\n\
             [admission]\nmode = \"dra\"\nclaims = false\ndefault_memory = \"2Gi\"\ngpu_memory = \"80Gi\"\naliyun_unit = \"MiB\"\n\
             volcano_memory_factor = 10\nhost_paths = [\"/data\", \"/mnt/x/\"]\nruntime_class = \"nvidia\"\n\
             tolerations = [{key = \"nvidia.com/gpu\", operator = \"Exists\", effect = \"NoSchedule\"}]\n\
             [namespaces.ops]\npriority_max = \"high\"\naudit_action = \"kill\"\n\
             [extender]\nscore = \"topology\"\nfollow_nodes = true\n",
            &["--metrics", "off", "--listen", "127.0.0.1:2"],
        )
        .unwrap();
        assert_eq!((config.listen.port(), config.metrics), (2, None));
        assert_eq!((config.score, config.follows_nodes), (Score::Topology, true));
        let rules = config.rules;
        assert_eq!(rules.names, ["a.b/c", "a.b/d", "a.b/e"]);
        assert_eq!(rules.suspendable_memory, "a.b/f");
        assert_eq!(
            (rules.chunk_bytes, rules.mode, rules.aliyun_unit),
            (1 << 30, Mode::Dra, AliyunUnit::Mebibytes)
        );
        assert_eq!((rules.default_memory_bytes, rules.gpu_memory_bytes), (Some(2 << 30), Some(80 << 30)));
        assert!(rules.makes_claims);
        assert_eq!(rules.host_paths, [Path::new("/data"), Path::new("/mnt/x")]);
        assert_eq!(rules.runtime_class.as_deref(), Some("nvidia"));
        assert_eq!(rules.tolerations[0]["key"], "nvidia.com/gpu");
        let high = QuotaChange { priority: Some(Priority::High), ..QuotaChange::default() };
        rules.bounds.check_change("ops", &high, 1000).unwrap();
        rules.bounds.check_change("web", &high, 1000).unwrap_err();
    }

    #[test]
    fn errors_name_line_value_and_remedy() {
        for (text, expected) in [
            ("\n\nlisten = 7", "c.toml:3: "),
            ("lisen = \"a\"", "c.toml:1: unknown field `lisen`"),
            ("listen = \"off\"", "c.toml:1: 'off': "),
            ("certificate = \"here\"", "absolute path"),
            ("[resources]\nchunk = \"1\"", "c.toml:2: '1': outside 16 MiB to 64 GiB"),
            ("[resources]\ngpu = \"gpu\"", "c.toml:2: 'gpu': not a resource's name"),
            ("[admission]\nmode = \"both\"", "c.toml:2: unknown variant `both`"),
            ("[admission]\ndefault_memory = \"4Gib\"", "c.toml:2: '4Gib': unknown unit"),
            ("[admission]\ntolerations = [{kye = \"a\"}]", "c.toml:2: unknown field `kye`"),
            ("[admission]\nvolcano_memory_factor = 0", "c.toml:2: '0': write 1 or more"),
            (
                "[admission]\nhost_paths = [\"/data/../run\"]",
                "c.toml:2: '/data/../run': write the absolute path",
            ),
            (
                "[admission]\nhost_paths = [\"/data\", \"/data/x\"]",
                "c.toml:2: '/data/x': it and /data lie in each other",
            ),
            ("[namespaces.web]\npriority_max = \"highest\"", "c.toml:2: unknown variant `highest`"),
            ("[namespaces.web]\npriority = \"high\"", "c.toml:2: unknown field `priority`"),
        ] {
            let error = of(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
