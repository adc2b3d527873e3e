//! Record of the tenants that are not running, in a file: what a manager that starts has to finish or to undo. It lies in the
//! runtime directory: it survives the manager, and need not survive the node, with which the tenants' processes end.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vcuda_region::suspension::SuspendState;

use crate::checked_file::{self, Damage};

const KIND: &str = "vcuda-suspensions";
const VERSION: u32 = 1;
const FILE: &str = "suspensions";
const NEW: &str = "suspensions.new";

#[derive(Debug, Error)]
pub(crate) enum RecordError {
    #[error("{}: {}; make room there, or give the manager access", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// It is damaged. Its tenants' processes may be locked.
    #[error("{}: {}", .0.display(), .1)]
    Damaged(PathBuf, Damage),
}

/// A process whose GPU state is moved. A reused PID is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// PID in the manager's PID namespace.
    pub host_pid: u32,
    /// Start time (clock ticks since boot).
    pub start_ticks: u64,
}

/// State of a tenant that is not running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Its processes are locked and copied. After a crash this is undone.
    Suspending,
    Suspended,
    /// The room is reserved, and the memory moves back. After a crash this is finished.
    Resuming,
    /// A process could not be brought back.
    Failed,
}

impl Phase {
    /// The state that the tenant's processes see.
    pub(crate) fn state(self) -> SuspendState {
        match self {
            Self::Suspending => SuspendState::Suspending,
            Self::Suspended => SuspendState::Suspended,
            Self::Resuming => SuspendState::Resuming,
            Self::Failed => SuspendState::Failed,
        }
    }
}

/// What is known of a tenant that is not running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub id: String,
    /// How far it is.
    pub phase: Phase,
    /// The processes that are, or may be, locked.
    pub processes: Vec<Process>,
    /// Whether a suspended tenant comes back as soon as there is room: its suspension failed in its middle.
    #[serde(default)]
    pub comes_back: bool,
}

/// The records, as they are in the file.
#[derive(Debug)]
pub(crate) struct Records {
    directory: PathBuf,
    known: BTreeMap<String, Record>,
}

impl Records {
    pub(crate) fn open(directory: &Path) -> Result<Self, RecordError> {
        Ok(Self {
            directory: directory.to_owned(),
            known: read(&directory.join(FILE))?
                .into_iter()
                .map(|record| (record.id.clone(), record))
                .collect(),
        })
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Record> {
        self.known.get(id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Record> {
        self.known.values()
    }

    /// Adds or replaces a record.
    ///
    /// # Errors
    /// The file cannot be written; then nothing has changed.
    pub(crate) fn put(&mut self, record: Record) -> Result<(), RecordError> {
        let before = self.known.insert(record.id.clone(), record.clone());
        self.write().inspect_err(|_| {
            match before {
                Some(before) => self.known.insert(before.id.clone(), before),
                None => self.known.remove(&record.id),
            };
        })
    }

    /// Removes a record from memory: the tenant runs. It goes from the file with [`Records::write`]; a manager that finds it there
    /// sees that there is nothing to do.
    pub(crate) fn remove(&mut self, id: &str) {
        self.known.remove(id);
    }

    pub(crate) fn write(&self) -> Result<(), RecordError> {
        let path = self.directory.join(FILE);
        let all: Vec<&Record> = self.known.values().collect();
        checked_file::seal(KIND, VERSION, &all)
            .map_err(io::Error::other)
            .and_then(|bytes| checked_file::replace_until_reboot(&self.directory, NEW, &path, &bytes))
            .map_err(|error| RecordError::Io(path, error))
    }
}

/// The records of a file; none if there is no file.
fn read(path: &Path) -> Result<Vec<Record>, RecordError> {
    match fs::read(path) {
        Ok(bytes) => checked_file::open(KIND, VERSION, &bytes)
            .map_err(|damage| RecordError::Damaged(path.to_owned(), damage)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(RecordError::Io(path.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, phase: Phase) -> Record {
        Record {
            id: id.to_owned(),
            phase,
            processes: vec![Process { host_pid: 7, start_ticks: 70 }],
            comes_back: false,
        }
    }

    #[test]
    fn what_was_put_is_read_again_and_damage_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut records = Records::open(directory.path()).unwrap();
        records.put(record("a-1", Phase::Suspending)).unwrap();
        records.put(record("b-2", Phase::Suspended)).unwrap();
        records.put(record("a-1", Phase::Suspended)).unwrap();
        records.remove("b-2");
        records.write().unwrap();
        let again = Records::open(directory.path()).unwrap();
        assert_eq!(again.find("a-1"), Some(&record("a-1", Phase::Suspended)));
        assert_eq!(again.all().count(), 1);
        let path = directory.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(Records::open(directory.path()), Err(RecordError::Damaged(..))));
    }

    #[test]
    fn what_cannot_be_written_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let mut records = Records::open(directory.path()).unwrap();
        fs::create_dir(directory.path().join(NEW)).unwrap();
        assert!(records.put(record("a-1", Phase::Suspending)).is_err());
        assert!(records.find("a-1").is_none());
    }
}
