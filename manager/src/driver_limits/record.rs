//! File of the limits that were set: `<state>/driver-limits.json`, always written whole, and before a limit is set. Limits end with
//! their cgroups, so that it need not survive the machine.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vcuda_region::GpuUuid;

use super::cgroups::Cgroup;
use crate::checked_file;
use crate::inventory::boot;

const NAME: &str = "driver-limits.json";
const NEW: &str = "driver-limits.json.new";
const KIND: &str = "vcuda-driver-limits";
const VERSION: u32 = 1;

/// A limit that was set, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Limit {
    pub(super) tenant: String,
    pub(super) cgroup: Cgroup,
    #[serde(with = "gpu_text")]
    pub(super) gpu: GpuUuid,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// Boot id of the machine.
    boot: String,
    limits: BTreeSet<Limit>,
}

#[derive(Debug)]
pub(super) struct Record {
    directory: PathBuf,
    limits: BTreeSet<Limit>,
}

impl Record {
    /// Reads what an earlier manager has set since the machine was started.
    pub(super) fn open(directory: &Path) -> Self {
        let content = match fs::read(directory.join(NAME)) {
            Ok(bytes) => checked_file::open(KIND, VERSION, &bytes).unwrap_or_else(|damage| {
                tracing::warn!("{}/{NAME}: {damage}: limits of the driver may stay", directory.display());
                Content::default()
            }),
            Err(_) => Content::default(),
        };
        let limits = if content.boot == boot() { content.limits } else { BTreeSet::new() };
        Self { directory: directory.to_owned(), limits }
    }

    pub(super) fn limits(&self) -> &BTreeSet<Limit> {
        &self.limits
    }

    /// Adds a limit; it is in the file on return.
    pub(super) fn add(&mut self, limit: &Limit) -> io::Result<()> {
        if self.limits.insert(limit.clone()) {
            self.write().inspect_err(|_| {
                self.limits.remove(limit);
            })?;
        }
        Ok(())
    }

    /// Removes a limit. If the file cannot be written, a later manager takes the limit back once more.
    pub(super) fn remove(&mut self, limit: &Limit) {
        if self.limits.remove(limit) {
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let content = Content { boot: boot(), limits: self.limits.clone() };
        let bytes = checked_file::seal(KIND, VERSION, &content)?;
        checked_file::replace_until_reboot(&self.directory, NEW, &self.directory.join(NAME), &bytes)
    }
}

/// A UUID as text.
mod gpu_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use vcuda_region::GpuUuid;

    pub(super) fn serialize<S: Serializer>(gpu: &GpuUuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(gpu)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<GpuUuid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
