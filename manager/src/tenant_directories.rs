//! Directories of granted containers: made, checked, changed in place, removed.
//!
//! Whatever a tenant's processes did in a directory, or made in its place, is removed without following links. Processes
//! keep their open files.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thiserror::Error;
use vcuda_quota::Quota;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, Directory, DirectoryError, Tenant, Unused};
use vcuda_region::limits::{Limits, LimitsWriter, OpenError, WriteError};
use vcuda_region::process::Identity;

use crate::checked_file;
use crate::grant::{Grant, GrantId, Holder};

mod grown;

pub(crate) use grown::Grown;

const KIND: &str = "vcuda-grant";
const VERSION: u32 = 1;

#[derive(Debug, Error)]
pub enum TenantDirectoryError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Limits(#[from] WriteError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the grant's record: {0}")]
    Record(#[from] serde_json::Error),
}

/// Work that a directory needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// None: it is as its grant says.
    Kept,
    /// Made, as it was missing.
    Made,
    /// A part, named in a word, was missing, damaged or not as granted.
    Repaired(&'static str),
}

/// A directory that was found, with its record.
#[derive(Debug)]
pub struct Found {
    pub name: String,
    /// Its grant, restored from the limits if the record is damaged.
    pub grant: Result<Grant, String>,
}

#[derive(Debug, Clone)]
pub struct TenantDirectories {
    root: PathBuf,
    me: Identity,
}

impl TenantDirectories {
    /// The directories below `root`.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.to_owned(), me: Identity::current()? })
    }

    /// All tenants' directories, by name; none if they cannot be read.
    pub(crate) fn list(&self) -> Vec<(String, PathBuf)> {
        directory::list(&self.root).unwrap_or_default()
    }

    /// Path of the tenant's directory, whether or not it exists.
    pub fn path(&self, id: &GrantId) -> PathBuf {
        directory::locate(&self.root, id.as_str())
    }

    /// Whether this is the path of a tenant's directory, whether or not it exists.
    pub fn contain(&self, path: &Path) -> bool {
        directory::is_below(&self.root, path)
    }

    /// Brings the tenant's directory to what the grant says.
    ///
    /// # Errors
    /// Fails without space or permission, or if the limits cannot be written.
    pub fn ensure(&self, grant: &Grant) -> Result<Ensured, TenantDirectoryError> {
        let path = self.path(&grant.id);
        if path.symlink_metadata().is_err() {
            self.make(grant)?;
            return Ok(Ensured::Made);
        }
        let limits = Limits::read(&path);
        let is_right = |limits: &Limits| {
            limits.name() == grant.id.as_str()
                && limits.devices().map(|(_, uuid)| uuid).eq(grant.gpus.iter().copied())
        };
        match &limits {
            Ok(limits) if is_right(limits) => {}
            // Limits of another release, which a running tenant may still need.
            Err(OpenError::Version { .. }) => return Ok(Ensured::Kept),
            _ => {
                let aside = directory::remove_granted(&self.root, grant.id.as_str())?;
                self.make(grant)?;
                if let Some(aside) = aside {
                    // The next start deletes what is left.
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
            is_suspendable: grant.is_suspendable,
            memory_wait_ms: grant.memory_wait_ms,
        };
        Directory::create(&self.root, &tenant, &record_of(grant)?, grant.owner, now_ns())?;
        Ok(())
    }

    /// Writes the amounts into the tenant's limits in place; its processes see them within 50 ms. Returns whether they were
    /// different.
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

    /// The reason why this release cannot change the tenant's limits, if another release wrote them.
    pub fn foreign(&self, id: &GrantId) -> Option<String> {
        match Limits::read(&self.path(id)) {
            Err(error @ OpenError::Version { .. }) => Some(error.to_string()),
            _ => None,
        }
    }

    /// Whether the tenant's directory and its limits exist: a check cheap enough for each second.
    pub fn is_present(&self, id: &GrantId) -> bool {
        let path = self.path(id);
        ["limits", "usage", directory::GRANT]
            .iter()
            .all(|name| path.join(name).symlink_metadata().is_ok_and(|file| file.is_file()))
    }

    /// Takes back what tenants added to their `usage`. Returns the names of their directories.
    pub(crate) fn cut_grown(&self) -> Vec<(String, Grown)> {
        let listed = self.list().into_iter();
        // A file that cannot be cut is damaged, which its readers report.
        listed.filter_map(|(name, path)| Some((name, grown::cut(&path).ok()??))).collect()
    }

    /// Time at which a directory was last added or removed; `None` if the file system does not tell.
    pub fn changed(&self) -> Option<SystemTime> {
        directory::changed(&self.root)
    }

    /// Whether a process of the tenant is alive, or may be.
    pub fn is_used(&self, id: &GrantId) -> bool {
        let path = self.path(id);
        path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) && directory::is_used(&path, &self.me)
    }

    /// Locks the directories of those of these transient grants that no process uses any more.
    pub(crate) fn lock_unused(&self, ids: Vec<GrantId>) -> Vec<(GrantId, Unused)> {
        let paths: Vec<PathBuf> = ids.iter().map(|id| self.path(id)).collect();
        let unused = directory::lock_unused(&paths, &self.me);
        ids.into_iter().zip(unused).filter_map(|(id, unused)| Some((id, unused?))).collect()
    }

    /// Inode of the tenant's directory, if it has one.
    pub(crate) fn inode(&self, id: &GrantId) -> Option<u64> {
        self.path(id).symlink_metadata().ok().map(|metadata| metadata.ino())
    }

    /// Removes the tenant's directory by renaming it. The caller must [`TenantDirectories::discard`] the result later.
    pub fn remove(&self, id: &GrantId) -> Result<Option<PathBuf>, TenantDirectoryError> {
        Ok(directory::remove_granted(&self.root, id.as_str())?)
    }

    pub fn discard(aside: &Path) -> Result<(), TenantDirectoryError> {
        Ok(directory::discard(aside)?)
    }

    /// The directories of granted tenants, with their records.
    pub fn granted(&self) -> Result<Vec<Found>, TenantDirectoryError> {
        let listed = directory::list(&self.root)?.into_iter();
        Ok(listed
            .filter(|(_, path)| directory::is_granted(path))
            .map(|(name, path)| Found { grant: read_record(&name, &path), name })
            .collect())
    }
}

fn record_of(grant: &Grant) -> Result<Vec<u8>, TenantDirectoryError> {
    Ok(checked_file::seal(KIND, VERSION, grant)?)
}

/// The grant of the directory `path`. If its record is damaged, `limits` give the amounts, but not the holder.
pub(crate) fn read_record(name: &str, path: &Path) -> Result<Grant, String> {
    let read = || -> Result<Grant, String> {
        let bytes = directory::read_grant(path).map_err(|error| error.to_string())?;
        let grant: Grant = checked_file::open(KIND, VERSION, &bytes).map_err(|error| error.to_string())?;
        if grant.is_sound() && grant.id.as_str() == name {
            Ok(grant)
        } else {
            Err("it is not this container's".to_owned())
        }
    };
    read().or_else(|why| from_limits(name, path).ok_or(why))
}

fn from_limits(name: &str, path: &Path) -> Option<Grant> {
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
        lasting: None,
        owner: directory::user_of(path),
        gpus: limits.devices().map(|(_, uuid)| uuid).collect(),
        created_unix_ms: 0,
        generation: 1,
        created_by: format!("rebuilt-{number}"),
        changed_by: None,
        is_suspendable: limits.is_suspendable(),
        memory_wait_ms: limits.memory_wait_ms(),
        is_transient: false,
    };
    (grant.is_sound() && limits.name() == name && grant.id.as_str() == name).then_some(grant)
}
