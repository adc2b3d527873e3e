//! CDI devices of grants, `vcuda.io/grant=<key>`: what a container engine needs to start a container in a grant.
//!
//! A device is a file that mounts the directory of one grant. Directories are never reused, so a device that is left behind
//! leads to no other grant. The files of another manager, and those of no manager, are left alone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use nix::unistd::{AccessFlags, access};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use vcuda_cdi::driver::{self, DriverError};
use vcuda_cdi::{
    CONTROL_NODES, ContainerEdits, Device, Inject, Shim, Spec, SpecError, SpecInputs, edits, is_half_written,
    place, read,
};

use crate::gpu::Inventory;
use crate::grant::{Grant, GrantId, Holder};
use crate::grant_table::GrantTable;
use crate::library;
use crate::tenant_directories::TenantDirectories;

pub(crate) const KIND: &str = "vcuda.io/grant";
/// Beginning of the files' names, before the grant's key.
const PREFIX: &str = "vcuda.io-grant-";
/// Folder of specifications that all engines read and that a reboot empties.
pub(crate) const SYSTEM_FOLDER: &str = "/var/run/cdi";
/// Control node that old drivers do not have.
const OPTIONAL_NODE: &str = "nvidia-uvm-tools";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Folder {
    /// None: grants have no device.
    #[default]
    Off,
    /// [`SYSTEM_FOLDER`], which is made if it is missing, while the manager may write to it.
    System,
    /// This one, which is made if it is missing.
    At(PathBuf),
}

impl FromStr for Folder {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "off" => Self::Off,
            folder => Self::At(folder.into()),
        })
    }
}

impl<'de> Deserialize<'de> for Folder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Ok(folder) = String::deserialize(deserializer)?.parse();
        Ok(folder)
    }
}

/// Table `[cdi]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default = "DeviceSettings::configured", deny_unknown_fields)]
pub struct DeviceSettings {
    #[serde(rename = "directory")]
    pub folder: Folder,
    pub inject: Inject,
    /// Folder of the host's device nodes.
    pub devices: PathBuf,
    pub driver_root: PathBuf,
}

impl DeviceSettings {
    /// The settings of a manager whose configuration says nothing else.
    pub(crate) fn configured() -> Self {
        Self { folder: Folder::System, ..Self::default() }
    }
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self { folder: Folder::Off, inject: Inject::Cdi, devices: "/dev".into(), driver_root: "/".into() }
    }
}

/// A container cannot be started in a grant.
#[derive(Debug, Error)]
pub enum DeviceError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file of the device's name is not this manager's.
    #[error("{}: it is another manager's, or not vcuda's: remove it, or set cdi.directory", .0.display())]
    Foreign(PathBuf),
    #[error("{}: {}; cdi.directory names the folder", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

impl DeviceError {
    /// Whether no grant of the node can have a device.
    pub(crate) fn is_of_node(&self) -> bool {
        matches!(self, Self::Driver(_) | Self::Spec(SpecError::NoShim))
    }
}

enum Owner {
    None,
    /// This manager; the directory that it mounts.
    Us(PathBuf),
    Other,
}

#[derive(Debug)]
pub struct GrantDevices {
    settings: DeviceSettings,
    directories: TenantDirectories,
    shim: Arc<library::Current>,
    /// Grants whose device is there, by key.
    written: Mutex<BTreeMap<String, GrantId>>,
}

impl GrantDevices {
    pub fn new(
        settings: DeviceSettings,
        directories: TenantDirectories,
        shim: Arc<library::Current>,
    ) -> Self {
        Self { settings, directories, shim, written: Mutex::default() }
    }

    /// Folder of the devices, whether or not it can be written. `None`: grants have none.
    pub fn place(&self) -> Option<&Path> {
        match &self.settings.folder {
            Folder::Off => None,
            Folder::System => Some(Path::new(SYSTEM_FOLDER)),
            Folder::At(folder) => Some(folder),
        }
    }

    pub fn device_of(&self, grant: &Grant) -> Option<String> {
        let written = self.written.lock();
        (written.get(&grant.key) == Some(&grant.id)).then(|| format!("{KIND}={}", grant.key))
    }

    pub fn edits(&self, grant: &Grant, inventory: &Inventory) -> Result<ContainerEdits, DeviceError> {
        self.edits_with(&self.inputs(inventory)?, grant)
    }

    fn edits_with(&self, inputs: &SpecInputs, grant: &Grant) -> Result<ContainerEdits, DeviceError> {
        let gpus: Vec<String> = grant.gpus.iter().map(ToString::to_string).collect();
        Ok(edits(inputs, &gpus, Some(&self.directories.path(&grant.id)))?)
    }

    /// The reason why new containers do not get the shim that is configured, if so.
    pub(crate) fn shim_problem(&self) -> Option<String> {
        self.shim.problem()
    }

    /// Whether new containers get a shim, of whatever version.
    pub(crate) fn has_shim(&self) -> bool {
        self.shim.get().is_some()
    }

    fn inputs(&self, inventory: &Inventory) -> Result<SpecInputs, DriverError> {
        let DeviceSettings { inject, devices, driver_root, .. } = &self.settings;
        let installed = self.shim.get();
        let minors = inventory
            .gpus
            .iter()
            .filter_map(|gpu| Some((gpu.uuid.to_string(), format!("nvidia{}", gpu.minor_number?))));
        let nodes =
            CONTROL_NODES.iter().filter(|name| **name != OPTIONAL_NODE || devices.join(name).exists());
        Ok(SpecInputs {
            program: installed.as_ref().and_then(|installed| installed.program.clone()),
            shim: installed.map(|installed| Shim { library: installed.library, preload: installed.preload }),
            is_strict: false,
            has_driver_limits: inventory.has_memory_limits,
            inject: *inject,
            devices: devices.clone(),
            control_nodes: nodes.map(|name| (*name).to_owned()).collect(),
            gpu_nodes: minors.collect(),
            driver: match inject {
                Inject::Cdi => driver::find(driver_root, driver_root)?,
                Inject::ToolkitEnv | Inject::ToolkitMounts => Vec::new(),
            },
        })
    }

    pub fn write(&self, grant: &Grant, inventory: &Inventory) -> Result<(), DeviceError> {
        match self.folder() {
            Some(folder) if has_device(grant) => {
                let inputs = self.inputs(inventory);
                // Even if nothing can be written, the name must not stay with an earlier grant.
                self.remove_if(&folder, &grant.key, |of| of != self.directories.path(&grant.id))?;
                self.write_to(&folder, &inputs?, grant)
            }
            _ => Ok(()),
        }
    }

    fn write_to(&self, folder: &Path, inputs: &SpecInputs, grant: &Grant) -> Result<(), DeviceError> {
        let path = path(folder, &grant.key);
        let failed = |error| DeviceError::Io(path.clone(), error);
        if matches!(self.owner(&path, &grant.key).map_err(failed)?, Owner::Other) {
            self.written.lock().remove(&grant.key);
            return Err(DeviceError::Foreign(path));
        }
        let device = Device { name: grant.key.clone(), container_edits: self.edits_with(inputs, grant)? };
        let spec = Spec::new(KIND, vec![device]);
        let known = read(&path).ok().flatten();
        let is_known =
            known.is_some_and(|text| serde_json::from_slice(&text).is_ok_and(|known: Spec| known == spec));
        if !is_known {
            let text = serde_json::to_vec(&spec).map_err(|error| failed(error.into()))?;
            place(&path, &text).map_err(failed)?;
        }
        self.written.lock().insert(grant.key.clone(), grant.id.clone());
        Ok(())
    }

    /// Removes the device of an ended grant.
    ///
    /// # Errors
    /// The file cannot be removed. It leads to no grant any more.
    pub fn remove(&self, grant: &Grant) -> Result<(), DeviceError> {
        let Some(folder) = self.folder() else {
            return Ok(());
        };
        self.remove_if(&folder, &grant.key, |of| of == self.directories.path(&grant.id))
    }

    /// Removes the device `key` if `is_meant` of the directory that it mounts.
    fn remove_if(
        &self,
        folder: &Path,
        key: &str,
        is_meant: impl FnOnce(&Path) -> bool,
    ) -> Result<(), DeviceError> {
        let path = path(folder, key);
        let removed = match self.owner(&path, key) {
            Ok(Owner::Us(of)) if is_meant(&of) => {
                self.written.lock().remove(key);
                fs::remove_file(&path)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|error| DeviceError::Io(path, error))
    }

    /// Removes devices without a grant, and what a killed manager left half written.
    pub fn tidy(&self, grant_table: &GrantTable) -> Result<(), DeviceError> {
        let Some(folder) = self.folder() else {
            return Ok(());
        };
        let failed = |error| DeviceError::Io(folder.clone(), error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if is_half_written(&name, PREFIX) {
                // If it fails, another process has removed the file.
                let _ = fs::remove_file(entry.path());
            }
            let Some(key) = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let grant = grant_table.by_key(key).filter(|grant| has_device(grant));
            let directory = grant.map(|grant| self.directories.path(&grant.id));
            self.remove_if(&folder, key, |of| Some(of) != directory.as_deref())?;
        }
        Ok(())
    }

    /// Brings all devices to what the grants say. Returns the first failure.
    pub fn restore(
        &self,
        grant_table: &GrantTable,
        inventory: &Inventory,
    ) -> Result<(), (Option<GrantId>, DeviceError)> {
        let Some(folder) = self.folder() else {
            self.written.lock().clear();
            return Ok(());
        };
        let tidied = self.tidy(grant_table).map_err(|error| (None, error));
        let grants: Vec<&Arc<Grant>> = grant_table.grants().filter(|grant| has_device(grant)).collect();
        if grants.is_empty() {
            return tidied;
        }
        let inputs = self.inputs(inventory).map_err(|error| (None, error.into()))?;
        let mut done = tidied;
        for grant in grants {
            let written = self.write_to(&folder, &inputs, grant);
            done = done.and(written.map_err(|error| (Some(grant.id.clone()), error)));
        }
        done
    }

    /// Folder of the devices, which is made if it is missing. `None`: none are written.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match &self.settings.folder {
            Folder::Off => None,
            Folder::System => {
                // A manager without the right to make it has no devices.
                let _ = DirBuilder::new().mode(0o755).create(SYSTEM_FOLDER);
                let may_write = access(SYSTEM_FOLDER, AccessFlags::W_OK | AccessFlags::X_OK);
                may_write.is_ok().then(|| SYSTEM_FOLDER.into())
            }
            Folder::At(folder) => {
                // If it fails, the first file in it is what cannot be written.
                let _ = DirBuilder::new().recursive(true).mode(0o755).create(folder);
                Some(folder.clone())
            }
        }
    }

    fn owner(&self, path: &Path, key: &str) -> io::Result<Owner> {
        let text = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Owner::None),
            text => text?,
        };
        let spec = text.and_then(|text| serde_json::from_slice::<Spec>(&text).ok());
        let directory =
            spec.filter(|spec| spec.is_of(KIND, key)).and_then(|spec| spec.limits().map(Path::to_owned));
        Ok(match directory {
            Some(directory) if self.directories.contain(&directory) || is_gone(&directory) => {
                Owner::Us(directory)
            }
            _ => Owner::Other,
        })
    }
}

/// Whether another manager's directory does not exist any more.
fn is_gone(directory: &Path) -> bool {
    directory.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether a grant gets a device: it is for no pod and no command, and CDI allows its key as a name.
fn has_device(grant: &Grant) -> bool {
    let key = grant.key.as_bytes();
    let is_alphanumeric = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    !grant.is_transient
        && grant.holder == Holder::default()
        && is_alphanumeric(key.first())
        && is_alphanumeric(key.last())
}

fn path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{key}.json"))
}

#[cfg(test)]
mod tests;
