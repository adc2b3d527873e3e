//! The specifications in their directory: written whole or not at all, removed, read again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::warn;

use super::{Record, Spec};
use crate::ids::Slot;

/// The largest file that can be one of ours (bytes).
const MOST_BYTES: u64 = 1 << 20;

/// The directory of specifications cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is none.
    #[error(
        "the CDI directory {} is not there: create it, and mount it into the device plugin (hostPath, DirectoryOrCreate)",
        .0.display()
    )]
    Missing(PathBuf),
    /// It is read-only for us.
    #[error("the CDI directory {} cannot be written: {}; mount it writable", .0.display(), .1)]
    ReadOnly(PathBuf, io::Error),
    /// No space.
    #[error("the CDI directory {} is full: free some space there", .0.display())]
    Full(PathBuf),
    /// A file of our name that we did not write.
    #[error("{} was not written by vcuda: remove it, or find out who does", .0.display())]
    Foreign(PathBuf),
    /// Anything else.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// The directory in which container runtimes look for specifications.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The specifications in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Where the slot's specification is.
    #[must_use]
    pub fn path(&self, slot: &Slot) -> PathBuf {
        self.directory.join(format!("vcuda.io-slot-{slot}.json"))
    }

    /// Puts a slot's specification in place of the one that is there.
    ///
    /// # Errors
    /// See [`StoreError`]; what was there is there then.
    pub fn write(&self, slot: &Slot, spec: &Spec) -> Result<(), StoreError> {
        let path = self.path(slot);
        self.check(&path)?;
        // Runtimes read what ends in .json or .yaml.
        let aside = self
            .directory
            .join(format!(".vcuda.io-slot-{slot}.{}.new", std::process::id()));
        let written = place(&aside, &path, &self.directory, spec);
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written.map_err(|error| self.named(error))
    }

    /// Notes in a slot's specification what is asked for it now. One that has gone meanwhile stays gone.
    ///
    /// # Errors
    /// See [`StoreError`]; what was there is there then.
    pub fn note(&self, slot: &Slot, asked: &str) -> Result<(), StoreError> {
        let path = self.path(slot);
        match read(&path) {
            Ok(Some(spec)) => self.write(slot, &spec.asking(asked)),
            Ok(None) => Err(StoreError::Foreign(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::Io(path, error)),
        }
    }

    /// Takes a slot's specification away. Returns whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`]; it may still be there then.
    pub fn remove(&self, slot: &Slot) -> Result<bool, StoreError> {
        let path = self.path(slot);
        if !self.check(&path)? {
            return Ok(false);
        }
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.named(error)),
        }
    }

    /// What all our specifications say. Files of our name that are not ours are left out, and told.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|error| self.named(error))? {
            let path = entry.map_err(|error| self.named(error))?.path();
            let Some(slot) = slot_of(&path) else { continue };
            match record(&path) {
                Ok(Some(record)) if record.slot == slot => records.push(record),
                Ok(_) => warn!("{}", StoreError::Foreign(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => warn!("{}", StoreError::Io(path, error)),
            }
        }
        Ok(records)
    }

    /// Removes what a killed process left half written.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn tidy(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.directory).map_err(|error| self.named(error))? {
            let entry = entry.map_err(|error| self.named(error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(".vcuda.io-slot-") && name.ends_with(".new") {
                // Somebody else's removal is as good.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Whether one of ours is at `path`.
    fn check(&self, path: &Path) -> Result<bool, StoreError> {
        match record(path) {
            Ok(Some(_)) => Ok(true),
            Ok(None) => Err(StoreError::Foreign(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.directory.is_dir() {
                true => Ok(false),
                false => Err(StoreError::Missing(self.directory.clone())),
            },
            Err(error) => Err(StoreError::Io(path.to_owned(), error)),
        }
    }

    fn named(&self, error: io::Error) -> StoreError {
        let directory = self.directory.clone();
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing(directory),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                StoreError::ReadOnly(directory, error)
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(directory),
            _ => StoreError::Io(directory, error),
        }
    }
}

fn place(aside: &Path, path: &Path, directory: &Path, spec: &Spec) -> io::Result<()> {
    let mut text = serde_json::to_vec(spec)?;
    text.push(b'\n');
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(aside)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(aside, path)?;
    File::open(directory)?.sync_all()
}

/// What the specification at `path` says; nothing if it is no specification of ours.
fn record(path: &Path) -> io::Result<Option<Record>> {
    Ok(read(path)?.and_then(|spec| spec.record()))
}

/// The specification at `path`; nothing if it is none.
fn read(path: &Path) -> io::Result<Option<Spec>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Ok(None);
    }
    let text = fs::read(path)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// The slot in the name of a file, if it has one.
fn slot_of(path: &Path) -> Option<Slot> {
    let name = path.file_name()?.to_str()?;
    Slot::named(name.strip_prefix("vcuda.io-slot-")?.strip_suffix(".json")?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::{a_spec, grant};
    use super::*;

    #[test]
    fn what_was_written_is_there_whole_and_goes_again() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        let slot = grant(1).slot;
        assert!(!store.remove(&slot).unwrap());
        for _ in 0..2 {
            store.write(&slot, &a_spec(1)).unwrap();
        }
        assert_eq!(store.records().unwrap(), [a_spec(1).record().unwrap()]);
        let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(store.remove(&slot).unwrap());
        assert!(store.records().unwrap().is_empty());
    }

    #[test]
    fn a_foreign_file_of_our_name_is_neither_used_nor_touched() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        let slot = grant(1).slot;
        let path = store.path(&slot);
        let is_refused = || {
            let remedy = store.remove(&slot).unwrap_err().to_string();
            assert!(remedy.contains("not written by vcuda"), "{remedy}");
            assert!(matches!(
                store.write(&slot, &a_spec(1)),
                Err(StoreError::Foreign(_))
            ));
            assert!(store.records().unwrap().is_empty());
        };
        fs::write(&path, "{\"kind\": \"other.io/x\"}").unwrap();
        is_refused();
        fs::remove_file(&path).unwrap();
        // A link to a good one is none.
        store.write(&slot, &a_spec(1)).unwrap();
        fs::rename(&path, scratch.path().join("other")).unwrap();
        symlink(scratch.path().join("other"), &path).unwrap();
        is_refused();
        assert!(scratch.path().join("other").exists());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let store = Store::new(Path::new("/nowhere/cdi"));
        let slot = grant(1).slot;
        for error in [
            store.write(&slot, &a_spec(1)).unwrap_err(),
            store.remove(&slot).unwrap_err(),
            store.records().unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("/nowhere/cdi is not there: create"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(".vcuda.io-slot-0.77.new"), "{").unwrap();
        fs::write(scratch.path().join("nvidia.json"), "{}").unwrap();
        Store::new(scratch.path()).tidy().unwrap();
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
