//! A test whether anything in a tenant's `usage` has changed. It is made for every tenant again and again. So it
//! reads only the words that figures are made of and that a process has ever used: in one read for the processes, and
//! one for each device.

use core::mem::offset_of;
use std::os::unix::fs::FileExt;

use super::UsageReader;
use super::time::bucket_offset;
use super::words::half;
use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::open::OpenError;
use crate::shared::MAX_OBJECTS;
use crate::{DeviceIndex, MAX_SLOTS};
use vcuda_limiter::token_bucket::TokenBucket;

/// The content of a tenant's `usage` at the last look.
#[derive(Debug, Default)]
pub struct UsageDigest {
    seen: Vec<u8>,
    /// Buffer of the look before, reused by the next one.
    spare: Vec<u8>,
    reads: u64,
}

impl UsageDigest {
    /// Reads made so far, a system call each.
    pub fn reads(&self) -> u64 {
        self.reads
    }
}

impl UsageReader {
    /// Whether processes, memory, GPU time or objects of the first `device_count` devices have changed since the last
    /// `digest` was taken. True at the first look, and after an error.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn has_changed(&self, device_count: usize, digest: &mut UsageDigest) -> Result<bool, OpenError> {
        core::mem::swap(&mut digest.seen, &mut digest.spare);
        digest.seen.clear();
        let looked = self.read_into(device_count, digest);
        if looked.is_err() {
            digest.seen.clear();
        }
        looked.map(|()| digest.seen != digest.spare)
    }

    fn read_into(&self, device_count: usize, digest: &mut UsageDigest) -> Result<(), OpenError> {
        const LINE: usize = size_of::<SlotDevice>();
        const RECORD: usize = size_of::<IdentityRecord>();
        const FIRST: usize = offset_of!(UsageFile, identities);
        // As many bytes as last time, with the header before them, in one read.
        let guess = half(&digest.spare, offset_of!(UsageFile, slots_used)) as usize;
        let guess = guess.min(MAX_SLOTS);
        self.append(0, FIRST + guess * RECORD, digest)?;
        let used = |at| half(&digest.seen, at) as usize;
        let slots = used(offset_of!(UsageFile, slots_used)).min(MAX_SLOTS);
        let objects = used(offset_of!(UsageFile, objects_used)).min(MAX_OBJECTS);
        if slots > guess {
            self.append(FIRST + guess * RECORD, (slots - guess) * RECORD, digest)?;
        }
        if slots == 0 {
            return Ok(());
        }
        for device in DeviceIndex::all().take(device_count) {
            let lines = offset_of!(UsageFile, devices) + device.get() * MAX_SLOTS * LINE;
            self.append(lines, slots * LINE, digest)?;
            self.append(bucket_offset(device), offset_of!(TokenBucket, busy), digest)?;
        }
        if objects > 0 {
            self.append(offset_of!(UsageFile, object_states), objects * 8, digest)?;
        }
        Ok(())
    }

    fn append(&self, offset: usize, size: usize, digest: &mut UsageDigest) -> Result<(), OpenError> {
        digest.reads += 1;
        let at = digest.seen.len();
        digest.seen.resize(at + size, 0);
        let room = digest.seen.get_mut(at..).unwrap_or_default();
        let read = self.file.read_exact_at(room, offset as u64);
        read.map_err(|error| OpenError::Io(self.path.clone(), error))
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::GpuUuid;
    use crate::directory::{Directory, Tenant};
    use crate::process::Identity;
    use crate::slots::Usage;
    use vcuda_quota::DeviceConfig;

    #[test]
    fn only_what_has_changed_is_seen_as_changed() {
        let root = tempfile::tempdir().unwrap();
        let tenant = Tenant::new("a", vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(1 << 30, 1000))]);
        let me = Identity::current().unwrap();
        let directory = Directory::create(root.path(), &tenant, b"", None, 1).unwrap();
        let first = Usage::open(directory.path()).unwrap();
        let _first = first.claim(&me).unwrap();
        let reader = UsageReader::open(directory.path()).unwrap();
        let mut digest = UsageDigest::default();
        let mut look = || {
            let before = digest.reads();
            let has_changed = reader.has_changed(1, &mut digest).unwrap();
            (has_changed, digest.reads() - before)
        };
        assert_eq!(look(), (true, 4), "the first time");
        assert_eq!(look(), (false, 3));
        let usage = Usage::open(directory.path()).unwrap();
        let slot = usage.claim(&me).unwrap();
        let device = DeviceIndex::new(0).unwrap();
        assert_eq!(look(), (true, 4), "a slot was taken");
        slot.reserve(device, 4096, 1 << 30).unwrap().commit();
        assert_eq!(look(), (true, 3), "memory");
        slot.meter(device).finish(1, 1);
        assert_eq!(look(), (true, 3), "launches");
        let denied = slot.reserve(device, 1 << 30, 1 << 30).unwrap_err();
        slot.count_denied(device, &denied);
        assert_eq!(look(), (true, 3), "a refusal");
        assert_eq!(look(), (false, 3));
        std::fs::File::options()
            .write(true)
            .open(directory.path().join("usage"))
            .unwrap()
            .set_len(4096)
            .unwrap();
        assert!(reader.has_changed(1, &mut digest).is_err(), "cut short");
    }
}
