//! File that keeps the GPUs' health for the next manager: `<state>/health.json`, always written whole.
//!
//! It records the trouble of each GPU, but not the number of clean looks since: after a start all of them are needed again.
//! Fatal trouble lasts until the GPU was reset by a restart of the machine or another driver.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vcuda_region::GpuUuid;

use super::health::Kept;
use crate::checked_file;
use crate::events::{Events, Severity, unix_ms};

const NAME: &str = "health.json";
const NEW: &str = "health.json.new";
const KIND: &str = "vcuda-health";
const VERSION: u32 = 1;
/// Maximum size of the file that is read (bytes), enough for some thousand GPUs.
const SIZE_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Boot id of the machine when it was written; empty if unknown.
    boot: String,
    /// Driver version when it was written.
    driver_version: String,
    /// GPUs that are in trouble.
    #[serde(with = "troubles")]
    pub(crate) troubles: BTreeMap<GpuUuid, Kept>,
}

impl Record {
    /// A record of the current boot.
    pub(crate) fn new(driver_version: &str, troubles: BTreeMap<GpuUuid, Kept>) -> Self {
        Self { boot: boot(), driver_version: driver_version.to_owned(), troubles }
    }

    /// Whether the record still holds: the machine was not restarted and the driver is the same, so no GPU was reset.
    pub(crate) fn is_current(&self, driver_version: &str) -> bool {
        self.boot == boot() && self.driver_version == driver_version
    }
}

/// UUIDs as text.
mod troubles {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<GpuUuid, Kept>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(map.iter().map(|(uuid, kept)| (uuid.to_string(), kept)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<GpuUuid, Kept>, D::Error> {
        let texts = BTreeMap::<String, Kept>::deserialize(from)?.into_iter();
        texts.map(|(uuid, kept)| Ok((uuid.parse().map_err(D::Error::custom)?, kept))).collect()
    }
}

/// The file, and the record last written to it.
#[derive(Debug)]
pub(crate) struct HealthFile {
    directory: Option<PathBuf>,
    written: BTreeMap<GpuUuid, Kept>,
}

impl HealthFile {
    /// Reads what the previous manager left in `directory`. An unusable file is renamed, reported, and treated as missing.
    pub(crate) fn open(directory: Option<&Path>, events: &Events) -> (Self, Record) {
        let read = directory.map_or_else(|| Ok(Record::default()), read);
        let record = read.unwrap_or_else(|why| {
            let text = format!(
                "what was known of the GPUs' health cannot be used ({why}) and is forgotten: cordon what must not be given out"
            );
            events.say(Severity::Warning, "VcudaHealthForgotten", text, None);
            Record::default()
        });
        let file = Self { directory: directory.map(Path::to_owned), written: record.troubles.clone() };
        (file, record)
    }

    /// Writes the record if it differs from the last. A failure is reported and tried again at the next look.
    pub(crate) fn keep(&mut self, record: Record, events: &Events) {
        let Some(directory) = &self.directory else {
            return;
        };
        if record.troubles == self.written {
            return;
        }
        match write(directory, &record) {
            Ok(()) => self.written = record.troubles,
            Err(error) => {
                let text = format!(
                    "cannot write {}: {error}; the GPUs' health would be forgotten at a restart: make room there",
                    directory.join(NAME).display()
                );
                events.say(Severity::Warning, "VcudaHealthForgotten", text, None);
            }
        }
    }
}

fn read(directory: &Path) -> Result<Record, String> {
    let path = directory.join(NAME);
    let mut bytes = Vec::new();
    let opened = File::open(&path).and_then(|file| file.take(SIZE_MAX).read_to_end(&mut bytes));
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
        Ok(_) => {}
    }
    checked_file::open(KIND, VERSION, &bytes).map_err(|why| {
        let aside = directory.join(format!("{NAME}.damaged-{}", unix_ms()));
        // If the file cannot be renamed, the next write replaces it.
        let _ = fs::rename(&path, &aside);
        format!("{}: {why}", path.display())
    })
}

fn write(directory: &Path, record: &Record) -> io::Result<()> {
    let bytes = checked_file::seal(KIND, VERSION, record)?;
    checked_file::replace(directory, NEW, &directory.join(NAME), &bytes)
}

pub(crate) fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u8) -> Record {
        let kept = Kept { reason: "XID 48".to_owned(), xid: Some(48), is_fatal: true };
        Record::new("550", [(GpuUuid::from_bytes([number; 16]), kept)].into())
    }

    #[test]
    fn it_is_read_as_it_was_written_and_damage_is_told() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let events = Events::default();
        let open = || HealthFile::open(Some(&state), &events);
        let (mut file, found) = open();
        assert_eq!(found, Record::default());
        file.keep(record(1), &events);
        assert_eq!(open().1, record(1));
        file.keep(Record::new("550", BTreeMap::new()), &events);
        assert_eq!(open().1.troubles, BTreeMap::new());
        file.keep(record(2), &events);
        assert_eq!(events.listen(0).0.len(), 0);
        let path = state.join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(open().1, Record::default());
        let (told, _) = events.listen(0);
        assert_eq!(told[0].report.reason, "VcudaHealthForgotten");
        assert!(!path.exists() && fs::read_dir(&state).unwrap().count() == 1, "set aside");
    }

    #[test]
    fn what_cannot_be_written_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let events = Events::default();
        let (mut file, _) = HealthFile::open(Some(&state), &events);
        fs::write(&state, "a file in its place").unwrap();
        file.keep(record(1), &events);
        assert_eq!(events.listen(0).0[0].report.reason, "VcudaHealthForgotten");
        fs::remove_file(&state).unwrap();
        file.keep(record(1), &events);
        assert_eq!(HealthFile::open(Some(&state), &events).1, record(1));
    }

    #[test]
    fn another_driver_or_start_of_the_machine_is_a_reset() {
        let now = record(1);
        assert!(now.is_current("550") && !now.is_current("560"));
        let before = Record { boot: "before".to_owned(), ..now };
        assert!(!before.is_current("550"));
    }
}
