//! Configuration and pace as words of the layout, and a new `limits` filled with them.

use super::{NOT_METERED, SUSPENDABLE};
use crate::layout::{CONFIG_WORDS, DeviceLimits, LimitsFile, NAME_BYTES, PACE_WORDS};
use crate::map::Mapped;
use crate::primitive::Ordering;
use crate::seqlock::checksum;
use crate::{DeviceIndex, GpuUuid, MAX_DEVICES};
use vcuda_limiter::controller::WINDOW_NS;
use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::{DeviceConfig, Policy, Priority};

/// Writes a whole new `limits` into zeroed memory that no process reads yet.
pub(crate) fn fill(file: &LimitsFile, name: &str, devices: &[(GpuUuid, DeviceConfig)], now_ns: u64) {
    let mut bytes = [0; NAME_BYTES];
    for (byte, from) in bytes.iter_mut().zip(name.bytes()) {
        *byte = from;
    }
    for (word, chunk) in file.name.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    file.name_bytes.store(u32::try_from(name.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    file.device_count.store(u32::try_from(devices.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    for ((index, record), (uuid, config)) in DeviceIndex::all().zip(&file.devices).zip(devices) {
        let [low, high] = uuid.to_words();
        let [low_word, high_word] = &record.uuid;
        low_word.store(low, Ordering::Relaxed);
        high_word.store(high, Ordering::Relaxed);
        record.config.write(words_of_config(index, config));
        let pace = first_pace(config, now_ns);
        record.pace.write(words_of_pace(index, &pace));
        record.metered.store(metered_word(&pace), Ordering::Release);
    }
    file.header.fill(LimitsFile::MAGIC, size_of::<LimitsFile>());
    file.checksum.store(header_sum(file), Ordering::Release);
}

/// Declares in a new `limits` that the tenant may be suspended.
pub(crate) fn mark_suspendable(file: &LimitsFile) {
    file.suspendable.store(SUSPENDABLE, Ordering::Release);
}

/// Declares in a new `limits` how long an allocation waits for room (ms); `None`: as long as is usual.
pub(crate) fn set_memory_wait(file: &LimitsFile, wait_ms: Option<u32>) {
    let word = wait_ms.map_or(0, |wait_ms| u64::from(wait_ms) + 1);
    file.memory_wait.store(word, Ordering::Release);
}

/// The pace of a tenant that is alone on its GPU.
pub(super) fn first_pace(config: &DeviceConfig, now_ns: u64) -> Pace {
    Pace {
        epoch_ns: now_ns,
        credit_ns: 0,
        rate_permille: config.cap_permille,
        scale_permille: 1000,
        window_ns: WINDOW_NS,
        metered: config.cap_permille < 1000,
        contended: false,
    }
}

/// The checksum of the words of a `limits` file that never change.
pub(super) fn header_sum(file: &LimitsFile) -> u64 {
    checksum(LimitsFile::MAGIC, &header_words(file))
}

/// Whether each value of the first `devices` agrees with its checksum.
pub(super) fn is_sound(file: &LimitsFile, devices: usize) -> bool {
    DeviceIndex::all().zip(&file.devices).take(devices).all(|(device, record)| {
        config_of_words(device, record.config.read()).is_some()
            && pace_of_words(device, record.pace.read()).is_some()
    })
}

fn header_words(file: &LimitsFile) -> [u64; 5 + NAME_BYTES / 8 + 2 * MAX_DEVICES] {
    let mut words = [0; 5 + NAME_BYTES / 8 + 2 * MAX_DEVICES];
    let numbers =
        [&file.header.version, &file.header.compatible_version, &file.device_count, &file.name_bytes];
    let numbers = numbers
        .into_iter()
        .map(|word| u64::from(word.load(Ordering::Relaxed)))
        .chain([file.header.size_bytes.load(Ordering::Relaxed)]);
    let texts = file.name.iter().chain(file.devices.iter().flat_map(|device| &device.uuid));
    let texts = texts.map(|word| word.load(Ordering::Relaxed));
    for (word, value) in words.iter_mut().zip(numbers.chain(texts)) {
        *word = value;
    }
    words
}

pub(super) fn uuid_of(device: &DeviceLimits) -> GpuUuid {
    let [low, high] = &device.uuid;
    GpuUuid::from_words([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
}

/// The word beside a memory limit that reveals a damaged limit at the cost of a subtraction.
#[inline]
pub(super) fn limit_check(limit: u64) -> u64 {
    !limit ^ LimitsFile::MAGIC
}

pub(super) fn words_of_config(device: DeviceIndex, config: &DeviceConfig) -> [u64; CONFIG_WORDS] {
    let mut words = [
        config.memory_limit_bytes,
        limit_check(config.memory_limit_bytes),
        u64::from(config.guarantee_permille) | u64::from(config.cap_permille) << 32,
        u64::from(config.weight) | (config.policy as u64) << 32,
        word_of_priority(config.priority),
        config.burst_ns,
        config.hold_max_ns,
        config.debt_max_ns,
        0,
    ];
    seal(device, &mut words);
    words
}

pub(super) fn config_of_words(device: DeviceIndex, words: [u64; CONFIG_WORDS]) -> Option<DeviceConfig> {
    let [memory_limit_bytes, check, shares, competition, priority, burst_ns, hold_max_ns, debt_max_ns, _] =
        words;
    let config = DeviceConfig {
        memory_limit_bytes,
        guarantee_permille: low_half(shares),
        cap_permille: low_half(shares >> 32),
        weight: low_half(competition),
        policy: *Policy::ALL.get(usize::try_from(competition >> 32).ok()?)?,
        priority: priority_of_word(priority)?,
        burst_ns,
        hold_max_ns,
        debt_max_ns,
    };
    (is_sealed(device, &words) && check == limit_check(memory_limit_bytes) && config.is_valid())
        .then_some(config)
}

/// The word of a priority in `limits`. A priority that was never set is normal.
fn word_of_priority(priority: Priority) -> u64 {
    match priority {
        Priority::Normal => 0,
        Priority::High => 1,
        Priority::Low => 2,
    }
}

fn priority_of_word(word: u64) -> Option<Priority> {
    Priority::ALL.into_iter().find(|priority| word_of_priority(*priority) == word)
}

/// The value for metered. Any value but [`NOT_METERED`] means the same.
pub(super) const METERED: u32 = 1;

/// Value of the word beside a device's pace.
pub(super) fn metered_word(pace: &Pace) -> u32 {
    if pace.metered { METERED } else { NOT_METERED }
}

pub(super) fn words_of_pace(device: DeviceIndex, pace: &Pace) -> [u64; PACE_WORDS] {
    let flags = u64::from(pace.metered) | u64::from(pace.contended) << 1;
    let mut words = [
        pace.epoch_ns,
        u64::from_ne_bytes(pace.credit_ns.to_ne_bytes()),
        u64::from(pace.rate_permille) | u64::from(pace.scale_permille) << 32,
        pace.window_ns,
        flags,
        0,
    ];
    seal(device, &mut words);
    words
}

pub(super) fn pace_of_words(device: DeviceIndex, words: [u64; PACE_WORDS]) -> Option<Pace> {
    let [epoch_ns, credit, rates, window_ns, flags, _] = words;
    let pace = Pace {
        epoch_ns,
        credit_ns: i64::from_ne_bytes(credit.to_ne_bytes()),
        rate_permille: low_half(rates),
        scale_permille: low_half(rates >> 32),
        window_ns,
        metered: flags & 1 != 0,
        contended: flags & 2 != 0,
    };
    (is_sealed(device, &words) && flags < 8 && is_valid_pace(&pace)).then_some(pace)
}

pub(super) fn is_valid_pace(pace: &Pace) -> bool {
    pace.rate_permille <= 1000
        && (1..=10_000).contains(&pace.scale_permille)
        && pace.window_ns <= 10_000_000_000
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
fn low_half(word: u64) -> u32 {
    word as u32
}

/// Stores the checksum of the other words in the last one.
fn seal(device: DeviceIndex, words: &mut [u64]) {
    if let Some((last, others)) = words.split_last_mut() {
        *last = checksum(device.get() as u64, others);
    }
}

fn is_sealed(device: DeviceIndex, words: &[u64]) -> bool {
    words.split_last().is_some_and(|(last, others)| *last == checksum(device.get() as u64, others))
}
