//! Utilisation: of devices and of processes, in integer percent per sample period (1/6 s to 1 s).

use crate::answer::{get, put, put_all, version};
use crate::processes::Caller;
use crate::state::{Device, device};
use std::collections::BTreeMap;
use vcuda_driver_api::prelude::*;
use vcuda_machine::Sample;

exports! {
    nvmlDeviceGetUtilizationRates => rates;
    nvmlDeviceGetEncoderUtilization | nvmlDeviceGetDecoderUtilization => idle_engine;
    nvmlDeviceGetJpgUtilization | nvmlDeviceGetOfaUtilization => idle_engine;
    nvmlDeviceGetProcessUtilization => of_processes;
    nvmlDeviceGetProcessesUtilizationInfo => of_processes_info;
    nvmlDeviceGetSamples => of_device;
}

/// Kernels compute nothing, so the memory utilisation is 0.
pub(crate) fn rates(handle: nvmlDevice_t, target: *mut nvmlUtilization_t) -> nvmlReturn_t {
    let device = device(handle)?;
    put(target, nvmlUtilization_t { gpu: device.opened.machine.utilization(device.index), memory: 0 })
}

/// Encoder, decoder, JPEG and optical flow engines: never used.
fn idle_engine(handle: nvmlDevice_t, percent: *mut c_uint, period_us: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    if period_us.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(percent, 0)?;
    put(period_us, c_uint::try_from(device.opened.machine.config().sample_ns / 1000).unwrap_or(c_uint::MAX))
}

/// Newest sample after `seen_us` of each process reported to the caller, by PID. Error: `NVML_ERROR_NOT_FOUND` if there
/// is no new sample.
fn newest(device: Device, seen_us: u64) -> Result<Vec<(c_uint, Sample)>, NvmlError> {
    let samples = device.opened.machine.samples(device.index, device.opened.seen_ns(seen_us));
    let caller = Caller::of(device.opened);
    let by_process: BTreeMap<c_uint, Sample> =
        samples.into_iter().filter_map(|sample| Some((caller.number(sample.seen)?, sample))).collect();
    if by_process.is_empty() { Err(NvmlError::NOT_FOUND) } else { Ok(by_process.into_iter().collect()) }
}

/// Additional entries reported to a caller that asks for the required size, as processes may be added meanwhile.
const HEADROOM: c_uint = 64;

/// Writes samples; without an array, `NVML_ERROR_INSUFFICIENT_SIZE` and the required size.
fn put_samples<T: Copy>(array: *mut T, count: *mut c_uint, samples: &[T]) -> nvmlReturn_t {
    if array.is_null() {
        put(count, c_uint::try_from(samples.len()).unwrap_or(0).saturating_add(HEADROOM))?;
        return Err(NvmlError::INSUFFICIENT_SIZE);
    }
    put_all(array, count, samples)
}

/// `nvmlDeviceGetProcessUtilization`: one sample for each process with utilisation.
pub(crate) fn of_processes(
    handle: nvmlDevice_t,
    array: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    seen_us: u64,
) -> nvmlReturn_t {
    let device = device(handle)?;
    get(count)?;
    let entry = |(pid, sample): &(c_uint, Sample)| nvmlProcessUtilizationSample_t {
        pid: *pid,
        timeStamp: device.opened.timestamp_us(sample.timestamp_ns),
        smUtil: sample.percent,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    put_samples(array, count, &newest(device, seen_us)?.iter().map(entry).collect::<Vec<_>>())
}

/// `nvmlDeviceGetProcessesUtilizationInfo`: the same with more engines.
fn of_processes_info(handle: nvmlDevice_t, list: *mut nvmlProcessesUtilizationInfo_t) -> nvmlReturn_t {
    let device = device(handle)?;
    version(list, nvmlProcessesUtilizationInfo_v1)?;
    let mut header = get(list)?;
    let entry = |(pid, sample): &(c_uint, Sample)| nvmlProcessUtilizationInfo_v1_t {
        timeStamp: device.opened.timestamp_us(sample.timestamp_ns),
        pid: *pid,
        smUtil: sample.percent,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
        jpgUtil: 0,
        ofaUtil: 0,
    };
    let entries: Vec<_> = newest(device, header.lastSeenTimeStamp)?.iter().map(entry).collect();
    let outcome = put_samples(header.procUtilArray, &raw mut header.processSamplesCount, &entries);
    put(list, header)?;
    outcome
}

/// `nvmlDeviceGetSamples` for the GPU's utilisation: the sum over processes, as only one is resident at a time. The oldest
/// samples come first, as many as fit.
fn of_device(
    handle: nvmlDevice_t,
    kind: nvmlSamplingType_t,
    seen_us: u64,
    value_type: *mut nvmlValueType_t,
    count: *mut c_uint,
    array: *mut nvmlSample_t,
) -> nvmlReturn_t {
    let device = device(handle)?;
    if kind != nvmlSamplingType_t::GPU_UTILIZATION_SAMPLES {
        return Err(NvmlError::NOT_SUPPORTED);
    }
    let room = usize::try_from(get(count)?).unwrap_or(usize::MAX);
    if room == 0 && !array.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(value_type, nvmlValueType_t::UNSIGNED_INT)?;
    let mut by_period: BTreeMap<u64, u32> = BTreeMap::new();
    for sample in device.opened.machine.samples(device.index, device.opened.seen_ns(seen_us)) {
        *by_period.entry(sample.timestamp_ns).or_default() += sample.percent;
    }
    if by_period.is_empty() {
        return Err(NvmlError::NOT_FOUND);
    }
    if array.is_null() {
        return put(count, c_uint::try_from(by_period.len()).unwrap_or(0).saturating_add(HEADROOM));
    }
    let entry = |(end_ns, percent): (&u64, &u32)| nvmlSample_t {
        timeStamp: device.opened.timestamp_us(*end_ns),
        sampleValue: nvmlValue_t { uiVal: (*percent).min(100) },
    };
    let entries: Vec<_> = by_period.iter().take(room).map(entry).collect();
    put_all(array, count, &entries)
}
