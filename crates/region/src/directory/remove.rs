//! Removal of a directory: first its name, in one step, then its content.

use core::time::Duration;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::DirectoryError;
use crate::sys::{self, Lock};

/// Whether a directory is half made or half removed: no process holds it, and its maker has had time to lock it.
pub(super) fn is_abandoned(lock: &File) -> bool {
    let age = lock.metadata().ok().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
    age.is_some_and(|age| age > Duration::from_secs(10))
        && sys::try_lock(lock, Lock::Exclusive).unwrap_or(false)
}

/// Removes a directory that the caller has locked exclusively. No process sees it half removed under its own name.
pub(super) fn remove(path: &Path) -> Result<(), DirectoryError> {
    let aside = set_aside(path, path.parent().unwrap_or(path))?;
    // A link is deleted, not followed.
    let is_directory = fs::symlink_metadata(&aside).is_ok_and(|metadata| metadata.is_dir());
    let removed = if is_directory { fs::remove_dir_all(&aside) } else { fs::remove_file(&aside) };
    removed.map_err(|error| DirectoryError::Io(path.to_owned(), error))
}

/// Beginning of the name of what is being removed.
const DEAD: &str = ".dead-";

/// The tenant whose directory has this name, also while it is being removed.
pub fn tenant_of_name(name: &str) -> &str {
    let dead = name.strip_prefix(DEAD).and_then(|rest| rest.rsplit_once('-'));
    dead.map_or(name, |(tenant, _inode)| tenant)
}

/// Renames an entry to a name in `folder` under which no program looks for a tenant.
pub(super) fn set_aside(path: &Path, folder: &Path) -> Result<PathBuf, DirectoryError> {
    let io = |error| DirectoryError::Io(path.to_owned(), error);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let inode = fs::symlink_metadata(path).map_err(io)?.ino();
    let dead = match name.starts_with(DEAD) {
        true => folder.join(&*name),
        false => folder.join(format!("{DEAD}{}-{inode}", name.trim_start_matches('.'))),
    };
    fs::rename(path, &dead).map_err(io)?;
    Ok(dead)
}
