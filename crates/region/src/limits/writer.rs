//! Writing of `limits`, by `vcuda run`, `vcuda set`, the arbiter and the manager.
//!
//! The writer never maps the file. A run's processes belong to their user, who can cut the file short at any time. A
//! process that then touches the mapping beyond the end is killed. Reading and writing the file gives an error
//! instead.

use core::fmt;
use core::mem::offset_of;
use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::words::{first_pace, is_valid_pace, metered_word, words_of_config, words_of_pace};
use super::{Limits, OpenError};
use crate::DeviceIndex;
use crate::layout::{DeviceLimits, LimitsFile, UsageFile};
use crate::open::{check, open_checked};
use crate::primitive::Ordering;
use crate::seqlock::Versioned;
use crate::sys::{self, Lock};
use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::DeviceConfig;

/// Changes limits that others read. Writers exclude each other by a lock on the directory above the tenant's, which the
/// tenant cannot reach; the kernel drops it with the writer.
#[derive(Debug)]
pub struct LimitsWriter {
    pub(super) limits: Limits,
    pub(super) file: Option<Target>,
}

/// The file that is written, and the lock that its writers share.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    file: File,
    above: PathBuf,
    lock: File,
    /// The tenant's `usage`, in which its processes are notified; `None` if that cannot be used.
    usage: Option<File>,
}

impl Target {
    /// Limits in the file now.
    fn read(&self) -> Result<Limits, OpenError> {
        check::<LimitsFile>(&self.path, &self.file)?;
        Limits::copied(&self.path, &self.file)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), WriteError> {
        self.file
            .write_all_at(bytes, offset as u64)
            .map_err(|error| WriteError::Write(self.path.clone(), error))
    }

    /// Notifies the tenant's processes. Without it they find the change by themselves, only later.
    fn notify(&self) {
        const AT: u64 = offset_of!(UsageFile, limits_notice) as u64;
        let mut word = [0; 4];
        if let Some(usage) = &self.usage
            && usage.read_exact_at(&mut word, AT).is_ok()
        {
            let next = u32::from_ne_bytes(word).wrapping_add(1);
            let _ = usage.write_all_at(&next.to_ne_bytes(), AT);
        }
    }

    /// Locks out other writers until the guard is dropped.
    fn lock(&self) -> Result<Locked<'_>, WriteError> {
        let is_locked = sys::lock_within(&self.lock, Lock::Exclusive, Duration::from_secs(1))
            .map_err(|error| WriteError::Lock(self.above.clone(), error))?;
        if is_locked { Ok(Locked(&self.lock)) } else { Err(WriteError::Busy(self.above.clone())) }
    }
}

/// Offset of a device in the file (bytes).
fn offset_of_device(device: DeviceIndex) -> usize {
    offset_of!(LimitsFile, devices) + device.get() * size_of::<DeviceLimits>()
}

impl LimitsWriter {
    /// Opens `limits` in `directory` for writing.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("limits");
        let file = open_checked::<LimitsFile>(&path, true)?;
        let above = directory.parent().unwrap_or(directory).to_owned();
        let lock = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(&above)
            .map_err(|error| OpenError::Io(above.clone(), error))?;
        let target = Target {
            path,
            file,
            above,
            lock,
            usage: open_checked::<UsageFile>(&directory.join("usage"), true).ok(),
        };
        Ok(Self { limits: target.read()?, file: Some(target) })
    }

    /// Limits that readers saw when this was opened, last refreshed or written.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads again what readers see.
    ///
    /// # Errors
    /// As [`Limits::open`]: what was known before stays.
    pub fn refresh(&mut self) -> Result<(), OpenError> {
        if let Some(target) = &self.file {
            self.limits = target.read()?;
        }
        Ok(())
    }

    /// Whether a configuration was written since this was opened or last refreshed: one word is read.
    pub fn is_outdated(&self) -> bool {
        const AT: u64 = offset_of!(LimitsFile, generation) as u64;
        let mut word = [0; 8];
        let Some(target) = &self.file else {
            return false;
        };
        target.file.read_exact_at(&mut word, AT).is_ok()
            && u64::from_ne_bytes(word) != self.limits.generation()
    }

    /// Changes the configuration of `device` live, and continues its pace: tokens stay. The new rate is the cap of
    /// `fixed`. Time that others borrow by the arbiter's decision stays with them, as far as it is still allowed,
    /// until the arbiter looks again.
    ///
    /// # Errors
    /// The configuration is out of its ranges, another writer holds the lock for a second, or the file cannot be used any
    /// more: then nothing was changed.
    pub fn set_config(
        &mut self,
        device: DeviceIndex,
        config: &DeviceConfig,
        now_ns: u64,
    ) -> Result<(), WriteError> {
        if !config.is_valid() {
            return Err(WriteError::OutOfRange);
        }
        self.change(|writer| {
            let old = writer.limits.pace(device).unwrap_or_else(|_| first_pace(config, now_ns));
            let metered = config.cap_permille < 1000 || old.contended;
            // A rate of zero would stop a tenant for ever.
            let lowest = config.promised_permille().max(1);
            let rate = old.rate_permille.clamp(lowest, config.cap_permille.max(lowest));
            let pace = Pace { metered, ..old.with_rate(rate, now_ns) };
            let record = writer.limits.device(device);
            let at = offset_of_device(device) + offset_of!(DeviceLimits, config);
            writer.put(at, &record.config, words_of_config(device, config))?;
            writer.put_pace(device, &pace)?;
            let generation = writer.limits.generation().wrapping_add(1);
            writer.limits.mapping.generation.store(generation, Ordering::Release);
            writer.store(offset_of!(LimitsFile, generation), &generation.to_ne_bytes())?;
            Ok(true)
        })
    }

    /// Changes the pace of `device`, and whether its GPU time is metered.
    ///
    /// # Errors
    /// The pace is out of its ranges, another writer holds the lock for a second, or the file cannot be used any more: then
    /// nothing was changed.
    pub fn set_pace(&mut self, device: DeviceIndex, pace: &Pace) -> Result<(), WriteError> {
        if !is_valid_pace(pace) {
            return Err(WriteError::OutOfRange);
        }
        self.change(|writer| {
            let was_metered = writer.limits.is_metered(device);
            writer.put_pace(device, pace)?;
            Ok(was_metered != pace.metered)
        })
    }

    /// Records that the arbiter works at `now_ns`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn beat(&mut self, now_ns: u64) -> Result<(), WriteError> {
        let word = &self.limits.mapping.arbiter_beat_ns;
        word.store(now_ns, Ordering::Relaxed);
        self.store(offset_of!(LimitsFile, arbiter_beat_ns), &now_ns.to_ne_bytes())
    }

    /// Offers at `now_ns` to make room for the tenant's allocations ([`crate::room`]).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn offer_room(&self, now_ns: u64) -> Result<(), WriteError> {
        self.store(offset_of!(LimitsFile, room_offered_ns), &now_ns.to_ne_bytes())
    }

    /// Changes the current values while no other writer can. `change` returns whether processes must look at once.
    fn change(&mut self, change: impl FnOnce(&Self) -> Result<bool, WriteError>) -> Result<(), WriteError> {
        let Some(target) = &self.file else {
            return change(self).map(drop);
        };
        let _lock = target.lock()?;
        self.limits = target.read().map_err(WriteError::Open)?;
        if change(self)? {
            target.notify();
        }
        Ok(())
    }

    fn put_pace(&self, device: DeviceIndex, pace: &Pace) -> Result<(), WriteError> {
        let record = self.limits.device(device);
        let metered = metered_word(pace);
        let at = offset_of_device(device);
        self.put(at + offset_of!(DeviceLimits, pace), &record.pace, words_of_pace(device, pace))?;
        record.metered.store(metered, Ordering::Release);
        self.store(at + offset_of!(DeviceLimits, metered), &metered.to_ne_bytes())
    }

    /// Replaces a value at this place of the file, and in this writer's copy.
    fn put<const N: usize>(
        &self,
        at: usize,
        value: &Versioned<N>,
        words: [u64; N],
    ) -> Result<(), WriteError> {
        for (offset, bytes) in value.stores(words) {
            self.store(at + offset, &bytes)?;
        }
        value.write(words);
        Ok(())
    }

    fn store(&self, offset: usize, bytes: &[u8]) -> Result<(), WriteError> {
        match &self.file {
            Some(target) => target.write(offset, bytes),
            None => Ok(()),
        }
    }
}

struct Locked<'w>(&'w File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        sys::unlock(self.0);
    }
}

/// A change of limits was refused.
#[derive(Debug)]
pub enum WriteError {
    /// A value is outside its range.
    OutOfRange,
    /// Another program is changing limits and does not end.
    Busy(PathBuf),
    /// The lock cannot be taken.
    Lock(PathBuf, io::Error),
    /// The file has changed since it was opened.
    Open(OpenError),
    /// The file cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => {
                f.write_str("a share or time is out of its range; a share is 1 to 100 percent")
            }
            Self::Busy(path) => {
                write!(f, "another program holds the lock on {}; try again when it is done", path.display())
            }
            Self::Lock(path, error) => write!(f, "cannot lock {}: {error}; is it there?", path.display()),
            Self::Open(error) => error.fmt(f),
            Self::Write(path, error) => {
                write!(f, "cannot write {}: {error}; make room there", path.display())
            }
        }
    }
}

impl std::error::Error for WriteError {}
