//! A tenant's GPU time on a device: its token bucket, its busy map, and its processes' work in flight.

use core::mem::offset_of;
use std::os::unix::fs::FileExt;

use vcuda_limiter::busy;
use vcuda_limiter::controller::Measured;
use vcuda_limiter::token_bucket::{BUSY_WORDS, LatenessUse, Meter, TokenBucket};

use super::words::{half, identity_of_record, word, words_of_line};
use super::{BucketUse, UsageReader, Work};
use crate::layout::{IdentityRecord, SlotDevice, UsageFile};
use crate::open::OpenError;
use crate::{DeviceIndex, MAX_SLOTS};

impl UsageReader {
    /// Work in flight on `device` of each process that holds a slot, dead ones too.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn works(&self, device: DeviceIndex) -> Result<Vec<Work>, OpenError> {
        const LINE: usize = size_of::<SlotDevice>();
        const RECORD: usize = size_of::<IdentityRecord>();
        let slots = (half(&self.read(offset_of!(UsageFile, slots_used), 4)?, 0) as usize).min(MAX_SLOTS);
        let records = self.read(offset_of!(UsageFile, identities), slots * RECORD)?;
        let offset = offset_of!(UsageFile, devices) + device.get() * MAX_SLOTS * LINE;
        let lines = self.read(offset, slots * LINE)?;
        let processes = records.chunks_exact(RECORD).zip(lines.chunks_exact(LINE)).enumerate();
        Ok(processes
            .filter_map(|(slot, (record, line))| {
                let words = words_of_line(line);
                let meter = Meter::of_words(words.last_chunk::<8>().unwrap_or(&[0; 8]));
                Some(Work {
                    slot,
                    identity: identity_of_record(record)?,
                    state: word(record, offset_of!(IdentityRecord, state)),
                    settled_ns: word(record, offset_of!(IdentityRecord, settled_ns)),
                    launches: meter.in_flight_launches(),
                })
            })
            .collect())
    }

    /// The tenant's bucket on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn bucket(&self, device: DeviceIndex) -> Result<BucketUse, OpenError> {
        let bytes = self.read(bucket_offset(device), offset_of!(TokenBucket, busy))?;
        Ok(BucketUse {
            level_ns: word(&bytes, offset_of!(TokenBucket, level_ns)).cast_signed(),
            served_ns: word(&bytes, offset_of!(TokenBucket, served_ns)),
            forgiven_ns: word(&bytes, offset_of!(TokenBucket, forgiven_ns)),
            denied: word(&bytes, offset_of!(TokenBucket, denied)),
            denied_bytes: word(&bytes, offset_of!(TokenBucket, denied_bytes)),
            denied_used_bytes: word(&bytes, offset_of!(TokenBucket, denied_used_bytes)),
            peak_bytes: word(&bytes, offset_of!(TokenBucket, peak_bytes)),
            host_copies: word(&bytes, offset_of!(TokenBucket, host_copies)),
            host_copied_bytes: word(&bytes, offset_of!(TokenBucket, host_copied_bytes)),
            contexts_ns: word(&bytes, offset_of!(TokenBucket, contexts_ns)),
            measured: Measured {
                fresh_ns: word(&bytes, offset_of!(TokenBucket, measured_ns)),
                charged_ns: word(&bytes, offset_of!(TokenBucket, measured_charge_ns)),
            },
            is_waiting: half(&bytes, offset_of!(TokenBucket, waiters)) != 0,
            lateness: LatenessUse::of_counts(|bin| half(&bytes, offset_of!(TokenBucket, lateness) + bin * 4)),
        })
    }

    /// The tenant's busy times on `device`: the 48 bins of each of the busy map's words `first` up to `last` (numbers
    /// since the clock's zero, see [`vcuda_limiter::busy`]), at most one round.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn busy(&self, device: DeviceIndex, first: u64, last: u64) -> Result<Vec<u64>, OpenError> {
        let map = bucket_offset(device) + offset_of!(TokenBucket, busy);
        let mut bins = Vec::new();
        let mut at = first.max(last.saturating_sub(BUSY_WORDS as u64));
        while at < last {
            let (place, _) = busy::place(BUSY_WORDS, at);
            let left = usize::try_from(last - at).unwrap_or(BUSY_WORDS);
            let count = left.min(BUSY_WORDS - place);
            let bytes = self.read(map + place * 8, count * 8)?;
            for position in 0..count {
                bins.push(busy::bins_of(word(&bytes, position * 8), BUSY_WORDS, at));
                at += 1;
            }
        }
        Ok(bins)
    }

    /// A word that changes whenever the tenant begins to use GPU time on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn level_ns(&self, device: DeviceIndex) -> Result<i64, OpenError> {
        let mut bytes = [0; 8];
        let at = bucket_offset(device) + offset_of!(TokenBucket, level_ns);
        match self.file.read_exact_at(&mut bytes, at as u64) {
            Ok(()) => Ok(i64::from_ne_bytes(bytes)),
            Err(error) => Err(OpenError::Io(self.path.clone(), error)),
        }
    }
}

/// Offset of the tenant's bucket for `device` in the file (bytes).
pub(super) fn bucket_offset(device: DeviceIndex) -> usize {
    offset_of!(UsageFile, buckets) + device.get() * size_of::<TokenBucket>()
}
