//! `limits`: what the container may use. Written by one, read by all its processes.

use core::fmt;
use std::path::{Path, PathBuf};

use crate::account::Pace;
use crate::layout::{CONFIG_WORDS, DeviceLimits, LimitsFile, NAME_BYTES, PACE_WORDS, VERSION};
use crate::map::{Mapped, Mapping, open_checked};
use crate::primitive::{AtomicU32, Ordering};
use crate::seqlock::checksum;
use crate::{DeviceIndex, GpuUuid, MAX_DEVICES};

pub use crate::map::OpenError;

/// The memory limit that is none: the whole card.
pub const NO_MEMORY_LIMIT: u64 = u64::MAX;
/// The value of a device's metered word when its GPU time is not metered. Every other value means metered, so that
/// damage never frees a container of its share.
pub const NOT_METERED: u32 = 0x6f70_656e;

/// How a container competes for GPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Its cap, always: never more.
    #[default]
    Fixed,
    /// Its guarantee, and up to its cap of what others leave idle.
    Burst,
    /// Only what others leave idle.
    BestEffort,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Burst, Self::BestEffort];

    /// Its name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Burst => "burst",
            Self::BestEffort => "best-effort",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a container is granted of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Memory limit in bytes, or [`NO_MEMORY_LIMIT`].
    pub memory_limit_bytes: u64,
    /// Share of GPU time that is always there (thousandths, 0 to 1000).
    pub guarantee_permille: u32,
    /// Share of GPU time that is never exceeded (thousandths, 1 to 1000; 1000 is not metered while alone).
    pub cap_permille: u32,
    /// Weight when idle time is divided (1 to 10000).
    pub weight: u32,
    /// How it competes.
    pub policy: Policy,
    /// Above 0: neighbours without a share give way to it.
    pub priority: u32,
    /// How much unused GPU time may be banked (ns).
    pub burst_ns: u64,
    /// Longest hold of a launch (ns).
    pub hold_max_ns: u64,
    /// Largest debt; more is forgiven and counted (ns).
    pub debt_max_ns: u64,
}

impl DeviceConfig {
    /// A fixed share: `memory_limit_bytes` of memory, `cap_permille` of the time, everything else as THROTTLE's defaults.
    #[must_use]
    pub fn new(memory_limit_bytes: u64, cap_permille: u32) -> Self {
        Self {
            memory_limit_bytes,
            guarantee_permille: cap_permille,
            cap_permille,
            weight: cap_permille.max(1),
            policy: Policy::Fixed,
            priority: 0,
            burst_ns: 5_000_000,
            hold_max_ns: 1_000_000_000,
            debt_max_ns: u64::from(cap_permille) * 10_000_000,
        }
    }

    fn is_valid(&self) -> bool {
        const MINUTE_NS: u64 = 60_000_000_000;
        (1..=1000).contains(&self.cap_permille)
            && self.guarantee_permille <= self.cap_permille
            && (1..=10_000).contains(&self.weight)
            && self.burst_ns <= MINUTE_NS
            && self.hold_max_ns <= MINUTE_NS
            && self.debt_max_ns <= MINUTE_NS
    }
}

/// What was read from `limits` cannot be right. A managed process then gets no GPU memory (I11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limits of this container are damaged, so GPU memory is denied; start it again")
    }
}

impl std::error::Error for Damaged {}

/// A container's turn on a device, where containers take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Start (`CLOCK_MONOTONIC`, ns).
    pub from_ns: u64,
    /// End, 0 while none is granted (`CLOCK_MONOTONIC`, ns).
    pub until_ns: u64,
}

/// A container's limits, mapped read-only: a running process sees a change at its next look.
#[derive(Debug)]
pub struct Limits {
    mapping: Mapping<LimitsFile>,
    name: String,
    devices: Vec<GpuUuid>,
}

impl Limits {
    /// Opens and checks `limits` in `directory`.
    ///
    /// # Errors
    /// Missing, a link, not a file, of another version or size, or damaged: see [`OpenError`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        Self::open_as(directory, false)
    }

    fn open_as(directory: &Path, writable: bool) -> Result<Self, OpenError> {
        let path = directory.join("limits");
        let file = open_checked::<LimitsFile>(&path, writable)?;
        let mapping =
            Mapping::of_file(&file, writable).map_err(|error| OpenError::Io(path.clone(), error))?;
        Self::checked(mapping).ok_or(OpenError::Damaged(path))
    }

    /// Limits in this process's own memory, for tests and for models of a machine.
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
        Ok(LimitsWriter { limits, lock: None })
    }

    fn checked(mapping: Mapping<LimitsFile>) -> Option<Self> {
        let words = header_words(&mapping);
        if mapping.checksum.load(Ordering::Acquire) != checksum(LimitsFile::MAGIC, &words) {
            return None;
        }
        let count = usize::try_from(mapping.device_count.load(Ordering::Relaxed)).ok()?;
        let length = usize::try_from(mapping.name_bytes.load(Ordering::Relaxed)).ok()?;
        let bytes: Vec<u8> = mapping
            .name
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        let name = String::from_utf8(bytes.get(..length)?.to_vec()).ok()?;
        let devices: Vec<GpuUuid> = mapping.devices.get(..count)?.iter().map(uuid_of).collect();
        let limits = Self {
            mapping,
            name,
            devices,
        };
        let sound = limits
            .devices()
            .all(|(device, _)| limits.config(device).is_ok() && limits.pace(device).is_ok());
        sound.then_some(limits)
    }

    /// The container's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The container's GPUs.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIndex, GpuUuid)> + '_ {
        DeviceIndex::all().zip(self.devices.iter().copied())
    }

    /// Where `uuid` stands in the container's limits; nothing if the container was not given this GPU.
    #[must_use]
    pub fn find(&self, uuid: &GpuUuid) -> Option<DeviceIndex> {
        self.devices()
            .find(|(_, candidate)| candidate == uuid)
            .map(|(device, _)| device)
    }

    /// How often a configuration was written.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.mapping.generation.load(Ordering::Acquire)
    }

    /// The memory limit of `device` in bytes, or [`NO_MEMORY_LIMIT`]. Five loads: for every allocation.
    ///
    /// # Errors
    /// The value does not agree with its check word: nothing may be allocated.
    #[inline]
    pub fn memory_limit_bytes(&self, device: DeviceIndex) -> Result<u64, Damaged> {
        let [limit, check] = self.device(device).config.read_first::<2>();
        if check == limit_check(limit) {
            Ok(limit)
        } else {
            Err(Damaged)
        }
    }

    /// Whether GPU time on `device` is metered: one relaxed load, for every launch.
    #[inline]
    #[must_use]
    pub fn is_metered(&self, device: DeviceIndex) -> bool {
        self.device(device).metered.load(Ordering::Relaxed) != NOT_METERED
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

    /// The turn on `device`.
    #[must_use]
    pub fn turn(&self, device: DeviceIndex) -> Turn {
        let device = self.device(device);
        let until_ns = device.turn_until_ns.load(Ordering::Acquire);
        Turn {
            from_ns: device.turn_from_ns.load(Ordering::Relaxed),
            until_ns,
        }
    }

    /// The futex word that changes with the turn. It can be waited on, though it lies in a read-only mapping.
    #[must_use]
    pub fn turn_bell(&self, device: DeviceIndex) -> &AtomicU32 {
        &self.device(device).turn_bell
    }

    /// When the arbiter was last at work (`CLOCK_MONOTONIC`, ns), 0 if it never was.
    #[must_use]
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

/// The one who writes `limits`: `vcuda run`, `vcuda set`, the arbiter, the manager. Writers of one container exclude each
/// other by a lock that no container can reach.
#[derive(Debug)]
pub struct LimitsWriter {
    limits: Limits,
    lock: Option<PathBuf>,
}

impl LimitsWriter {
    /// Opens `limits` in `directory` for writing.
    ///
    /// # Errors
    /// As [`Limits::open`].
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let limits = Limits::open_as(directory, true)?;
        Ok(Self {
            limits,
            lock: directory.parent().map(Path::to_owned),
        })
    }

    /// What readers see.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the configuration of `device` live, and starts a new line of its pace at the new cap: what was earned
    /// stays.
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
        let _ = now_ns;
        self.limits
            .device(device)
            .config
            .write(words_of_config(device, config));
        self.limits.mapping.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Changes the pace of `device`, and whether its GPU time is metered.
    ///
    /// # Errors
    /// The pace is out of its ranges, or another writer holds the lock for a second.
    pub fn set_pace(&mut self, device: DeviceIndex, pace: &Pace) -> Result<(), WriteError> {
        write_pace(self.limits.device(device), device, pace);
        Ok(())
    }

    /// Grants a turn on `device`, or takes it away (`until_ns` 0), and changes the bell. Whoever waits on the bell must
    /// be woken by the caller.
    pub fn set_turn(&mut self, device: DeviceIndex, turn: Turn) {
        let device = self.limits.device(device);
        device.turn_until_ns.store(0, Ordering::Relaxed);
        device.turn_from_ns.store(turn.from_ns, Ordering::Release);
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
}

/// A change of limits was refused.
#[derive(Debug)]
pub enum WriteError {
    /// A value is outside its range.
    OutOfRange,
    /// Another program is changing limits and does not end.
    Busy(PathBuf),
    /// The lock cannot be opened.
    Io(PathBuf, std::io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("share or times out of range; a share is 1 to 100 percent"),
            Self::Busy(path) => {
                write!(
                    f,
                    "another program holds the lock on {}; try again when it is done",
                    path.display()
                )
            }
            Self::Io(path, error) => write!(f, "cannot lock {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes a whole new `limits` into zeroed memory that nobody reads yet.
pub(crate) fn fill(file: &LimitsFile, name: &str, devices: &[(GpuUuid, DeviceConfig)], now_ns: u64) {
    let mut bytes = [0; NAME_BYTES];
    for (byte, from) in bytes.iter_mut().zip(name.bytes()) {
        *byte = from;
    }
    for (word, chunk) in file.name.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    file.name_bytes
        .store(u32::try_from(name.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    file.device_count.store(
        u32::try_from(devices.len()).unwrap_or(u32::MAX),
        Ordering::Relaxed,
    );
    for ((index, record), (uuid, config)) in DeviceIndex::all().zip(&file.devices).zip(devices) {
        let [low, high] = uuid.to_words();
        let [low_word, high_word] = &record.uuid;
        low_word.store(low, Ordering::Relaxed);
        high_word.store(high, Ordering::Relaxed);
        record.config.write(words_of_config(index, config));
        write_pace(record, index, &first_pace(config, now_ns));
    }
    file.header.magic.store(LimitsFile::MAGIC, Ordering::Relaxed);
    file.header.version.store(VERSION, Ordering::Relaxed);
    file.header.size_bytes.store(
        u32::try_from(size_of::<LimitsFile>()).unwrap_or(0),
        Ordering::Relaxed,
    );
    file.checksum.store(
        checksum(LimitsFile::MAGIC, &header_words(file)),
        Ordering::Release,
    );
}

/// The pace of a container that is alone on its GPU.
fn first_pace(config: &DeviceConfig, now_ns: u64) -> Pace {
    Pace {
        epoch_ns: now_ns,
        credit_ns: 0,
        rate_permille: config.cap_permille,
        scale_permille: 1000,
        window_ns: 2_000_000,
        metered: config.cap_permille < 1000,
        contended: false,
        baton: false,
    }
}

/// What never changes in a `limits` file, for its checksum.
fn header_words(file: &LimitsFile) -> [u64; 4 + NAME_BYTES / 8 + 2 * MAX_DEVICES] {
    let mut words = [0; 4 + NAME_BYTES / 8 + 2 * MAX_DEVICES];
    let numbers = [
        &file.header.version,
        &file.header.size_bytes,
        &file.device_count,
        &file.name_bytes,
    ];
    let numbers = numbers
        .into_iter()
        .map(|word| u64::from(word.load(Ordering::Relaxed)));
    let texts = file
        .name
        .iter()
        .chain(file.devices.iter().flat_map(|device| &device.uuid));
    let texts = texts.map(|word| word.load(Ordering::Relaxed));
    for (word, value) in words.iter_mut().zip(numbers.chain(texts)) {
        *word = value;
    }
    words
}

fn uuid_of(device: &DeviceLimits) -> GpuUuid {
    let [low, high] = &device.uuid;
    GpuUuid::from_words([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
}

/// The word beside a memory limit that tells it from a damaged one at the cost of a subtraction.
#[inline]
fn limit_check(limit: u64) -> u64 {
    !limit ^ LimitsFile::MAGIC
}

fn words_of_config(device: DeviceIndex, config: &DeviceConfig) -> [u64; CONFIG_WORDS] {
    let mut words = [
        config.memory_limit_bytes,
        limit_check(config.memory_limit_bytes),
        u64::from(config.guarantee_permille) | u64::from(config.cap_permille) << 32,
        u64::from(config.weight) | (config.policy as u64) << 32,
        u64::from(config.priority),
        config.burst_ns,
        config.hold_max_ns,
        config.debt_max_ns,
        0,
    ];
    seal(device, &mut words);
    words
}

fn config_of_words(device: DeviceIndex, words: [u64; CONFIG_WORDS]) -> Option<DeviceConfig> {
    let [
        memory_limit_bytes,
        check,
        shares,
        competition,
        priority,
        burst_ns,
        hold_max_ns,
        debt_max_ns,
        _,
    ] = words;
    let config = DeviceConfig {
        memory_limit_bytes,
        guarantee_permille: low_half(shares),
        cap_permille: low_half(shares >> 32),
        weight: low_half(competition),
        policy: *Policy::ALL.get(usize::try_from(competition >> 32).ok()?)?,
        priority: u32::try_from(priority).ok()?,
        burst_ns,
        hold_max_ns,
        debt_max_ns,
    };
    (is_sealed(device, &words) && check == limit_check(memory_limit_bytes) && config.is_valid())
        .then_some(config)
}

fn write_pace(record: &DeviceLimits, device: DeviceIndex, pace: &Pace) {
    let flags = u64::from(pace.metered) | u64::from(pace.contended) << 1 | u64::from(pace.baton) << 2;
    let mut words = [
        pace.epoch_ns,
        u64::from_ne_bytes(pace.credit_ns.to_ne_bytes()),
        u64::from(pace.rate_permille) | u64::from(pace.scale_permille) << 32,
        pace.window_ns,
        flags,
        0,
    ];
    seal(device, &mut words);
    record.pace.write(words);
    record.metered.store(
        if pace.metered { METERED } else { NOT_METERED },
        Ordering::Release,
    );
}

/// Any value but [`NOT_METERED`].
const METERED: u32 = 1;

fn pace_of_words(device: DeviceIndex, words: [u64; PACE_WORDS]) -> Option<Pace> {
    let [epoch_ns, credit, rates, window_ns, flags, _] = words;
    let pace = Pace {
        epoch_ns,
        credit_ns: i64::from_ne_bytes(credit.to_ne_bytes()),
        rate_permille: low_half(rates),
        scale_permille: low_half(rates >> 32),
        window_ns,
        metered: flags & 1 != 0,
        contended: flags & 2 != 0,
        baton: flags & 4 != 0,
    };
    (is_sealed(device, &words) && flags < 8 && is_valid_pace(&pace)).then_some(pace)
}

fn is_valid_pace(pace: &Pace) -> bool {
    pace.rate_permille <= 1000
        && (1..=10_000).contains(&pace.scale_permille)
        && pace.window_ns <= 10_000_000_000
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is asked for"
)]
fn low_half(word: u64) -> u32 {
    word as u32
}

/// Puts the checksum of the others into the last word.
fn seal(device: DeviceIndex, words: &mut [u64]) {
    if let Some((last, others)) = words.split_last_mut() {
        *last = checksum(device.get() as u64, others);
    }
}

fn is_sealed(device: DeviceIndex, words: &[u64]) -> bool {
    words
        .split_last()
        .is_some_and(|(last, others)| *last == checksum(device.get() as u64, others))
}
