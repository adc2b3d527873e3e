//! Facts that are kept about a specification: its container, and the container's devices. It lies in a file beside the
//! specification, which has no place for it that runtimes of all ages accept (annotations came with CDI 0.6.0).

use serde::{Deserialize, Serialize};

use crate::ids::{self, Ids, Kind, Slot};

/// Devices that kubelet counts for a container, and the container's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Namespace and name of the pod, or what else it is called.
    pub pod: String,
    /// The pod's UID; empty while unknown.
    pub pod_uid: String,
    /// Shares, chunks and percents, by [`Kind`].
    pub ids: [Ids; 3],
}

impl Holding {
    /// Whether both are of one pod.
    #[must_use]
    pub fn is_same_pod(&self, other: &Self) -> bool {
        match self.pod_uid.is_empty() || other.pod_uid.is_empty() {
            true => self.pod == other.pod,
            false => self.pod_uid == other.pod_uid,
        }
    }

    /// The IDs of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &Ids {
        kind.of(&self.ids)
    }
}

/// Owner of a slot's specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The slot.
    pub slot: Slot,
    /// The manager's name for the grant.
    pub id: String,
    /// Its GPUs by UUID.
    pub gpus: Vec<String>,
    /// For whom.
    pub held: Holding,
    /// The amounts that were asked of the manager for it, as a text to compare.
    pub asked: String,
}

/// As it lies in its file.
#[derive(Serialize, Deserialize)]
struct Written {
    grant: String,
    gpus: Vec<String>,
    pod: String,
    pod_uid: String,
    shares: String,
    chunks: String,
    percents: String,
    asked: String,
}

impl Record {
    /// Content of `text`, the file of this slot; nothing if it is none of ours.
    pub(super) fn of_text(slot: &Slot, text: &[u8]) -> Option<Self> {
        let written: Written = serde_json::from_slice(text).ok()?;
        Some(Self {
            slot: slot.clone(),
            id: written.grant,
            gpus: written.gpus,
            held: Holding {
                pod: written.pod,
                pod_uid: written.pod_uid,
                ids: [
                    ids::of_ranges(&written.shares)?,
                    ids::of_ranges(&written.chunks)?,
                    ids::of_ranges(&written.percents)?,
                ],
            },
            asked: written.asked,
        })
    }

    /// Its file.
    pub(super) fn text(&self) -> serde_json::Result<Vec<u8>> {
        let ranges = |kind| ids::ranges(self.held.of(kind));
        serde_json::to_vec(&Written {
            grant: self.id.clone(),
            gpus: self.gpus.clone(),
            pod: self.held.pod.clone(),
            pod_uid: self.held.pod_uid.clone(),
            shares: ranges(Kind::Gpu),
            chunks: ranges(Kind::Memory),
            percents: ranges(Kind::Cores),
            asked: self.asked.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::grant;
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let record = grant(7).record();
        let text = record.text().unwrap();
        assert_eq!(Record::of_text(&record.slot, &text), Some(record.clone()));
        assert_eq!(Record::of_text(&record.slot, &text[1..]), None);
        let text = String::from_utf8(text).unwrap().replace("0-2", "2-0x");
        assert_eq!(Record::of_text(&record.slot, text.as_bytes()), None);
    }
}
