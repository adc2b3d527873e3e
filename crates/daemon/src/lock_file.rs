//! Files that daemons lock.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

/// Mode of the files: a user that can open one can lock it, if only for reading.
const OWNER_ONLY: u32 = 0o600;

/// Opens the file that is to be locked, and makes it if it is missing. No other user can open it from then on, whoever made it.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWNER_ONLY)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_user_can_open_a_lock_file_whether_it_is_new_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
