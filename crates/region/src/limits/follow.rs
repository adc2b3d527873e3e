//! Following of `limits` by a running process.
//!
//! A process of the tenant never touches the mapped file. Another process of the same user can cut it short, and the
//! access would end this one with SIGBUS. So the process keeps a copy of its own, which it reads at every launch; the
//! memory limits in it are checked when it is made, and kept as one word each for every allocation. The kernel reads the file into the copy when [`Usage::limits_notice`] says that a quota has changed. It
//! also does so every few milliseconds while the process requests memory or has work on the GPU. A file that cannot be
//! read, or is damaged, is a limit of nothing (I11) until it is sound again.
//!
//! [`Usage::limits_notice`]: crate::slots::Usage::limits_notice

use core::sync::atomic::AtomicBool;
use std::fs::File;
use std::io;

use parking_lot::Mutex;

use super::words::{METERED, header_sum, is_sound};
use super::{Limits, READ_ATTEMPTS};
use crate::DeviceIndex;
use crate::layout::{CONFIG_WORDS, LimitsFile, PACE_WORDS};
use crate::map::Mapping;
use crate::primitive::{AtomicU64, Ordering};

/// The file that limits are followed from.
#[derive(Debug)]
pub(super) struct Source {
    /// Read by the kernel, never touched.
    file: Mapping<LimitsFile>,
    /// The values read last. The lock is only tried: no thread waits, and a child forked meanwhile opens limits of
    /// its own.
    image: Mutex<Mapping<LimitsFile>>,
    followed_ns: AtomicU64,
    is_closed: AtomicBool,
}

/// Unwind-safe: the next read of the file replaces whatever a panic left in the image.
impl std::panic::RefUnwindSafe for Source {}

impl Source {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Self {
            file: Mapping::of_file(file, false)?,
            image: Mutex::new(Mapping::of_bytes(&[])?),
            followed_ns: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        })
    }
}

impl Limits {
    /// Whether the limits were last followed more than `age_ns` before `now_ns` (`CLOCK_MONOTONIC`).
    #[inline]
    pub fn are_older(&self, age_ns: u64, now_ns: u64) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| now_ns.saturating_sub(source.followed_ns.load(Ordering::Relaxed)) > age_ns)
    }

    /// Takes over the current values of the file: one system call. Returns `false` if another thread is doing that.
    pub fn follow(&self, now_ns: u64) -> bool {
        let Some(source) = &self.source else {
            return true;
        };
        let Some(mut image) = source.image.try_lock() else {
            return false;
        };
        source.followed_ns.store(now_ns, Ordering::Relaxed);
        let sum = self.mapping.checksum.load(Ordering::Relaxed);
        // A writer at work is given time to finish. A file that stays damaged is taken over as it is, and found damaged
        // at each read.
        let mut is_ours = false;
        for _ in 0..READ_ATTEMPTS {
            is_ours = source.file.copy_to(&mut image).is_ok()
                && image.checksum.load(Ordering::Relaxed) == sum
                && header_sum(&image) == sum;
            if !is_ours || is_sound(&image, self.devices.len()) {
                break;
            }
        }
        let was_closed = source.is_closed.swap(!is_ours, Ordering::Relaxed);
        if is_ours {
            self.take_over(&image);
        } else if !was_closed {
            self.deny_all();
        }
        self.note_memory_limits();
        true
    }

    /// Notes the memory limits of the copy, 0 for one that is damaged. Only the thread that follows calls it.
    pub(super) fn note_memory_limits(&self) {
        for (device, bytes) in DeviceIndex::all().zip(&self.followed_bytes) {
            let limit_bytes = self.memory_limit_bytes(device).unwrap_or(0);
            bytes.store(limit_bytes, Ordering::Relaxed);
        }
    }

    fn take_over(&self, image: &LimitsFile) {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        for (ours, now) in self.mapping.devices.iter().zip(&image.devices).take(self.devices.len()) {
            let config = now.config.read();
            if ours.config.read() != config {
                ours.config.write(config);
            }
            let pace = now.pace.read();
            if ours.pace.read() != pace {
                ours.pace.write(pace);
            }
            ours.metered.store(now.metered.load(Ordering::Relaxed), Ordering::Release);
        }
        let beat_ns = get(&image.arbiter_beat_ns);
        self.mapping.arbiter_beat_ns.store(beat_ns, Ordering::Relaxed);
        let offered_ns = get(&image.room_offered_ns);
        self.mapping.room_offered_ns.store(offered_ns, Ordering::Relaxed);
        self.mapping.generation.store(get(&image.generation), Ordering::Release);
    }

    /// Sets no memory and the least GPU time. Neither value agrees with its checksum, so both deny.
    fn deny_all(&self) {
        for device in self.mapping.devices.iter().take(self.devices.len()) {
            device.config.write([0; CONFIG_WORDS]);
            device.pace.write([0; PACE_WORDS]);
            device.metered.store(METERED, Ordering::Release);
        }
    }
}
