//! The directories of granted containers: made, checked, changed in place, taken away.
//!
//! Directories of tenants. Whatever a tenant's processes did in one, or what lies under its name and is none, is removed
//! without following a link; their own files they keep open, whatever happens to the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thiserror::Error;
use vcuda_quota::Quota;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, DirectoryError, Tenant};
use vcuda_region::limits::{Limits, LimitsWriter, OpenError, WriteError};
use vcuda_region::process::Identity;

use crate::checked_file;
use crate::grant::{Grant, GrantId, Holder};

const KIND: &str = "vcuda-grant";
const VERSION: u32 = 1;

/// A tenant's directory cannot be brought to what its grant says.
#[derive(Debug, Error)]
pub enum TenantDirectoryError {
    /// It cannot be made or removed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its limits cannot be changed.
    #[error(transparent)]
    Limits(#[from] WriteError),
    /// Its limits cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its record cannot be written.
    #[error("the grant's record: {0}")]
    Record(#[from] serde_json::Error),
}

/// Work that a directory needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// Nothing: it is as its grant says.
    Kept,
    /// It was not there.
    Made,
    /// A part of it was missing, damaged or not as granted: which, in a word.
    Repaired(&'static str),
}

/// The record of a directory that was found.
#[derive(Debug)]
pub struct Found {
    /// The directory's name.
    pub name: String,
    /// Its grant; from its limits if the record is no more.
    pub grant: Result<Grant, String>,
}

/// The directories below one root.
#[derive(Debug, Clone)]
pub struct TenantDirectories {
    root: PathBuf,
    me: Identity,
}

impl TenantDirectories {
    /// Those below `root`.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            me: Identity::current()?,
        })
    }

    /// Path of the tenant's directory, whether it exists or not.
    #[must_use]
    pub fn path(&self, id: &GrantId) -> PathBuf {
        self.root.join("containers").join(id.as_str())
    }

    /// Brings the tenant's directory to what the grant says.
    ///
    /// # Errors
    /// No space, not permitted, or limits that cannot be written.
    pub fn ensure(&self, grant: &Grant) -> Result<Ensured, TenantDirectoryError> {
        let path = self.path(&grant.id);
        if path.symlink_metadata().is_err() {
            self.make(grant)?;
            return Ok(Ensured::Made);
        }
        let limits = Limits::read(&path);
        let is_right = |limits: &Limits| {
            limits.name() == grant.id.as_str()
                && limits
                    .devices()
                    .map(|(_, uuid)| uuid)
                    .eq(grant.gpus.iter().copied())
        };
        match &limits {
            Ok(limits) if is_right(limits) => {}
            // Of another release, which a running tenant may still need.
            Err(OpenError::Version { .. }) => return Ok(Ensured::Kept),
            _ => {
                let aside = directory::remove_granted(&self.root, grant.id.as_str())?;
                self.make(grant)?;
                if let Some(aside) = aside {
                    // A later start deletes what this cannot.
                    let _ = directory::discard(&aside);
                }
                return Ok(Ensured::Repaired("limits"));
            }
        }
        let mut ensured = Ensured::Kept;
        if path.join("usage").symlink_metadata().is_err() {
            directory::restore_usage(&path)?;
            ensured = Ensured::Repaired("usage");
        }
        if self.apply(grant)? {
            ensured = Ensured::Repaired("amounts");
        }
        let record = record_of(grant)?;
        if directory::read_grant(&path).ok().as_deref() != Some(&record) {
            directory::set_grant(&path, &record)?;
            if ensured == Ensured::Kept {
                ensured = Ensured::Repaired("record");
            }
        }
        Ok(ensured)
    }

    fn make(&self, grant: &Grant) -> Result<(), TenantDirectoryError> {
        let config = grant.amounts.config();
        let tenant = Tenant {
            name: grant.id.as_str().to_owned(),
            devices: grant.gpus.iter().map(|uuid| (*uuid, config)).collect(),
        };
        directory::create_granted(&self.root, &tenant, &record_of(grant)?, now_ns())?;
        Ok(())
    }

    /// Writes the amounts into the tenant's limits, in place, where its processes see them within 50 ms. Returns
    /// whether they were others.
    fn apply(&self, grant: &Grant) -> Result<bool, TenantDirectoryError> {
        let config = grant.amounts.config();
        let mut writer = LimitsWriter::open(&self.path(&grant.id))?;
        let devices: Vec<_> = writer.limits().devices().map(|(device, _)| device).collect();
        let mut changed = false;
        for device in devices {
            if writer.limits().config(device) != Ok(config) {
                writer.set_config(device, &config, now_ns())?;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// The reason why this release cannot change the tenant's limits, if they are of another release.
    #[must_use]
    pub fn foreign(&self, id: &GrantId) -> Option<String> {
        match Limits::read(&self.path(id)) {
            Err(error @ OpenError::Version { .. }) => Some(error.to_string()),
            _ => None,
        }
    }

    /// Whether the tenant's directory and its limits are there: a look, for every second.
    #[must_use]
    pub fn is_present(&self, id: &GrantId) -> bool {
        let path = self.path(id);
        ["limits", "usage", directory::GRANT].iter().all(|name| {
            path.join(name)
                .symlink_metadata()
                .is_ok_and(|file| file.is_file())
        })
    }

    /// Time at which a directory last came or went; `None` if the file system does not tell.
    #[must_use]
    pub fn changed(&self) -> Option<SystemTime> {
        directory::changed(&self.root)
    }

    /// Whether a process of the tenant lives, or may.
    #[must_use]
    pub fn is_used(&self, id: &GrantId) -> bool {
        let path = self.path(id);
        path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) && directory::is_used(&path, &self.me)
    }

    /// Removes the tenant's directory. The caller [`TenantDirectories::discard`]s the result later.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn remove(&self, id: &GrantId) -> Result<Option<PathBuf>, TenantDirectoryError> {
        Ok(directory::remove_granted(&self.root, id.as_str())?)
    }

    /// Deletes what [`TenantDirectories::remove`] left.
    ///
    /// # Errors
    /// Something in it cannot be deleted.
    pub fn discard(aside: &Path) -> Result<(), TenantDirectoryError> {
        Ok(directory::discard(aside)?)
    }

    /// The directories that a manager made, with their records of the grants.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn granted(&self) -> Result<Vec<Found>, TenantDirectoryError> {
        let listed = directory::list(&self.root)?.into_iter();
        Ok(listed
            .filter(|(_, path)| directory::is_granted(path))
            .map(|(name, path)| Found {
                grant: read_record(&name, &path),
                name,
            })
            .collect())
    }
}

fn record_of(grant: &Grant) -> Result<Vec<u8>, TenantDirectoryError> {
    Ok(checked_file::seal(KIND, VERSION, &serde_json::to_vec(grant)?))
}

/// The grant of the directory `path`. If its record is damaged, `limits` tell the amounts, but not the holder.
fn read_record(name: &str, path: &Path) -> Result<Grant, String> {
    let read = || -> Result<Grant, String> {
        let bytes = directory::read_grant(path).map_err(|error| error.to_string())?;
        let json = checked_file::open(KIND, VERSION, &bytes).map_err(|error| error.to_string())?;
        let grant: Grant = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if grant.is_sound() && grant.id.as_str() == name {
            Ok(grant)
        } else {
            Err("it is not this container's".to_owned())
        }
    };
    read().or_else(|why| of_limits(name, path).ok_or(why))
}

fn of_limits(name: &str, path: &Path) -> Option<Grant> {
    let limits = Limits::read(path).ok()?;
    let number = crate::grant_table::number_of(name)?;
    let (key, _) = name.rsplit_once('-')?;
    let (first, _) = limits.devices().next()?;
    let grant = Grant {
        id: GrantId::new(key, number),
        key: key.to_owned(),
        number,
        holder: Holder::default(),
        amounts: Quota::of(&limits.config(first).ok()?),
        gpus: limits.devices().map(|(_, uuid)| uuid).collect(),
        created_unix_ms: 0,
        generation: 1,
        created_by: format!("rebuilt-{number}"),
        changed_by: None,
    };
    (grant.is_sound() && limits.name() == name && grant.id.as_str() == name).then_some(grant)
}
