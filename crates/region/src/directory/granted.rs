//! Creation and removal of directories by their manager. Each has a file `grant`: the manager's record of the tenant.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::create::{make_files, new_file};
use super::in_use::has_living_slots;
use super::remove::{remove, set_aside};
use super::users::{home, locate};
use super::{Directory, DirectoryError, Tenant, open_directory, permit};
use crate::layout::UsageFile;
use crate::open::version_of;
use crate::process::Identity;
use crate::{release, slots, sys};

/// Name of the record.
pub const GRANT: &str = "grant";
/// The largest record that is read (bytes).
const GRANT_MAX: u64 = 64 << 10;
/// How much longer a later release's `usage` may be than this one's.
const LATER_RELEASE_TIMES: u64 = 4;

/// Whether the directory has a record, or anything of that name. One that cannot be read counts as granted.
pub fn is_granted(directory: &Path) -> bool {
    match fs::symlink_metadata(directory.join(GRANT)) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

impl Directory {
    /// Makes the directory with `limits`, `usage` and `grant`, whole or not at all. `user`: whose own grant it is, who may then use it
    /// on the host, too. `now_ns`: `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// A bad name, a root that others can write, a full or read-only disk: see [`DirectoryError`]; `AlreadyExists` in
    /// [`DirectoryError::Io`] if the name is taken.
    pub fn create(
        root: &Path,
        tenant: &Tenant,
        grant: &[u8],
        user: Option<u32>,
        now_ns: u64,
    ) -> Result<Self, DirectoryError> {
        tenant.check()?;
        let path = home(root, user)?.join(&tenant.name);
        let new = root.join("containers").join(format!(".new-grant-{}", tenant.name));
        // Remains of a killed manager. There is only one manager.
        discard(&new)?;
        let made = make_files(&new, tenant, now_ns).and_then(|lock| {
            write_record(&new, grant)?;
            permit(&new, 0o755)?;
            sys::rename_new(&new, &path).map(|()| lock)
        });
        match made {
            Ok(lock) => Ok(Self { path, lock }),
            Err(error) => {
                let _ = discard(&new);
                Err(DirectoryError::Io(new, error))
            }
        }
    }
}

/// Replaces the record, whole or not at all.
///
/// # Errors
/// No space, or not permitted.
pub fn set_grant(directory: &Path, grant: &[u8]) -> Result<(), DirectoryError> {
    write_record(directory, grant).map_err(|error| DirectoryError::Io(directory.join(GRANT), error))
}

fn write_record(directory: &Path, grant: &[u8]) -> io::Result<()> {
    let new = directory.join(".grant-new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(grant))
        .and_then(|()| fs::rename(&new, directory.join(GRANT)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Reads the record, unless another user could have written it.
///
/// # Errors
/// Fails if there is none, or if it is a link, another user's, too large, or cannot be read.
pub fn read_grant(directory: &Path) -> io::Result<Vec<u8>> {
    // The directory too must belong to this user: then no other user can have put the record there.
    let above = open_directory(directory)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(directory.join(GRANT))?;
    let metadata = file.metadata()?;
    let is_ours = |file: &File| -> io::Result<bool> { Ok(file.metadata()?.uid() == sys::effective_uid()) };
    if !metadata.is_file() || metadata.mode() & 0o022 != 0 || !is_ours(&file)? || !is_ours(&above)? {
        return Err(io::Error::other("not a file that only its owner can write"));
    }
    let mut bytes = Vec::new();
    file.take(GRANT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > GRANT_MAX {
        return Err(io::Error::other("larger than any grant's record"));
    }
    Ok(bytes)
}

/// The most bytes that `usage` in this directory has by its layout. A later release, as `limits` says, may have a longer one.
pub fn usage_bytes_max(directory: &Path) -> u64 {
    let own = size_of::<UsageFile>() as u64;
    match version_of(&directory.join("limits")) {
        Ok(version) if version > release::layouts().1 => own.saturating_mul(LATER_RELEASE_TIMES),
        _ => own,
    }
}

/// Makes `usage` anew in a directory that has lost it.
///
/// # Errors
/// `usage` is there, or there is no space.
pub fn restore_usage(directory: &Path) -> Result<(), DirectoryError> {
    let path = directory.join("usage");
    let mapped =
        new_file::<UsageFile>(&path, 0o666).map_err(|error| DirectoryError::Io(path.clone(), error))?;
    slots::fill(&mapped);
    Ok(())
}

/// Whether a process that holds a slot of the tenant lives, or cannot be told from one that does.
pub fn is_used(directory: &Path, me: &Identity) -> bool {
    has_living_slots(directory, me)
}

/// Takes the directory, or whatever else has its name, out of the way in one step. The caller deletes it later with
/// [`discard`]. Processes that have its files open keep them. `None` if there was none.
///
/// # Errors
/// The directory cannot be renamed.
pub fn remove_granted(root: &Path, name: &str) -> Result<Option<PathBuf>, DirectoryError> {
    match set_aside(&locate(root, name), &root.join("containers")) {
        Ok(aside) => Ok(Some(aside)),
        Err(DirectoryError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes a directory that [`remove_granted`] took out of the way. Follows no link.
///
/// # Errors
/// Something in it cannot be deleted.
pub fn discard(aside: &Path) -> Result<(), DirectoryError> {
    match remove(aside) {
        Err(DirectoryError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
