//! The directory of specifications and records. Files are written atomically.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::task::block_in_place;
use tracing::warn;
use vcuda_cdi::{is_half_written, place, read};

use super::{Record, Spec};

/// Ending of a specification's name. Runtimes read only files that end in `.json` or `.yaml`.
const SPEC: &str = ".json";
const RECORD: &str = ".record";

#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error(
        "the CDI directory {} is not there: create it, and mount it into the device plugin (hostPath, DirectoryOrCreate)",
        .0.display()
    )]
    Missing(PathBuf),
    #[error("the CDI directory {} cannot be written: {}; mount it writable", .0.display(), .1)]
    ReadOnly(PathBuf, io::Error),
    #[error("the CDI directory {} is full: free some space there", .0.display())]
    Full(PathBuf),
    #[error("{} was not written by vcuda: remove it, or find out who does", .0.display())]
    Foreign(PathBuf),
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// The directory in which container runtimes look for specifications. Its methods block for the time of a few file operations.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    directory: PathBuf,
}

impl Store {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    fn path<R: Record>(&self, name: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("{}{name}{ending}", prefix::<R>()))
    }

    /// Writes a record, then the specification, from which on it counts. Present files must be of the same grant: the caller removes
    /// those of another grant first, so that a specification never has the record of another.
    ///
    /// # Errors
    /// See [`StoreError`]; the old specification stays.
    pub(crate) fn write<R: Record>(&self, record: &R, spec: &Spec) -> Result<(), StoreError> {
        block_in_place(|| {
            let name = record.name();
            self.check::<R>(&name)?;
            let placed = serde_json::to_vec(record)
                .map_err(io::Error::from)
                .and_then(|text| place(&self.path::<R>(&name, RECORD), &text))
                .and_then(|()| place(&self.path::<R>(&name, SPEC), &serde_json::to_vec(spec)?))
                .and_then(|()| File::open(&self.directory)?.sync_all());
            placed.map_err(|error| self.named(error))
        })
    }

    /// The record of a slot or claim. `None` if there is no specification, or, with a warning, if the record cannot be read: its
    /// container keeps what it has.
    pub(crate) fn read<R: Record>(&self, name: &str) -> Result<Option<R>, StoreError> {
        block_in_place(|| {
            if !self.check::<R>(name)? {
                return Ok(None);
            }
            let path = self.path::<R>(name, RECORD);
            let text = match read(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::Io(path, error));
                }
                text => text.ok().flatten(),
            };
            let record = text.and_then(|text| serde_json::from_slice(&text).ok());
            let record = record.filter(|record: &R| record.name() == name);
            if record.is_none() {
                warn!("{}: it is not known (any more) whose specification this is", path.display());
            }
            Ok(record)
        })
    }

    /// Changes the record of a slot or claim. One without a specification or record is left alone.
    pub(crate) fn update<R: Record>(
        &self,
        name: &str,
        change: impl FnOnce(&mut R),
    ) -> Result<(), StoreError> {
        let Some(mut record) = self.read::<R>(name)? else {
            return Ok(());
        };
        change(&mut record);
        let text = serde_json::to_vec(&record).map_err(io::Error::from);
        let placed = block_in_place(|| text.and_then(|text| place(&self.path::<R>(name, RECORD), &text)));
        placed.map_err(|error| self.named(error))
    }

    /// Removes the specification of a slot or claim, and its record. Returns whether there was a specification; without the directory
    /// there was none.
    ///
    /// # Errors
    /// See [`StoreError`]; the specification may still be there.
    pub(crate) fn remove<R: Record>(&self, name: &str) -> Result<bool, StoreError> {
        block_in_place(|| {
            let is_there = match self.check::<R>(name) {
                Err(StoreError::Missing(_)) => return Ok(false),
                checked => checked?,
            };
            match fs::remove_file(self.path::<R>(name, SPEC)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.named(error)),
                _ => {}
            }
            // Also one whose specification never came, as on a full disk. What stays is ignored, and removed by `tidy`.
            let _ = fs::remove_file(self.path::<R>(name, RECORD));
            Ok(is_there)
        })
    }

    /// All records. Foreign files with our names are logged and left out.
    pub(crate) fn records<R: Record>(&self) -> Result<Vec<R>, StoreError> {
        let mut records = Vec::new();
        for name in self.names::<R>()? {
            match self.read(&name) {
                Ok(record) => records.extend(record),
                Err(error) => warn!("{error}"),
            }
        }
        Ok(records)
    }

    /// Names of all slots or claims that have files.
    pub(crate) fn names<R: Record>(&self) -> Result<BTreeSet<String>, StoreError> {
        let prefix = prefix::<R>();
        let of_file = |file: String| {
            let name = file.strip_prefix(&prefix)?;
            name.strip_suffix(SPEC).or_else(|| name.strip_suffix(RECORD)).map(str::to_owned)
        };
        Ok(self.files()?.into_iter().filter_map(of_file).collect())
    }

    /// Removes temporary files and records without a specification, which a killed process may leave.
    pub(crate) fn tidy<R: Record>(&self) -> Result<(), StoreError> {
        let prefix = prefix::<R>();
        for file in self.files()? {
            let of_record = file.strip_prefix(&prefix).and_then(|name| name.strip_suffix(RECORD));
            let is_lone = of_record.is_some_and(|name| !self.path::<R>(name, SPEC).exists());
            if is_half_written(&file, &prefix) || is_lone {
                // If it fails, another process has removed the file.
                let _ = fs::remove_file(self.directory.join(file));
            }
        }
        Ok(())
    }

    fn files(&self) -> Result<Vec<String>, StoreError> {
        block_in_place(|| {
            let entries = fs::read_dir(&self.directory).map_err(|error| self.named(error))?;
            let name = |entry: io::Result<fs::DirEntry>| {
                let entry = entry.map_err(|error| self.named(error))?;
                Ok(entry.file_name().to_string_lossy().into_owned())
            };
            entries.map(name).collect()
        })
    }

    /// Whether there is a specification of ours.
    fn check<R: Record>(&self, name: &str) -> Result<bool, StoreError> {
        let path = self.path::<R>(name, SPEC);
        let is_ours =
            |text: &Vec<u8>| serde_json::from_slice(text).is_ok_and(|spec: Spec| spec.is_of(R::KIND, name));
        match read(&path) {
            Ok(text) if text.as_ref().is_some_and(is_ours) => Ok(true),
            Ok(_) => Err(StoreError::Foreign(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.directory.is_dir() {
                true => Ok(false),
                false => Err(StoreError::Missing(self.directory.clone())),
            },
            Err(error) => Err(StoreError::Io(path, error)),
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

/// Beginning of the files' names: `vcuda.io-slot-` or `vcuda.io-claim-`.
fn prefix<R: Record>() -> String {
    format!("{}-", R::KIND.replace('/', "-"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::{a_claim, a_slot, a_spec, claim_spec};
    use super::super::{ClaimRecord, SlotRecord};
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        (scratch, store)
    }

    #[test]
    fn a_written_specification_is_read_and_removed() {
        let (scratch, store) = store();
        let count = || fs::read_dir(scratch.path()).unwrap().count();
        let name = a_slot(1).name();
        assert!(!store.remove::<SlotRecord>(&name).unwrap());
        for _ in 0..2 {
            store.write(&a_slot(1), &a_spec(1)).unwrap();
        }
        assert_eq!(store.records::<SlotRecord>().unwrap(), [a_slot(1)]);
        let note = |text: &str| {
            let text = text.to_owned();
            store.update(&name, |record: &mut SlotRecord| record.asked = text).unwrap();
        };
        note("2 chunks");
        assert_eq!(store.records::<SlotRecord>().unwrap()[0].asked, "2 chunks");
        assert!(store.names::<ClaimRecord>().unwrap().is_empty());
        // The specification and its record.
        assert_eq!(count(), 2);
        assert!(store.remove::<SlotRecord>(&name).unwrap());
        assert_eq!(count(), 0);
        note("3 chunks");
        assert!(store.records::<SlotRecord>().unwrap().is_empty());
    }

    #[test]
    fn a_claim_is_prepared_while_it_has_both_files() {
        let (scratch, store) = store();
        let read = || store.read::<ClaimRecord>("u").unwrap();
        assert_eq!(read(), None);
        let record = a_claim("u");
        store.write(&record, &claim_spec()).unwrap();
        assert_eq!(read(), Some(record.clone()));
        assert_eq!(store.records::<ClaimRecord>().unwrap().as_slice(), std::slice::from_ref(&record));
        let spec = store.path::<ClaimRecord>("u", SPEC);
        let text = fs::read_to_string(&spec).unwrap();
        assert_eq!(text.matches("/etc/vcuda/limits").count(), 1, "admin access is not limited");
        fs::write(store.path::<ClaimRecord>("u", RECORD), "{").unwrap();
        assert_eq!(read(), None);
        store.write(&record, &claim_spec()).unwrap();
        fs::remove_file(spec).unwrap();
        assert_eq!(read(), None);
        assert_eq!(store.names::<ClaimRecord>().unwrap(), ["u".to_owned()].into());
        for _ in 0..2 {
            store.remove::<ClaimRecord>("u").unwrap();
        }
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    /// As on a disk that had room for the record and no more.
    #[test]
    fn a_record_whose_specification_never_came_is_removed_too() {
        let (scratch, store) = store();
        let record = a_slot(1);
        let text = serde_json::to_vec(&record).unwrap();
        fs::write(store.path::<SlotRecord>(&record.name(), RECORD), text).unwrap();
        assert!(!store.remove::<SlotRecord>(&record.name()).unwrap());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_foreign_file_of_our_name_is_neither_used_nor_touched() {
        let (scratch, store) = store();
        let name = a_slot(1).name();
        let path = store.path::<SlotRecord>(&name, SPEC);
        let is_refused = || {
            let remedy = store.remove::<SlotRecord>(&name).unwrap_err().to_string();
            assert!(remedy.contains("not written by vcuda"), "{remedy}");
            assert!(matches!(store.write(&a_slot(1), &a_spec(1)), Err(StoreError::Foreign(_))));
            assert!(store.records::<SlotRecord>().unwrap().is_empty());
        };
        fs::write(&path, "{\"kind\": \"other.io/x\"}").unwrap();
        is_refused();
        fs::remove_file(&path).unwrap();
        // A link to one of our files is foreign too.
        store.write(&a_slot(1), &a_spec(1)).unwrap();
        fs::rename(&path, scratch.path().join("other")).unwrap();
        symlink(scratch.path().join("other"), &path).unwrap();
        is_refused();
        assert!(scratch.path().join("other").exists());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let store = Store::new(Path::new("/nowhere/cdi"));
        for error in
            [store.write(&a_slot(1), &a_spec(1)).unwrap_err(), store.records::<SlotRecord>().unwrap_err()]
        {
            assert!(error.to_string().contains("/nowhere/cdi is not there: create"), "{error}");
        }
        assert!(!store.remove::<SlotRecord>(&a_slot(1).name()).unwrap());
    }

    #[test]
    fn a_specification_without_its_record_can_be_removed() {
        let (_scratch, store) = store();
        let name = a_slot(1).name();
        store.write(&a_slot(1), &a_spec(1)).unwrap();
        let path = store.path::<SlotRecord>(&name, RECORD);
        let of_another = serde_json::to_string(&a_slot(2)).unwrap();
        for lost in [Some("{"), Some(of_another.as_str()), None] {
            match lost {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert!(store.records::<SlotRecord>().unwrap().is_empty());
        }
        assert!(store.remove::<SlotRecord>(&name).unwrap());
    }

    #[test]
    fn files_of_a_killed_process_are_removed() {
        let (scratch, store) = store();
        store.write(&a_slot(1), &a_spec(1)).unwrap();
        store.write(&a_slot(2), &a_spec(2)).unwrap();
        fs::remove_file(store.path::<SlotRecord>(&a_slot(2).name(), SPEC)).unwrap();
        fs::write(scratch.path().join(".vcuda.io-slot-0.77.new"), "{").unwrap();
        fs::write(scratch.path().join("nvidia.json"), "{}").unwrap();
        store.tidy::<SlotRecord>().unwrap();
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert_eq!(store.records::<SlotRecord>().unwrap(), [a_slot(1)]);
    }
}
