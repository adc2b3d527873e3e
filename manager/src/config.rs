//! Configuration: a file, overridden by environment variables, and these by flags. All is checked before anything starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use vcuda_daemon::config::{self, ConfigError};
use vcuda_daemon::logging::Log;
use vcuda_daemon::value::{Interval, Listen};

use crate::admission::Rules;
use crate::audit::{Action, Actions};
use crate::grant_devices::{DeviceSettings, Folder};
use crate::inventory::health::Policy;
use crate::library;
use crate::users::UserLimits;
use crate::value;

mod flags;
mod namespaces;
mod users;

pub use crate::value::Group;
pub use flags::{Flags, Stage};
pub use namespaces::Namespaces;

/// Path of the file if no flag names one. This file may be missing.
pub const DEFAULT_FILE: &str = "/etc/vcuda/manager.toml";
/// Folder of the state of a user's own manager, under its root.
pub(crate) const OWN_STATE: &str = "state";

/// The configuration: the keys of the file, each with its default. Unknown keys are refused, so that a misspelt limit does not go
/// unnoticed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    #[serde(default = "Rules::configured")]
    pub admission: Rules,
    /// What holds for the pods of each namespace.
    pub namespaces: Namespaces,
    /// Limits of users.
    #[serde(deserialize_with = "users::limits")]
    pub users: UserLimits,
    /// Rules for unhealthy GPUs.
    pub health: Policy,
    /// The metrics endpoint.
    pub metrics: Metrics,
    /// The audit.
    pub audit: Audit,
    /// Suspension of tenants.
    pub suspend: Suspend,
    /// Devices of grants for container engines.
    #[serde(default = "DeviceSettings::configured")]
    pub cdi: DeviceSettings,
    /// Level and format of the log.
    pub log: Log,
    /// Whether it serves one user's runs and ends with the last of them.
    #[serde(skip)]
    pub is_own: bool,
    /// Directory of the simulated machine whose GPUs it has; `None` for real ones.
    #[serde(skip)]
    pub machine: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root: "/run/vcuda".into(),
            state: "/var/lib/vcuda".into(),
            node: config::host_name(),
            nvml_library: None,
            cuda_library: None,
            shim_library: None,
            vcuda_program: None,
            api: Api::default(),
            admission: Rules::configured(),
            namespaces: Namespaces::default(),
            users: UserLimits::default(),
            health: Policy::default(),
            metrics: Metrics::default(),
            audit: Audit::default(),
            suspend: Suspend::default(),
            cdi: DeviceSettings::configured(),
            log: Log::default(),
            is_own: false,
            machine: None,
        }
    }
}

/// The API's socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Its permissions.
    #[serde(deserialize_with = "value::mode")]
    pub mode: u32,
    /// Its group, if not the manager's.
    pub group: Option<Group>,
    /// Groups that may look and not change.
    pub viewers: Vec<Group>,
}

impl Default for Api {
    fn default() -> Self {
        Self { mode: 0o660, group: None, viewers: Vec::new() }
    }
}

/// The metrics endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Its address, if it is served.
    pub listen: Listen,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: Listen(Some(([127, 0, 0, 1], 9436).into())) }
    }
}

/// The audit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Interval of its looks.
    pub interval: Interval,
    /// Action on processes without their tenant's limits, if their namespace has no own one.
    action: Action,
}

impl Default for Audit {
    fn default() -> Self {
        Self { interval: Interval(Duration::from_secs(1)), action: Action::Report }
    }
}

/// Suspension of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Suspend {
    /// Time for which a busy suspendable tenant stays on its GPU before it makes room for another suspendable one.
    #[serde(deserialize_with = "value::residence")]
    pub residence: Duration,
}

impl Default for Suspend {
    fn default() -> Self {
        Self { residence: Duration::from_secs(30) }
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
        let cdi = DeviceSettings { folder: Folder::Off, ..self.cdi };
        let (api, metrics) = (Api { mode: 0o600, ..self.api }, Metrics { listen: Listen(None) });
        let state = self.root.join(OWN_STATE);
        Config { state, admission, cdi, api, metrics, shim_library: None, is_own: true, ..self }
    }

    fn parse(text: &str, path: &Path, flags: &Flags) -> Result<Config, ConfigError> {
        let mut config: Config = config::parse(text, path)?;
        replace(&mut config.root, flags.root.clone());
        replace(&mut config.state, flags.state.clone());
        replace(&mut config.node, flags.node.clone());
        replace(&mut config.cdi.folder, flags.cdi.clone());
        replace(&mut config.metrics.listen, flags.metrics);
        config.nvml_library = flags.nvml_library.clone().or(config.nvml_library);
        config.cuda_library = flags.cuda_library.clone().or(config.cuda_library);
        let shim = flags.shim_library.clone().or(config.shim_library);
        config.shim_library = shim.or_else(|| installed("libvcuda_shim.so"));
        let program = flags.vcuda_program.clone().or(config.vcuda_program);
        config.vcuda_program = program.or_else(|| installed("vcuda"));
        config.log = config.log.with(flags.log.as_ref(), flags.log_format);
        // A manager of real GPUs may be started where a shell has named a machine.
        config.machine = flags.machine.clone().filter(|_| config.nvml_library.is_some());
        Ok(config)
    }

    /// Actions on processes without their tenant's limits.
    pub(crate) fn audit_actions(&self) -> Actions {
        self.namespaces.actions(self.audit.action)
    }

    /// Whether the files that it names are what they are to be: without that a manager runs, and says so.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        let library = self.shim_library.as_deref().and_then(|path| library::read_library(path).err());
        let program = self.vcuda_program.as_deref().and_then(|path| library::read_program(path).err());
        let named = [
            ("nvml_library", self.nvml_library.as_deref()),
            ("cuda_library", self.cuda_library.as_deref()),
            ("cdi.driver_root", Some(&*self.cdi.driver_root)),
        ];
        // A name without a folder is searched by the loader.
        let named = named.into_iter().filter_map(|(key, path)| Some((key, path?)));
        let missing = named.filter(|(_, path)| path.is_absolute() && !path.exists()).map(|(key, path)| {
            format!("{key} = \"{}\": there is no such file; mend or remove the line", path.display())
        });
        let unread = library.into_iter().chain(program).map(|error| error.to_string());
        let wrong: Vec<String> = unread.chain(missing).collect();
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError::Together(wrong.join("; "))) }
    }

    /// Fails with all that is wrong, so that one correction of the file is enough.
    fn check(self) -> Result<Config, ConfigError> {
        let devices = &self.cdi;
        let cdi = if let Folder::At(folder) = &devices.folder { Some(folder) } else { None };
        let paths = [
            ("root", Some(&self.root)),
            ("state", Some(&self.state)),
            ("cdi.devices", Some(&devices.devices)),
            ("cdi.driver_root", Some(&devices.driver_root)),
            ("cdi.directory", cdi),
        ];
        let relative = |(key, path): (&str, Option<&PathBuf>)| config::absolute(key, path?).err();
        let mut wrong: Vec<String> =
            paths.into_iter().filter_map(relative).map(|error| error.to_string()).collect();
        let is_nested = self.root.starts_with(&self.state) || self.state.starts_with(&self.root);
        if is_nested && !self.is_own {
            wrong.push(format!(
                "root {} and state {} lie in each other; the one is emptied at a reboot, the other must not be: give them \
                 two directories",
                self.root.display(),
                self.state.display()
            ));
        }
        if self.node.is_empty() || self.node.len() > 253 || self.node.contains(char::is_whitespace) {
            wrong.push(format!(
                "node = \"{}\": write a name of 1 to 253 characters without spaces",
                self.node
            ));
        }
        wrong.extend(self.health.check().err().map(|error| format!("health: {error}")));
        if wrong.is_empty() { Ok(self) } else { Err(ConfigError::Together(wrong.join("; "))) }
    }

    /// Names of the settings in `next` that take effect only with a restart.
    pub fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        self.compared(next).into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }

    /// Keys, or whole tables, that take effect at a start alone, and whether they differ.
    fn compared(&self, next: &Config) -> [(&'static str, bool); 13] {
        [
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
            ("cdi", self.cdi != next.cdi),
            ("audit.interval", self.audit.interval != next.audit.interval),
            ("suspend.residence", self.suspend.residence != next.suspend.residence),
            ("log.format", self.log.format != next.log.format),
        ]
    }
}

/// Replaces a value by that of a flag, if it is given.
fn replace<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}

#[cfg(test)]
mod tests;
