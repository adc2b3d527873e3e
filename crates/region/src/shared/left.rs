//! Exported memory of a tenant whose processes have all ended. It stays charged to the tenant until its release is proved (I18): the
//! directory stays, and the next run of the name joins it.

use core::mem::offset_of;
use std::fs::File;
use std::os::fd::AsRawFd;

use parking_lot::Mutex;

use super::descriptors::{is_listed, is_locked, open};
use super::state::State;
use super::{ObjectKey, ObjectRecord, Outlives};
use crate::DeviceIndex;
use crate::ledger::COUNTABLE_BYTES;
use crate::usage_reader::word;

/// This process's own description of each inode. None is closed again: with it, the locks that the driver's library has in this
/// process would go (fcntl(2)).
static DESCRIPTIONS: Mutex<Vec<(Outlives, File)>> = Mutex::new(Vec::new());

/// An object that may be kept by descriptors, and by no process of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    key: ObjectKey,
    outlives: Outlives,
    /// The device that it is on.
    pub device: DeviceIndex,
    /// Bytes counted for it.
    pub bytes: u64,
}

impl Left {
    /// The object of a state and a record in a copy of both tables, if descriptors may keep it of which the kernel can be asked.
    pub(crate) fn of_bytes(state: u64, record: &[u8]) -> Option<Self> {
        let state = State(state);
        let outlives = Outlives::of_word(word(record, offset_of!(ObjectRecord, outlives)));
        let key = offset_of!(ObjectRecord, key);
        (state.is_granted() && outlives.is_of_inode()).then_some(())?;
        Some(Self {
            key: ObjectKey::from_parts(word(record, key), word(record, key + 8)),
            outlives,
            device: DeviceIndex::new(state.device())?,
            bytes: word(record, offset_of!(ObjectRecord, bytes)).min(COUNTABLE_BYTES),
        })
    }

    /// Whether its release is proved: no descriptor of it is open anywhere. `false` where the kernel cannot be asked.
    pub(crate) fn is_released(&self) -> bool {
        self.is_open() == Some(false)
    }

    /// Whether figures show it. Where the kernel cannot be asked about it, its list of locks tells, which may miss one.
    pub(crate) fn is_shown(&self) -> bool {
        let listed = || is_listed(self.key.lock_offset());
        self.is_open().or_else(listed).unwrap_or(true)
    }

    /// Whether a descriptor of it is open anywhere; `None` where the kernel cannot be asked.
    fn is_open(&self) -> Option<bool> {
        let mut descriptions = DESCRIPTIONS.lock();
        let known = descriptions.iter().position(|(of, _)| *of == self.outlives);
        let at = match known {
            Some(at) => at,
            None => {
                descriptions.push((self.outlives, open(self.outlives)?));
                descriptions.len() - 1
            }
        };
        let (_, file) = descriptions.get(at)?;
        is_locked(file.as_raw_fd(), self.key.lock_offset())
    }
}
