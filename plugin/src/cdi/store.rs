//! The directory of specifications and records. Files are written atomically.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::warn;
use vcuda_cdi::{is_half_written, place, read};

use super::{KIND, Record, Spec};
use crate::ids::Slot;

/// Beginning of our files' names, before the slot.
const PREFIX: &str = "vcuda.io-slot-";
/// Ending of a record's name.
const RECORD: &str = ".record";

/// The directory of specifications cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The directory does not exist.
    #[error(
        "the CDI directory {} is not there: create it, and mount it into the device plugin (hostPath, DirectoryOrCreate)",
        .0.display()
    )]
    Missing(PathBuf),
    /// The directory cannot be written.
    #[error("the CDI directory {} cannot be written: {}; mount it writable", .0.display(), .1)]
    ReadOnly(PathBuf, io::Error),
    /// The file system is full.
    #[error("the CDI directory {} is full: free some space there", .0.display())]
    Full(PathBuf),
    /// A file with our name that vcuda did not write.
    #[error("{} was not written by vcuda: remove it, or find out who does", .0.display())]
    Foreign(PathBuf),
    /// A specification without its record, so that its container is not known.
    #[error(
        "{}: it is not known (any more) whose this is; its container keeps what it has, and is bound anew at its next start",
        .0.display()
    )]
    Unknown(PathBuf),
    /// Another error.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// The directory in which container runtimes look for specifications.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) directory: PathBuf,
}

impl Store {
    /// Creates a store in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Path of the slot's specification.
    pub fn path(&self, slot: &Slot) -> PathBuf {
        self.directory.join(format!("{PREFIX}{slot}.json"))
    }

    /// Path of the slot's record. Runtimes read only files that end in `.json` or `.yaml`.
    fn record_path(&self, slot: &Slot) -> PathBuf {
        self.directory.join(format!("{PREFIX}{slot}{RECORD}"))
    }

    /// Writes a slot's record and specification over the present ones. The present ones must be of the same grant: the caller
    /// removes those of another grant first, so that a specification never has the record of another.
    ///
    /// # Errors
    /// See [`StoreError`]; the old specification stays.
    pub fn write(&self, record: &Record, spec: &Spec) -> Result<(), StoreError> {
        let slot = &record.slot;
        self.check(slot)?;
        let placed = record
            .text()
            .map_err(io::Error::from)
            .and_then(|text| place(&self.record_path(slot), &text))
            .and_then(|()| place(&self.path(slot), &serde_json::to_vec(spec)?))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        placed.map_err(|error| self.named(error))
    }

    /// Records the requested amounts of a slot. A slot without a specification is left alone.
    ///
    /// # Errors
    /// See [`StoreError`]; the old record stays.
    pub fn note(&self, slot: &Slot, asked: &str) -> Result<(), StoreError> {
        if !self.check(slot)? {
            return Ok(());
        }
        let path = self.record_path(slot);
        let record = self.record(slot)?;
        let asking = Record { asked: asked.to_owned(), ..record };
        let placed = asking.text().map_err(io::Error::from).and_then(|text| place(&path, &text));
        placed.map_err(|error| self.named(error))
    }

    /// Removes a slot's specification and record. Returns whether there was a specification.
    ///
    /// # Errors
    /// See [`StoreError`]; the specification may still be there.
    pub fn remove(&self, slot: &Slot) -> Result<bool, StoreError> {
        let is_there = self.check(slot)?;
        if is_there {
            absent_is_false(fs::remove_file(self.path(slot))).map_err(|error| self.named(error))?;
        }
        // Also one whose specification never came, as on a full disk. What stays is ignored, and removed by `tidy`.
        let _ = fs::remove_file(self.record_path(slot));
        Ok(is_there)
    }

    /// Records of all our specifications. Foreign files with our names are logged and left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|error| self.named(error))? {
            let path = entry.map_err(|error| self.named(error))?.path();
            let Some(slot) = slot_of(&path, ".json") else {
                continue;
            };
            let record = self.check(&slot).and_then(|is_there| match is_there {
                true => self.record(&slot).map(Some),
                // It was removed meanwhile.
                false => Ok(None),
            });
            match record {
                Ok(record) => records.extend(record),
                Err(error) => warn!("{error}"),
            }
        }
        Ok(records)
    }

    /// Removes temporary files and records without a specification, which a killed process may leave.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn tidy(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.directory).map_err(|error| self.named(error))? {
            let path = entry.map_err(|error| self.named(error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_alone = slot_of(&path, RECORD).is_some_and(|slot| !self.path(&slot).exists());
            if is_half_written(&name, PREFIX) || is_alone {
                // If it fails, another process has removed the file.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Whether the slot has a specification of ours.
    ///
    /// # Errors
    /// The file is foreign, the directory is missing, or the file cannot be read.
    fn check(&self, slot: &Slot) -> Result<bool, StoreError> {
        let path = self.path(slot);
        match read(&path) {
            Ok(Some(text))
                if serde_json::from_slice(&text).is_ok_and(|spec: Spec| spec.is_of(KIND, slot.as_str())) =>
            {
                Ok(true)
            }
            Ok(_) => Err(StoreError::Foreign(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.directory.is_dir() {
                true => Ok(false),
                false => Err(StoreError::Missing(self.directory.clone())),
            },
            Err(error) => Err(StoreError::Io(path, error)),
        }
    }

    /// The slot's record.
    ///
    /// # Errors
    /// There is no readable record.
    fn record(&self, slot: &Slot) -> Result<Record, StoreError> {
        let path = self.record_path(slot);
        let text = match read(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StoreError::Io(path, error)),
            text => text.ok().flatten(),
        };
        let record = text.and_then(|text| Record::parse(slot, &text));
        record.ok_or_else(|| StoreError::Unknown(self.path(slot)))
    }

    pub(super) fn named(&self, error: io::Error) -> StoreError {
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

/// The slot in the name of a file with this ending; `None` if the name has another form.
fn slot_of(path: &Path, ending: &str) -> Option<Slot> {
    let name = path.file_name()?.to_str()?;
    Slot::named(name.strip_prefix(PREFIX)?.strip_suffix(ending)?)
}

pub(super) fn absent_is_false(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::{a_spec, grant};
    use super::*;

    #[test]
    fn a_written_specification_is_read_and_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        let slot = grant(1).slot;
        assert!(!store.remove(&slot).unwrap());
        for _ in 0..2 {
            store.write(&grant(1).record(), &a_spec(1)).unwrap();
        }
        assert_eq!(store.records().unwrap(), [grant(1).record()]);
        store.note(&slot, "2 chunks").unwrap();
        assert_eq!(store.records().unwrap()[0].asked, "2 chunks");
        // The specification and its record.
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
        assert!(store.remove(&slot).unwrap());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        store.note(&slot, "3 chunks").unwrap();
        assert!(store.records().unwrap().is_empty());
    }

    /// As on a disk that had room for the record and no more.
    #[test]
    fn a_record_whose_specification_never_came_is_removed_too() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        let record = grant(1).record();
        fs::write(store.record_path(&record.slot), record.text().unwrap()).unwrap();
        assert!(!store.remove(&record.slot).unwrap());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
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
            assert!(matches!(store.write(&grant(1).record(), &a_spec(1)), Err(StoreError::Foreign(_))));
            assert!(store.records().unwrap().is_empty());
        };
        fs::write(&path, "{\"kind\": \"other.io/x\"}").unwrap();
        is_refused();
        fs::remove_file(&path).unwrap();
        // A link to one of our files is foreign too.
        store.write(&grant(1).record(), &a_spec(1)).unwrap();
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
            store.write(&grant(1).record(), &a_spec(1)).unwrap_err(),
            store.remove(&slot).unwrap_err(),
            store.records().unwrap_err(),
        ] {
            assert!(error.to_string().contains("/nowhere/cdi is not there: create"), "{error}");
        }
    }

    #[test]
    fn a_specification_without_a_record_can_be_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        let record = grant(1).record();
        store.write(&record, &a_spec(1)).unwrap();
        for lost in [Some("{"), None] {
            let path = store.record_path(&record.slot);
            match lost {
                Some(rubbish) => fs::write(&path, rubbish).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert!(store.records().unwrap().is_empty());
            let said = store.note(&record.slot, "more").unwrap_err().to_string();
            assert!(said.contains("bound anew at its next start"), "{said}");
        }
        assert!(store.remove(&record.slot).unwrap());
    }

    #[test]
    fn files_of_a_killed_process_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        store.write(&grant(1).record(), &a_spec(1)).unwrap();
        store.write(&grant(2).record(), &a_spec(2)).unwrap();
        fs::remove_file(store.path(&grant(2).slot)).unwrap();
        fs::write(scratch.path().join(".vcuda.io-slot-0.77.new"), "{").unwrap();
        fs::write(scratch.path().join("nvidia.json"), "{}").unwrap();
        store.tidy().unwrap();
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert_eq!(store.records().unwrap(), [grant(1).record()]);
    }
}
