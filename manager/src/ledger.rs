//! The ledger on disk: one file with all grants.
//!
//! Each write makes a whole new file, which replaces the old one by rename. Changes that wait together share a write.
//!
//! A change counts once [`Ledger::write`] has returned: file and name are then on the disk. A crash before leaves the old
//! or the new file, so an unanswered change may or may not have happened.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use thiserror::Error;
use vcuda_daemon::lock_file;

use crate::checked_file::{self, Damage};
use crate::events::unix_ms;
use crate::grant_table::GrantTable;

mod highest_number;
#[cfg(test)]
mod tests;

/// Name of the file.
pub const NAME: &str = "ledger.json";
const NEW: &str = "ledger.json.new";
const LOCK: &str = "ledger.lock";
const KIND: &str = "vcuda-ledger";
/// Version of its form.
const VERSION: u32 = 1;
/// Maximum size of a ledger (bytes), enough for some hundred thousand grants.
const SIZE_MAX: u64 = 256 << 20;

/// Steps of a write. Tests have an implementation that fails, or ends the process, between them.
pub trait Disk: Debug + Send + 'static {
    /// Creates an empty file that only its owner can read, or empties an existing one.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(path)
    }

    /// Writes all of `bytes`.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Waits until the file's bytes and length are on the disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Renames a file, replacing another one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Waits until the names in `directory` are on the disk.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// The steps of a write as system calls.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {}

/// A place that ends with the system, as a user's runtime directory: to wait for a disk would gain nothing.
#[derive(Debug, Clone, Copy)]
pub struct Passing;

impl Disk for Passing {
    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Failure to use the ledger.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Another manager uses the ledger.
    #[error("{}: another manager uses this state; stop it, or give this one a directory of its own", .0.display())]
    Locked(PathBuf),
    /// The directory or the file cannot be used.
    #[error("{}: {}; {}", .0.display(), .1, place_of(.1))]
    Io(PathBuf, io::Error),
    /// The file cannot be written.
    #[error("cannot write the ledger {}: {}; nothing was changed; {}", .0.display(), .1, remedy_of(.1))]
    Write(PathBuf, io::Error),
}

/// Where the manager's files can be.
fn place_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as root or as the owner of that directory, or give it others (--root, --state)"
        }
        _ => "the manager's directories have to be there, and the manager's alone (--root, --state)",
    }
}

fn remedy_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make its directory writable to the manager's user"
        }
        _ => "make room there and try again",
    }
}

/// Content of the ledger's file.
#[derive(Debug)]
pub enum Loaded {
    /// There is no file.
    Absent,
    /// All grants.
    Sound(GrantTable),
    /// The file is not a usable ledger.
    Damaged {
        /// The damage found.
        damage: Damage,
        /// Path to which the file was moved.
        aside: PathBuf,
        /// The highest grant number found in it.
        highest_number: u64,
    },
}

/// The ledger, locked by this process while the value lives.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    disk: Box<dyn Disk>,
    _lock: Flock<File>,
}

impl Ledger {
    /// Opens the ledger in `directory`, which is made if missing. A file that is damaged, or of a later release, is moved
    /// aside.
    ///
    /// # Errors
    /// Fails if another manager uses it, or if the directory or the file cannot be used. An unreadable file is an error,
    /// not damage.
    pub fn open(directory: &Path, disk: Box<dyn Disk>) -> Result<(Self, Loaded), LedgerError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| LedgerError::Io(path, error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io(directory))?;
        let ledger = Self { directory: directory.to_owned(), disk, _lock: lock(&directory.join(LOCK))? };
        let path = ledger.path();
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((ledger, Loaded::Absent)),
            Err(error) => return Err(LedgerError::Io(path, error)),
        };
        let loaded = match table_of(&bytes) {
            Ok(grant_table) => Loaded::Sound(grant_table),
            Err(damage) => {
                let aside = directory.join(format!("{NAME}.damaged-{}", unix_ms()));
                fs::rename(&path, &aside).map_err(io(&path))?;
                Loaded::Damaged { damage, aside, highest_number: highest_number::highest_number(&bytes) }
            }
        };
        Ok((ledger, loaded))
    }

    /// Path of the ledger's file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Replaces the ledger by `grant_table`, which is on the disk on return.
    ///
    /// # Errors
    /// Fails if a step fails. The ledger is then unchanged; after a failure of the last step it may be the new one.
    pub fn write(&self, grant_table: &GrantTable) -> Result<(), LedgerError> {
        let path = self.path();
        self.replace(&path, grant_table).map_err(|error| LedgerError::Write(path, error))
    }

    fn replace(&self, path: &Path, grant_table: &GrantTable) -> io::Result<()> {
        let bytes = checked_file::seal(KIND, VERSION, &grant_table.text())?;
        let new = self.directory.join(NEW);
        let written = self.disk.create(&new).and_then(|mut file| {
            self.disk.write(&mut file, &bytes)?;
            self.disk.sync(&file)
        });
        let renamed = written.and_then(|()| self.disk.rename(&new, path));
        if renamed.is_err() {
            // A partly written file takes space that the next attempt needs.
            let _ = fs::remove_file(&new);
        }
        renamed?;
        self.disk.sync_directory(&self.directory)
    }
}

/// The table of grants in a ledger's bytes.
fn table_of(bytes: &[u8]) -> Result<GrantTable, Damage> {
    GrantTable::from_text(checked_file::open(KIND, VERSION, bytes)?).map_err(Damage::Content)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Locks the file that marks this directory as used; the kernel releases the lock with the process.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, LedgerError> {
    let file = lock_file::open(path).map_err(|error| LedgerError::Io(path.to_owned(), error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        let path = path.parent().unwrap_or(path).to_owned();
        if errno == Errno::EWOULDBLOCK {
            LedgerError::Locked(path)
        } else {
            LedgerError::Io(path, errno.into())
        }
    })
}
