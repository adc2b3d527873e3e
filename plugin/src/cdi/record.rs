//! The record of a specification: its container, and the container's devices. It is a file beside the specification, as CDI has
//! annotations only since 0.6.0, and older runtimes refuse them.

use serde::{Deserialize, Serialize};

use crate::ids::{self, Ids, Kind, Slot};

/// Devices that kubelet gave to a container, and the container's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldDevices {
    /// Namespace and name of the pod, or a text with its UID if the name is not known.
    pub pod: String,
    /// The pod's UID; empty while unknown.
    pub pod_uid: String,
    /// By [`Kind`].
    pub ids: [Ids; 4],
}

impl HeldDevices {
    /// Whether both belong to the same pod.
    pub fn is_same_pod(&self, other: &Self) -> bool {
        match self.pod_uid.is_empty() || other.pod_uid.is_empty() {
            true => self.pod == other.pod,
            false => self.pod_uid == other.pod_uid,
        }
    }

    /// IDs of one kind.
    pub fn ids_of(&self, kind: Kind) -> &Ids {
        kind.select(&self.ids)
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
    /// Devices and pod of the container.
    pub held: HeldDevices,
    /// The requested amounts, as a text to compare.
    pub asked: String,
}

/// The file's JSON form.
#[derive(Serialize, Deserialize)]
struct RecordFile {
    grant: String,
    gpus: Vec<String>,
    pod: String,
    pod_uid: String,
    shares: String,
    chunks: String,
    percents: String,
    suspendable_chunks: String,
    asked: String,
}

impl Record {
    /// Parses `text`, the record file of this slot; `None` if it has another form.
    pub(super) fn parse(slot: &Slot, text: &[u8]) -> Option<Self> {
        let file: RecordFile = serde_json::from_slice(text).ok()?;
        Some(Self {
            slot: slot.clone(),
            id: file.grant,
            gpus: file.gpus,
            held: HeldDevices {
                pod: file.pod,
                pod_uid: file.pod_uid,
                ids: [
                    ids::parse_ranges(&file.shares)?,
                    ids::parse_ranges(&file.chunks)?,
                    ids::parse_ranges(&file.percents)?,
                    ids::parse_ranges(&file.suspendable_chunks)?,
                ],
            },
            asked: file.asked,
        })
    }

    /// The text of the record file.
    pub(super) fn text(&self) -> serde_json::Result<Vec<u8>> {
        let ranges = |kind| ids::ranges(self.held.ids_of(kind));
        serde_json::to_vec(&RecordFile {
            grant: self.id.clone(),
            gpus: self.gpus.clone(),
            pod: self.held.pod.clone(),
            pod_uid: self.held.pod_uid.clone(),
            shares: ranges(Kind::Gpu),
            chunks: ranges(Kind::Memory),
            percents: ranges(Kind::Cores),
            suspendable_chunks: ranges(Kind::SuspendableMemory),
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
        let mut record = grant(7).record();
        let text = record.text().unwrap();
        assert_eq!(Record::parse(&record.slot, &text), Some(record.clone()));
        *Kind::SuspendableMemory.select_mut(&mut record.held.ids) = Ids::from([4, 5]);
        let with_suspendable = record.text().unwrap();
        assert_eq!(Record::parse(&record.slot, &with_suspendable), Some(record.clone()));
        assert_eq!(Record::parse(&record.slot, &text[1..]), None);
        let text = String::from_utf8(text).unwrap().replace("0-2", "2-0x");
        assert_eq!(Record::parse(&record.slot, text.as_bytes()), None);
    }
}
