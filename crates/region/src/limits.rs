//! `limits`: the quota of a tenant. One process writes it at a time; all the tenant's processes read it.

use core::fmt;
use std::fs::File;
use std::path::Path;

use crate::layout::{DeviceLimits, LimitsFile};
use crate::map::Mapping;
use crate::open::{open_checked, read_bytes};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::{DeviceIndex, GpuUuid, MAX_DEVICES};
use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::DeviceConfig;
use words::{config_of_words, header_sum, is_sound, limit_check, pace_of_words, uuid_of};

mod follow;
mod reader;
mod words;
mod writer;

use follow::Source;

pub use crate::open::OpenError;
pub use reader::LimitsReader;
pub(crate) use words::{fill, mark_suspendable, set_memory_wait};
pub use writer::{LimitsWriter, WriteError};

/// The value of a device's metered word when its GPU time is not metered. Every other value means metered, so that
/// damage never frees a tenant of its share.
pub const NOT_METERED: u32 = 0x6f70_656e;

/// The value of the suspendable word of a tenant that may be suspended. Every other value means that it may not.
pub const SUSPENDABLE: u64 = u64::from_le_bytes(*b"suspend.");

/// Attempts to read a file that looks damaged: a value may have changed twice while it was read.
const READ_ATTEMPTS: u32 = 8;

/// The error for values read from `limits` that cannot be right. A managed process then gets no GPU memory (I11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limits of this tenant are damaged, so GPU memory is denied; start it again")
    }
}

impl std::error::Error for Damaged {}

/// A tenant's limits, as they were when they were read ([`Limits::read`]) or last followed ([`Limits::open`],
/// [`Limits::follow`]).
#[derive(Debug)]
pub struct Limits {
    mapping: Mapping<LimitsFile>,
    name: String,
    devices: Vec<GpuUuid>,
    /// The memory limits as last followed (bytes): checked once, not at each allocation.
    followed_bytes: [AtomicU64; MAX_DEVICES],
    source: Option<Source>,
}

impl Limits {
    /// Opens, checks and maps `limits` in `directory`: for the tenant's own processes, which [`Limits::follow`] them.
    ///
    /// # Errors
    /// Missing, a link, not a file, of another version or size, or damaged: see [`OpenError`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("limits");
        let file = open_checked::<LimitsFile>(&path, false)?;
        let now = Self::copied(&path, &file)?;
        now.note_memory_limits();
        let source = Source::new(&file).map_err(|error| OpenError::Io(path, error))?;
        Ok(Self { source: Some(source), ..now })
    }

    /// Reads and checks `limits` in `directory` as they are now, for programs outside of the tenant. Nothing stays
    /// open or mapped, so later changes of the file have no effect.
    pub fn read(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("limits");
        let file = open_checked::<LimitsFile>(&path, false)?;
        Self::copied(&path, &file)
    }

    /// A sound copy of `file`. A writer at work is given time to finish.
    fn copied(path: &Path, file: &File) -> Result<Self, OpenError> {
        for _ in 0..READ_ATTEMPTS {
            let bytes = read_bytes::<LimitsFile>(path, file)?;
            let copy = Mapping::of_bytes(&bytes).map_err(|error| OpenError::Io(path.to_owned(), error))?;
            if let Some(limits) = Self::checked(copy) {
                return Ok(limits);
            }
        }
        Err(OpenError::Damaged(path.to_owned()))
    }

    /// Limits in this process's own memory, for tests and simulations.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn in_memory(
        name: &str,
        devices: &[(GpuUuid, DeviceConfig)],
        now_ns: u64,
    ) -> std::io::Result<LimitsWriter> {
        let mapping = Mapping::anonymous()?;
        fill(&mapping, name, devices, now_ns);
        let limits =
            Self::checked(mapping).ok_or_else(|| std::io::Error::other("name or devices out of bounds"))?;
        Ok(LimitsWriter { limits, file: None })
    }

    fn checked(mapping: Mapping<LimitsFile>) -> Option<Self> {
        if mapping.checksum.load(Ordering::Acquire) != header_sum(&mapping) {
            return None;
        }
        let count = usize::try_from(mapping.device_count.load(Ordering::Relaxed)).ok()?;
        let length = usize::try_from(mapping.name_bytes.load(Ordering::Relaxed)).ok()?;
        let bytes: Vec<u8> =
            mapping.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let name = String::from_utf8(bytes.get(..length)?.to_vec()).ok()?;
        let devices: Vec<GpuUuid> = mapping.devices.get(..count)?.iter().map(uuid_of).collect();
        is_sound(&mapping, count).then_some(Self {
            mapping,
            name,
            devices,
            followed_bytes: Default::default(),
            source: None,
        })
    }

    /// The tenant's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tenant's GPUs.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIndex, GpuUuid)> + '_ {
        DeviceIndex::all().zip(self.devices.iter().copied())
    }

    /// Position of `uuid` in the tenant's limits; `None` if the tenant was not given this GPU.
    pub fn find(&self, uuid: &GpuUuid) -> Option<DeviceIndex> {
        self.devices().find(|(_, candidate)| candidate == uuid).map(|(device, _)| device)
    }

    /// Number of configurations written so far.
    pub fn generation(&self) -> u64 {
        self.mapping.generation.load(Ordering::Acquire)
    }

    /// The memory limit of `device` in bytes, or [`vcuda_quota::NO_MEMORY_LIMIT`].
    ///
    /// # Errors
    /// The value does not agree with its check word: nothing may be allocated.
    pub fn memory_limit_bytes(&self, device: DeviceIndex) -> Result<u64, Damaged> {
        let [limit, check] = self.device(device).config.read_first::<2>();
        if check == limit_check(limit) { Ok(limit) } else { Err(Damaged) }
    }

    /// The memory limit of `device` as it was when limits of [`Limits::open`] were last followed (bytes); 0 if it was
    /// damaged. It is one relaxed load, as every allocation needs it.
    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    pub fn followed_limit_bytes(&self, device: DeviceIndex) -> u64 {
        self.followed_bytes[device.get()].load(Ordering::Relaxed)
    }

    /// Whether GPU time on `device` is metered: one relaxed load, for every launch.
    #[inline]
    pub fn is_metered(&self, device: DeviceIndex) -> bool {
        self.device(device).metered.load(Ordering::Relaxed) != NOT_METERED
    }

    /// Whether the tenant may be suspended, as it was declared when it was made.
    pub fn is_suspendable(&self) -> bool {
        self.mapping.suspendable.load(Ordering::Relaxed) == SUSPENDABLE
    }

    /// Longest wait of an allocation for room (ms), as it was declared when the tenant was made; `None` if it was not.
    pub fn memory_wait_ms(&self) -> Option<u32> {
        let word = self.mapping.memory_wait.load(Ordering::Relaxed).checked_sub(1)?;
        u32::try_from(word).ok()
    }

    /// Time at which the manager last offered to make room (`CLOCK_MONOTONIC`, ns); 0: never.
    pub fn room_offered_ns(&self) -> u64 {
        self.mapping.room_offered_ns.load(Ordering::Relaxed)
    }

    /// The word behind [`Limits::is_metered`], for a caller that keeps its address: [`NOT_METERED`] or anything else.
    pub fn metered_word(&self, device: DeviceIndex) -> &AtomicU32 {
        &self.device(device).metered
    }

    /// The configuration of `device`.
    ///
    /// # Errors
    /// A value is out of its range or the checksum is wrong.
    pub fn config(&self, device: DeviceIndex) -> Result<DeviceConfig, Damaged> {
        config_of_words(device, self.device(device).config.read()).ok_or(Damaged)
    }

    /// The pace of `device`.
    ///
    /// # Errors
    /// A value is out of its range or the checksum is wrong.
    pub fn pace(&self, device: DeviceIndex) -> Result<Pace, Damaged> {
        pace_of_words(device, self.device(device).pace.read()).ok_or(Damaged)
    }

    /// Time at which the arbiter last worked (`CLOCK_MONOTONIC`, ns), 0 if it never did.
    pub fn arbiter_beat_ns(&self) -> u64 {
        self.mapping.arbiter_beat_ns.load(Ordering::Relaxed)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a DeviceIndex is below MAX_DEVICES, the length of the array"
    )]
    #[inline]
    fn device(&self, device: DeviceIndex) -> &DeviceLimits {
        &self.mapping.devices[device.get()]
    }
}
