//! The ledger on disk: one file, a snapshot of all grants and behind it the changes since.
//!
//! A change, or a group of them, is written at the end of the file; what it costs does not depend on how many grants there
//! are. A manager's first write, the one after any that failed, and now and then one between are of a whole new file, which
//! takes the old one's place by rename.
//!
//! A change counts when [`Ledger::write`] has returned: it, and the name that leads to it, are then on the disk. A crash
//! before leaves the file without it, whole or with an unfinished record at its end ([`record`]), or with it: a change that
//! was not yet answered may or may not have happened.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use thiserror::Error;

use crate::checked_file::{self, Damage};
use crate::events::unix_ms;
use crate::grant_table::GrantTable;
use record::Next;

mod highest_number;
mod record;
#[cfg(test)]
mod tests;

/// Name of the file.
pub const NAME: &str = "ledger.json";
const NEW: &str = "ledger.json.new";
const LOCK: &str = "ledger.lock";
const KIND: &str = "vcuda-ledger";
/// 1 had no changes behind the snapshot: it is still read. A manager of that release sets this one aside and rebuilds.
const VERSION: u32 = 2;
const WITHOUT_CHANGES: u32 = 1;
/// The largest ledger that is read (bytes): of some hundred thousand grants.
const SIZE_MAX: u64 = 256 << 20;
/// Changes behind a snapshot, at most (bytes); or as many as the snapshot has.
const CHANGES_MAX: u64 = 256 << 10;

/// The steps of a write. There is one that does them, and tests have others that fail or die in between.
pub trait Disk: Debug + Send + 'static {
    /// Makes a file anew, empty and its owner's alone.
    ///
    /// # Errors
    /// As open(2).
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
    ///
    /// # Errors
    /// As write(2).
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Until the bytes are on the disk, and the length of the file.
    ///
    /// # Errors
    /// As fdatasync(2).
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Puts one name in another's place.
    ///
    /// # Errors
    /// As rename(2).
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Until the names in `directory` are on the disk.
    ///
    /// # Errors
    /// As fsync(2).
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// The real one.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {}

/// The ledger cannot be used.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Another manager has it.
    #[error("{}: another manager uses this state; stop it, or give this one a directory of its own", .0.display())]
    Locked(PathBuf),
    /// Its directory, or the file, cannot be used.
    #[error("{}: {}; the ledger of grants has to be there, on a disk, and the manager's alone", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// It cannot be written.
    #[error("cannot write the ledger {}: {}; nothing was changed; make room there and try again", .0.display(), .1)]
    Write(PathBuf, io::Error),
}

/// What was in the file.
#[derive(Debug)]
pub enum Loaded {
    /// There is none.
    Absent,
    /// All grants.
    Sound(GrantTable),
    /// Something that is no ledger of ours.
    Damaged {
        /// What is wrong.
        damage: Damage,
        /// Where it was put.
        aside: PathBuf,
        /// The highest number that can be seen in it.
        highest_number: u64,
    },
}

/// The ledger, ours alone while this value lives.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    disk: Box<dyn Disk>,
    _lock: Flock<File>,
    /// The last that was written, if it is known to be there.
    written: Option<Written>,
}

/// The file as this manager left it.
#[derive(Debug)]
struct Written {
    grant_table: Arc<GrantTable>,
    file: File,
    snapshot_bytes: u64,
    bytes: u64,
}

impl Written {
    /// Whether the next change may be put behind what is there: it is ours to the last byte, and not too long.
    fn can_grow(&self, path: &Path) -> bool {
        let is_ours = match (path.symlink_metadata(), self.file.metadata()) {
            (Ok(there), Ok(ours)) => {
                (there.dev(), there.ino(), there.len()) == (ours.dev(), ours.ino(), self.bytes)
            }
            _ => false,
        };
        is_ours && self.bytes - self.snapshot_bytes < self.snapshot_bytes.max(CHANGES_MAX)
    }
}

impl Ledger {
    /// Opens the ledger in `directory`, which is made if it is not there. What is damaged, or of a later release, is put
    /// aside.
    ///
    /// # Errors
    /// Another manager has it; the directory or the file cannot be used. A file that cannot be read is not damaged.
    pub fn open(directory: &Path, disk: Box<dyn Disk>) -> Result<(Self, Loaded), LedgerError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| LedgerError::Io(path, error)
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(io(directory))?;
        let ledger = Self {
            directory: directory.to_owned(),
            disk,
            _lock: lock(&directory.join(LOCK))?,
            written: None,
        };
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
                Loaded::Damaged {
                    damage,
                    aside,
                    highest_number: highest_number::highest_number(&bytes),
                }
            }
        };
        Ok((ledger, loaded))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Puts into the ledger what is new in `grant_table`. On return it is on the disk.
    ///
    /// # Errors
    /// A step failed. Then the ledger is as before; or, if the last step failed, perhaps as it should be.
    pub fn write(&mut self, grant_table: &Arc<GrantTable>) -> Result<(), LedgerError> {
        let path = self.path();
        // Should this fail, nobody knows what is at the end of the file: the next one is new.
        let before = self.written.take();
        let before = before
            .filter(|before| before.grant_table.revision < grant_table.revision && before.can_grow(&path));
        let written = match before {
            Some(before) => self.append(before, grant_table),
            None => self.replace(&path, grant_table),
        };
        self.written = Some(written.map_err(|error| LedgerError::Write(path, error))?);
        Ok(())
    }

    fn append(&self, before: Written, grant_table: &Arc<GrantTable>) -> io::Result<Written> {
        let Written {
            grant_table: old,
            mut file,
            snapshot_bytes,
            bytes,
        } = before;
        let record = record::seal(&grant_table.change_to_json(&old)?);
        let appended = self.disk.write(&mut file, &record);
        if let Err(error) = appended.and_then(|()| self.disk.sync(&file)) {
            // It was refused: it need not be found after a crash, and takes room that the next attempt needs.
            let _ = file.set_len(bytes);
            return Err(error);
        }
        Ok(Written {
            grant_table: Arc::clone(grant_table),
            file,
            snapshot_bytes,
            bytes: bytes + record.len() as u64,
        })
    }

    fn replace(&self, path: &Path, grant_table: &Arc<GrantTable>) -> io::Result<Written> {
        let snapshot = checked_file::seal(KIND, VERSION, &grant_table.to_json()?);
        let new = self.directory.join(NEW);
        let written = self.disk.create(&new).and_then(|mut file| {
            self.disk.write(&mut file, &snapshot)?;
            self.disk.sync(&file)?;
            Ok(file)
        });
        let renamed = written.and_then(|file| self.disk.rename(&new, path).map(|()| file));
        if renamed.is_err() {
            // What was written of it takes room that the next attempt needs.
            let _ = fs::remove_file(&new);
        }
        let file = renamed?;
        self.disk.sync_directory(&self.directory)?;
        Ok(Written {
            grant_table: Arc::clone(grant_table),
            file,
            snapshot_bytes: snapshot.len() as u64,
            bytes: snapshot.len() as u64,
        })
    }
}

/// The table of grants of a ledger with these bytes.
fn table_of(bytes: &[u8]) -> Result<GrantTable, Damage> {
    let snapshot = checked_file::split(KIND, VERSION, bytes)?;
    let mut grant_table = GrantTable::of_json(snapshot.json).map_err(Damage::Content)?;
    if snapshot.version == WITHOUT_CHANGES && !snapshot.rest.is_empty() {
        return Err(snapshot.is_longer());
    }
    let end = snapshot.rest.iter().rposition(|byte| *byte != 0);
    let mut rest = snapshot
        .rest
        .get(..end.map_or(0, |last| last + 1))
        .unwrap_or_default();
    loop {
        match record::take(rest)? {
            Next::Change { json, rest: behind } => {
                grant_table.change_by_json(json).map_err(Damage::Content)?;
                rest = behind;
            }
            Next::End => return Ok(grant_table),
            Next::Unfinished => {
                tracing::info!(
                    "the last change of the ledger was not finished when its manager ended: nobody has it"
                );
                return Ok(grant_table);
            }
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes the lock that says who uses this directory; the kernel drops it with the process.
///
/// # Errors
/// Another process has it, or the file cannot be made.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, LedgerError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .map_err(|error| LedgerError::Io(path.to_owned(), error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        let path = path.parent().unwrap_or(path).to_owned();
        if errno == Errno::EWOULDBLOCK {
            LedgerError::Locked(path)
        } else {
            LedgerError::Io(path, errno.into())
        }
    })
}
