//! Where the directories of tenants lie: those of a user's own grants in a folder that only this user may enter, all others in
//! `containers`, which only its owner may enter.
//!
//! A tenant's directory itself is open to every user id, as a container's programs may have any. So what keeps users apart is the
//! folder above. It stays its maker's: the user may go through it, and neither list nor change it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{DirectoryError, permit, prepare};
use crate::sys;

/// The folder of a new directory, made if it is missing. `user`: whose own grant it is.
pub(super) fn home(root: &Path, user: Option<u32>) -> Result<PathBuf, DirectoryError> {
    let containers = prepare(root)?;
    let Some(user) = user.filter(|user| *user != sys::effective_uid()) else {
        return Ok(containers);
    };
    let users = root.join("users");
    let own = users.join(user.to_string());
    folder(&users)?;
    permit(&users, 0o711).map_err(|error| DirectoryError::Io(users.clone(), error))?;
    folder(&own)?;
    // Sets the mode, too, in one step: a mode of its own would close the folder to the user for a moment.
    match sys::let_through(&own, user) {
        // The user then has the grant by containers alone, which `vcuda run --grant` says.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(own),
        done => done.map(|()| own.clone()).map_err(|error| DirectoryError::Io(own, error)),
    }
}

/// Makes the folder, closed to others, unless it is there.
fn folder(path: &Path) -> Result<(), DirectoryError> {
    let io = |error| DirectoryError::Io(path.to_owned(), error);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| DirectoryError::of_open(path, error))?;
    let metadata = fs::symlink_metadata(path).map_err(io)?;
    if !metadata.is_dir() || metadata.uid() != sys::effective_uid() {
        return Err(DirectoryError::Unsafe(path.to_owned()));
    }
    Ok(())
}

/// All folders of directories below `root`, `containers` first. A root without any has no tenants.
///
/// # Errors
/// The folder of the users cannot be read.
pub(super) fn homes(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut homes = vec![root.join("containers")];
    match fs::read_dir(root.join("users")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        listed => {
            for entry in listed? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    homes.push(entry.path());
                }
            }
        }
    }
    Ok(homes)
}

/// Path of the tenant's directory, as it would be in `containers` if there is none.
pub fn locate(root: &Path, name: &str) -> PathBuf {
    let homes = homes(root).unwrap_or_default().into_iter();
    let mut paths = homes.map(|home| home.join(name));
    paths.find(|path| path.symlink_metadata().is_ok()).unwrap_or_else(|| root.join("containers").join(name))
}

/// Whether this is the path of a tenant's directory below `root`, whether or not it exists.
pub fn is_below(root: &Path, path: &Path) -> bool {
    path.parent()
        .is_some_and(|home| home == root.join("containers") || home.parent() == Some(&root.join("users")))
}

/// The user whose own grant lies in this directory; `None` below `containers`.
pub fn user_of(directory: &Path) -> Option<u32> {
    let home = directory.parent()?;
    if home.parent()?.file_name()? != "users" {
        return None;
    }
    home.file_name()?.to_str()?.parse().ok()
}
