//! The one who writes `limits`: `vcuda run`, `vcuda set`, the arbiter, the manager.

use core::fmt;
use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::words::{first_pace, is_valid_pace, words_of_config, write_pace};
use super::{DeviceConfig, Limits, OpenError, Turn};
use crate::DeviceIndex;
use crate::account::Pace;
use crate::primitive::Ordering;
use crate::sys::{self, Lock};

/// Changes limits that others read. Writers exclude each other by a lock on the directory above the container's, which
/// the container cannot reach; the kernel drops it with the writer.
#[derive(Debug)]
pub struct LimitsWriter {
    pub(super) limits: Limits,
    pub(super) lock: Option<(PathBuf, File)>,
}

impl LimitsWriter {
    /// Opens `limits` in `directory` for writing.
    ///
    /// # Errors
    /// As [`Limits::open`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let limits = Limits::open_as(directory, true)?;
        let above = directory.parent().unwrap_or(directory);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(above)
            .map_err(|error| OpenError::Io(above.to_owned(), error))?;
        Ok(Self {
            limits,
            lock: Some((above.to_owned(), file)),
        })
    }

    /// What readers see.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the configuration of `device` live, and continues its pace at the new cap: what was earned stays.
    ///
    /// # Errors
    /// The configuration is out of its ranges, or another writer holds the lock for a second.
    pub fn set_config(
        &mut self,
        device: DeviceIndex,
        config: &DeviceConfig,
        now_ns: u64,
    ) -> Result<(), WriteError> {
        if !config.is_valid() {
            return Err(WriteError::OutOfRange);
        }
        let _lock = self.lock()?;
        let old = self
            .limits
            .pace(device)
            .unwrap_or_else(|_| first_pace(config, now_ns));
        let metered = config.cap_permille < 1000 || old.contended;
        let pace = Pace {
            metered,
            ..old.with_rate(config.cap_permille, now_ns)
        };
        self.limits
            .device(device)
            .config
            .write(words_of_config(device, config));
        write_pace(self.limits.device(device), device, &pace);
        self.limits.mapping.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Changes the pace of `device`, and whether its GPU time is metered.
    ///
    /// # Errors
    /// The pace is out of its ranges, or another writer holds the lock for a second.
    pub fn set_pace(&mut self, device: DeviceIndex, pace: &Pace) -> Result<(), WriteError> {
        if !is_valid_pace(pace) {
            return Err(WriteError::OutOfRange);
        }
        let _lock = self.lock()?;
        write_pace(self.limits.device(device), device, pace);
        Ok(())
    }

    /// Grants a turn on `device`, or takes it away (`until_ns` 0), and changes the bell. Whoever waits on the bell must
    /// be woken by the caller. Only the arbiter does this, and there is one.
    pub fn set_turn(&mut self, device: DeviceIndex, turn: Turn) {
        let device = self.limits.device(device);
        device.turn_until_ns.store(0, Ordering::Relaxed);
        device.turn_from_ns.store(turn.from_ns, Ordering::Release);
        // Pairs with the load in `Limits::turn`: who sees the end sees the start.
        device.turn_until_ns.store(turn.until_ns, Ordering::Release);
        device.turn_bell.fetch_add(1, Ordering::Release);
    }

    /// Says that the arbiter is at work.
    pub fn beat(&mut self, now_ns: u64) {
        self.limits
            .mapping
            .arbiter_beat_ns
            .store(now_ns, Ordering::Relaxed);
    }

    fn lock(&self) -> Result<Locked<'_>, WriteError> {
        let Some((path, file)) = &self.lock else {
            return Ok(Locked(None));
        };
        for _ in 0..1000 {
            if sys::try_lock(file, Lock::Exclusive).map_err(|error| WriteError::Io(path.clone(), error))? {
                return Ok(Locked(Some(file)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(WriteError::Busy(path.clone()))
    }
}

struct Locked<'w>(Option<&'w File>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            sys::unlock(file);
        }
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
    Io(PathBuf, io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => {
                f.write_str("a share or time is out of its range; a share is 1 to 100 percent")
            }
            Self::Busy(path) => {
                write!(
                    f,
                    "another program holds the lock on {}; try again when it is done",
                    path.display()
                )
            }
            Self::Io(path, error) => write!(f, "cannot lock {}: {error}; is it there?", path.display()),
        }
    }
}

impl std::error::Error for WriteError {}
