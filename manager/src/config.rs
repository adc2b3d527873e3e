//! Configuration: a file, overridden by environment variables, and these by flags. All is checked before anything starts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vcuda_daemon::config::{self, ConfigError};
use vcuda_daemon::logging::Log;
use vcuda_quota::pods::bounds::{self, Bounds};

use crate::admission::Rules;
use crate::audit::Actions;
use crate::grant_devices::{DeviceSettings, Folder};
use crate::inventory::health::{Policy, PolicyError};
use crate::keeper::OWN_STATE;
use crate::users::UserLimits;

mod file;
mod flags;
mod namespaces;
mod users;
mod value;

pub use flags::{Flags, Stage};

/// Path of the file if no flag names one. This file may be missing.
pub const DEFAULT_FILE: &str = "/etc/vcuda/manager.toml";

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Runtime directory: tenants' directories, and the API's socket. On a tmpfs.
    pub root: PathBuf,
    /// Directory of the ledger and the installed libraries. On a disk.
    pub state: PathBuf,
    /// The node's name in metrics and events.
    pub node: String,
    /// Path of NVML, if not the system's own.
    pub nvml_library: Option<PathBuf>,
    /// Path of the CUDA driver, if not the system's own.
    pub cuda_library: Option<PathBuf>,
    /// Shim to install under `state`, if any.
    pub shim_library: Option<PathBuf>,
    /// `vcuda` command to install beside it, if any.
    pub vcuda_program: Option<PathBuf>,
    /// Users that may use the API.
    pub api: Api,
    /// Rules by which grants fit on a GPU.
    pub admission: Rules,
    /// Bounds on the amounts that a namespace's pods may choose.
    pub namespaces: Bounds,
    /// Limits of users.
    pub users: UserLimits,
    /// Rules for unhealthy GPUs.
    pub health: Health,
    /// Address of the metrics endpoint; `None` if it is not served.
    pub metrics: Option<SocketAddr>,
    /// Interval of the audit.
    pub audit_interval: Duration,
    /// Action on processes without their tenant's limits.
    pub audit_actions: Actions,
    /// Time for which a busy suspendable tenant stays on its GPU before it makes room for another suspendable one.
    pub residence: Duration,
    /// Devices of grants for container engines.
    pub devices: DeviceSettings,
    /// Level and format of the log.
    pub log: Log,
    /// Whether it serves one user's runs and ends with the last of them.
    pub is_own: bool,
}

/// The API's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Its permissions.
    pub mode: u32,
    /// Its group's id, if not the manager's.
    pub group: Option<u32>,
    /// Ids of groups that may look and not change.
    pub viewers: Vec<u32>,
}

/// Rules for unhealthy GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// XIDs to treat as the application's, in addition to the built-in ones.
    pub ignored_xids: Vec<u64>,
    /// XIDs that make a GPU unhealthy until it was away (a reset); never an application's.
    pub fatal_xids: Vec<u64>,
    /// Number of successful probes in a row that make a GPU healthy again.
    pub clean_probes: u32,
}

impl Health {
    /// The health policy for the inventory.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        Policy::new(&self.ignored_xids, &self.fatal_xids, self.clean_probes)
    }
}

/// A file beside this program or in `../lib`, as in a build and in an installation.
fn installed(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    [folder.join(name), folder.join("../lib").join(name)].into_iter().find(|path| path.is_file())
}

impl Config {
    /// Reads the file that `flags` name (or the default one, if it exists) and applies the flags over it.
    pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
        if flags.own.is_some() {
            return Config::parse("", Path::new(DEFAULT_FILE), flags)?.of_user().check();
        }
        let (path, text) = config::read(flags.config.as_deref(), Path::new(DEFAULT_FILE))?;
        Config::parse(&text, path, flags)?.check()
    }

    /// The configuration of a user's own manager, whose state ends with the user's runtime directory.
    fn of_user(self) -> Config {
        let admission = Rules { is_open: true, ..self.admission };
        let devices = DeviceSettings { folder: Folder::Off, ..self.devices };
        let api = Api { mode: 0o600, ..self.api };
        let state = self.root.join(OWN_STATE);
        Config { state, admission, devices, api, metrics: None, shim_library: None, is_own: true, ..self }
    }

    fn parse(text: &str, path: &Path, flags: &Flags) -> Result<Config, ConfigError> {
        let file: file::File = config::parse(text, path)?;
        let audit_actions = namespaces::actions(&file.namespaces, file.audit.action);
        let config = Config {
            root: flags.root.clone().unwrap_or(file.root),
            state: flags.state.clone().unwrap_or(file.state),
            node: flags.node.clone().or(file.node).unwrap_or_else(config::host_name),
            nvml_library: flags.nvml_library.clone().or(file.nvml_library),
            cuda_library: flags.cuda_library.clone().or(file.cuda_library),
            shim_library: flags
                .shim_library
                .clone()
                .or(file.shim_library)
                .or_else(|| installed("libvcuda_shim.so")),
            vcuda_program: flags.vcuda_program.clone().or(file.vcuda_program).or_else(|| installed("vcuda")),
            api: Api {
                mode: file.api.mode.0,
                group: file.api.group.map(|group| group.0),
                viewers: file.api.viewers.iter().map(|group| group.0).collect(),
            },
            admission: file.admission.into(),
            namespaces: bounds::bounds(file.namespaces),
            users: users::limits(file.users),
            health: file.health.into(),
            metrics: flags.metrics.unwrap_or(file.metrics.listen).0,
            audit_interval: file.audit.interval.0,
            audit_actions,
            residence: file.suspend.residence.0,
            devices: DeviceSettings {
                folder: flags.cdi.clone().unwrap_or(file.cdi.directory),
                inject: file.cdi.inject,
                devices: file.cdi.devices,
                driver_root: file.cdi.driver_root,
            },
            log: file.log.with(flags.log.as_ref(), flags.log_format),
            is_own: false,
        };
        Ok(config)
    }

    fn check(self) -> Result<Config, ConfigError> {
        let together = |message| Err(ConfigError::Together(message));
        let devices = &self.devices;
        for (key, path) in [
            ("root", &self.root),
            ("state", &self.state),
            ("cdi.devices", &devices.devices),
            ("cdi.driver_root", &devices.driver_root),
        ] {
            config::absolute(key, path)?;
        }
        if let Folder::At(folder) = &devices.folder {
            config::absolute("cdi.directory", folder)?;
        }
        let is_nested = self.root.starts_with(&self.state) || self.state.starts_with(&self.root);
        if is_nested && !self.is_own {
            return together(format!(
                "root {} and state {} lie in each other; the one is emptied at a reboot, the other must not be: give them \
                 two directories",
                self.root.display(),
                self.state.display()
            ));
        }
        if self.node.is_empty() || self.node.len() > 253 || self.node.contains(char::is_whitespace) {
            let node = &self.node;
            return together(format!(
                "node = \"{node}\": write a name of 1 to 253 characters without spaces"
            ));
        }
        if let Err(error) = self.health.policy() {
            return together(format!("health: {error}"));
        }
        Ok(self)
    }

    /// Names of the settings in `next` that take effect only with a restart.
    pub fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        let differences = [
            ("root", self.root != next.root),
            ("state", self.state != next.state),
            ("node", self.node != next.node),
            ("nvml_library", self.nvml_library != next.nvml_library),
            ("cuda_library", self.cuda_library != next.cuda_library),
            ("api", self.api != next.api),
            // The socket's permissions depend on it.
            ("users", self.users.is_empty() != next.users.is_empty()),
            ("metrics.listen", self.metrics != next.metrics),
            ("health", self.health != next.health),
            ("cdi", self.devices != next.devices),
            ("audit.interval", self.audit_interval != next.audit_interval),
            ("suspend.residence", self.residence != next.residence),
            ("log.format", self.log.format != next.log.format),
        ];
        differences.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::audit::Action;

    fn parse(text: &str, flags: &[&str]) -> Result<Config, String> {
        let flags = Flags::parse_from(["vcuda-manager"].iter().chain(flags));
        let parsed = Config::parse(text, Path::new("m.toml"), &flags).and_then(Config::check);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = parse("", &[]).unwrap();
        assert_eq!(config.root, Path::new("/run/vcuda"));
        assert_eq!(config.admission.reserve_bytes_per_sharer, 512 << 20);
        assert_eq!(config.admission.sharers_max, 16);
        assert_eq!(config.metrics, Some("127.0.0.1:9436".parse().unwrap()));
        assert_eq!(config.api.mode, 0o660);
        assert!(config.needs_restart(&config).is_empty());
    }

    #[test]
    fn the_documented_file_is_the_defaults() {
        let documented = include_str!("../../deploy/manager.toml");
        let node = ["--node", "n"];
        assert_eq!(parse(documented, &node).unwrap(), parse("", &node).unwrap());
        // The documented file contains every key.
        for key in file::KEYS {
            assert!(documented.contains(key), "{key}");
        }
    }

    #[test]
    fn flags_win() {
        let config =
            parse("root = \"/a\"\n[metrics]\nlisten = \"0.0.0.0:1\"", &["--root", "/b", "--metrics", "off"])
                .unwrap();
        assert_eq!((config.root.as_path(), config.metrics), (Path::new("/b"), None));
    }

    #[test]
    fn errors_name_line_value_and_remedy() {
        for (text, expected) in [
            ("\n\nroot = 7", "m.toml:3: "),
            ("rot = \"/a\"", "m.toml:1: unknown field `rot`"),
            ("[admission]\nreserve = \"512\"", "m.toml:2: '512': a number without a unit"),
            ("[admission]\nmemory_overcommit = 0.5", "m.toml:2: 0.5: outside 1 to 10"),
            ("[admission]\nsharers_max = 0", "m.toml:2: 0: outside 1 to 512"),
            ("[metrics]\nlisten = \"here\"", "m.toml:2: 'here': neither an address with port"),
            ("[api]\nmode = \"0999\"", "m.toml:2: '0999': not permissions"),
            ("[api]\nmode = \"0667\"", "m.toml:2: '0667': everybody could"),
            ("[api]\ngroup = \"no-such-group\"", "m.toml:2: 'no-such-group': no such group"),
            ("[api]\nviewers = [\"no-such-group\"]", "m.toml:2: 'no-such-group': no such group"),
            ("[audit]\ninterval = \"1ms\"", "m.toml:2: '1ms': outside"),
            ("[namespaces.a]\npriority_max = \"top\"", "m.toml:2: "),
            ("[namespaces.a]\npolicies = []", "m.toml:2: []: no policy"),
            ("[namespaces.a]\ncores_max = \"101\"", "m.toml:2: '101': outside"),
            ("[namespaces.a]\nweight_max = 0", "m.toml:2: 0: outside"),
            ("[namespaces.A_b]\nweight_max = 1", "m.toml:1: namespaces.\"A_b\": neither"),
            ("[audit]\naction = \"end\"", "m.toml:2: "),
            ("[suspend]\nresidence = \"5\"", "m.toml:2: '5': outside 100ms to 24h"),
            ("[suspend]\nresidence = \"25h\"", "m.toml:2: '25h': outside 100ms to 24h"),
            ("[admission]\nsuspendable_overcommit = 0.5", "m.toml:2: 0.5: outside 1 to 10"),
            ("[namespaces.a]\naudit_action = 1", "m.toml:2: "),
            ("state = \"/run/vcuda/state\"", "lie in each other"),
            ("root = \"here\"", "absolute path"),
            ("[log]\nfilter = \"vcuda=loud\"", "m.toml:2: 'vcuda=loud'"),
        ] {
            let error = parse(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let flags = Flags::try_parse_from(["vcuda-manager", "--log", "vcuda=loud"]);
        assert!(flags.unwrap_err().to_string().contains("for example"));
    }

    #[test]
    fn a_wrong_user_or_limit_is_named() {
        for (text, expected) in [
            (
                "[users.no-such-user]\nmemory = \"1GiB\"",
                "m.toml:1: users.\"no-such-user\": no such user; write a user, \"@GROUP\"",
            ),
            ("[users.\"@no-such-group\"]", "m.toml:1: users.\"@no-such-group\": no such group"),
            ("[users.1000]\nmemory = \"much\"", "m.toml:2: 'much': not a number"),
            ("[users.\"*\"]\ncores = \"half\"", "m.toml:2: 'half': not a percentage"),
        ] {
            let error = parse(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn users_are_named_or_members_of_a_group_or_all_others() {
        let text = "[users.1000]\nmemory = \"8GiB\"\ncores = \"12.5\"\n[users.\"@50\"]\ncores = \"250\"\n[users.\"*\"]\nmemory = \"1GiB\"";
        let users = parse(text, &[]).unwrap().users;
        let limit = |uid, groups: &[u32]| users.of(uid, groups).unwrap();
        let own = limit(1000, &[50]);
        assert_eq!((own.memory_bytes, own.cores_permille), (Some(8 << 30), Some(125)));
        assert_eq!((limit(1, &[50]).cores_permille, limit(1, &[50]).place.as_str()), (Some(2500), "@50"));
        assert_eq!(limit(1, &[]).memory_bytes, Some(1 << 30));
    }

    #[test]
    fn what_the_audit_does_is_by_namespace() {
        let acts = |text: &str| {
            let actions = parse(text, &[]).unwrap().audit_actions;
            ["", "a", "b"].map(|namespace| actions.for_namespace(namespace))
        };
        let (report, kill) = (Action::Report, Action::Kill);
        assert_eq!(acts(""), [report; 3]);
        assert_eq!(acts("[audit]\naction = \"kill\""), [kill; 3]);
        let but_a = "[audit]\naction = \"kill\"\n[namespaces.a]\naudit_action = \"report\"";
        assert_eq!(acts(but_a), [kill, report, kill]);
        assert_eq!(acts("[namespaces.a]\naudit_action = \"kill\""), [report, kill, report]);
        let others = "[namespaces.\"*\"]\naudit_action = \"kill\"\n[namespaces.b]\npolicies = [\"fixed\"]";
        assert_eq!(acts(others), [kill; 3]);
    }

    #[test]
    fn a_named_file_must_be_there() {
        let flags = Flags::parse_from(["vcuda-manager", "--config", "/nowhere/m.toml"]);
        let error = Config::load(&flags).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/m.toml: "), "{error}");
    }
}
