//! Files of usage: one for each day, `<state>/usage/day-<n>.json`, always written whole.
//!
//! Each also has the tenants' meters at the time of its write, so that a killed manager counts nothing twice and goes on from there.
//! The file that was written last tells.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::history::{Day, day_of};
use super::tenants::Meters;
use crate::checked_file;

const FOLDER: &str = "usage";
const NEW: &str = "day.new";
const KIND: &str = "vcuda-usage";
const VERSION: u32 = 1;
/// Maximum size of a file that is read (bytes).
const SIZE_MAX: u64 = 64 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Number of this write, counted over all files.
    pub(super) write: u64,
    /// Boot id of the machine at this write.
    pub(super) boot: String,
    pub(super) meters: Meters,
    pub(super) hours: Day,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) records: Vec<Record>,
    /// Files that cannot be used, with the reason. They were renamed.
    pub(super) problems: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder below the manager's state directory. It is made with the first file.
    pub(super) fn new(state: &Path) -> Self {
        Self(state.join(FOLDER))
    }

    /// Reads all days. A file that cannot be used is renamed.
    pub(super) fn read(&self) -> Found {
        let mut found = Found::default();
        for (day, path) in self.days() {
            match read(&path, day) {
                Ok(record) => found.records.push(record),
                Err(why) => {
                    found.problems.push(format!("{}: {why}", path.display()));
                    // If it cannot be renamed, the next write of this day replaces it.
                    let _ = fs::rename(&path, path.with_extension("damaged"));
                }
            }
        }
        found
    }

    /// Replaces the file of a day, which is on the disk on return.
    ///
    /// # Errors
    /// Fails with the path if a step fails. The file is then as before.
    pub(super) fn write(&self, day: u64, record: &Record) -> Result<(), String> {
        let path = self.0.join(format!("day-{day}.json"));
        self.replace(&path, record).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn replace(&self, path: &Path, record: &Record) -> io::Result<()> {
        let bytes = checked_file::seal(KIND, VERSION, record)?;
        checked_file::replace(&self.0, NEW, path, &bytes)
    }

    /// Removes files, damaged ones too, of days before `oldest`.
    pub(super) fn remove_before(&self, oldest: u64) {
        for path in self.files() {
            if day_in(&path).is_some_and(|day| day < oldest) {
                // One that stays is tried again at the next write.
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    }

    fn days(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let days = self.files().filter(|path| path.extension().is_some_and(|end| end == "json"));
        days.filter_map(|path| Some((day_in(&path)?, path)))
    }
}

/// The day in a file's name.
fn day_in(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix("day-")?.parse().ok()
}

fn read(path: &Path, day: u64) -> Result<Record, String> {
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(SIZE_MAX).read_to_end(&mut bytes));
    opened.map_err(|error| error.to_string())?;
    let record: Record = checked_file::open(KIND, VERSION, &bytes).map_err(|damage| damage.to_string())?;
    match record.hours.keys().find(|hour| day_of(**hour) != day) {
        Some(hour) => Err(format!("hour {hour} is not of this day")),
        None => Ok(record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(write: u64, hour: u64) -> Record {
        Record { write, hours: [(hour, Default::default())].into(), ..Record::default() }
    }

    #[test]
    fn days_are_read_as_they_were_written_and_old_ones_go() {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder::new(state.path());
        assert!(folder.read().records.is_empty());
        folder.write(1, &record(1, 24)).unwrap();
        folder.write(2, &record(2, 48)).unwrap();
        folder.write(2, &record(3, 49)).unwrap();
        let mut found = folder.read();
        found.records.sort_by_key(|record| record.write);
        assert_eq!(found.records, [record(1, 24), record(3, 49)]);
        folder.remove_before(2);
        assert_eq!(folder.read().records, [record(3, 49)]);
    }

    #[test]
    fn damage_is_told_and_moved_aside() {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder::new(state.path());
        folder.write(1, &record(1, 24)).unwrap();
        folder.write(2, &record(1, 24)).unwrap();
        let path = state.path().join("usage/day-1.json");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let mut found = folder.read();
        found.problems.sort();
        assert!(found.records.is_empty());
        assert!(found.problems[0].ends_with("day-1.json: its checksum is wrong"), "{found:?}");
        assert!(found.problems[1].ends_with("hour 24 is not of this day"), "{found:?}");
        assert!(folder.read().problems.is_empty());
        folder.remove_before(3);
        assert_eq!(folder.files().count(), 0);
    }
}
