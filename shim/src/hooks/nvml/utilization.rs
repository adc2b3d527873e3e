//! Utilisation: the part of the GPU's time that the tenant used over the last second.
//!
//! A tenant with a cap has it in its busy map. For another one NVML's samples of its own processes are added up, as the
//! busy map lacks what was launched before a neighbour came; without samples, the busy map tells. The share of memory
//! traffic is known from these samples alone.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::busy;
use vcuda_region::clock;

use super::Part;
use super::array::{get_all, is_usable, put_all};
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};

/// Time over which a rate is taken (ns).
const WINDOW_NS: u64 = 1_000_000_000;

const NO_SAMPLE: nvmlProcessUtilizationSample_t =
    nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };

/// NVML's samples of the tenant's processes, newer than `seen_us` (microseconds since 1970).
///
/// # Errors
/// NVML's error; `NVML_ERROR_NOT_FOUND` if there is no newer sample.
fn own_samples(
    part: &Part,
    device: nvmlDevice_t,
    seen_us: u64,
) -> Result<Vec<nvmlProcessUtilizationSample_t>, NvmlError> {
    let mut samples = get_all(NO_SAMPLE, |count, samples| {
        // SAFETY: room for as many samples as it says.
        unsafe { real::nvmlDeviceGetProcessUtilization(device, samples, count, seen_us) }
    })?;
    let own = part.processes();
    samples.retain(|sample| own.iter().any(|process| process.pid == sample.pid));
    if samples.is_empty() {
        return Err(NvmlError::NOT_FOUND);
    }
    Ok(samples)
}

/// Use of the GPU by the tenant, and of its memory's bandwidth (percent).
///
/// # Errors
/// NVML's error, if there is no other source.
fn percent(part: &Part, device: nvmlDevice_t) -> Result<nvmlUtilization_t, NvmlError> {
    let grant = part.grant.filter(|(region, index)| region.limits.is_metered(*index));
    let is_capped = grant.is_some_and(|(region, index)| {
        region.limits.config(index).is_ok_and(|config| config.cap_permille < 1000)
    });
    let by_map = grant.map(|(region, index)| {
        let now_ns = clock::now_ns();
        let words = &region.usage.bucket(index).busy;
        busy::busy_permille(words, now_ns.saturating_sub(WINDOW_NS), now_ns).div_ceil(10)
    });
    let (samples, by_map) = match own_samples(part, device, now_us().saturating_sub(WINDOW_NS / 1000)) {
        Ok(samples) => (samples, by_map.filter(|_| is_capped)),
        Err(NvmlError::NOT_FOUND) => (Vec::new(), by_map.filter(|_| is_capped)),
        Err(_) if by_map.is_some() || part.grant.is_none() => (Vec::new(), by_map),
        Err(error) => return Err(error),
    };
    // The newest sample of each process.
    let newest = samples.iter().filter(|sample| {
        let mut others = samples.iter();
        !others.any(|other| other.pid == sample.pid && other.timeStamp > sample.timeStamp)
    });
    let (mut gpu, mut memory) = (0_u32, 0_u32);
    for sample in newest {
        gpu = gpu.saturating_add(sample.smUtil);
        memory = memory.saturating_add(sample.memUtil);
    }
    Ok(nvmlUtilization_t { gpu: by_map.unwrap_or(gpu).min(100), memory: memory.min(100) })
}

/// Current time as NVML's time stamps have it (microseconds since 1970).
fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// `nvmlDeviceGetUtilizationRates`.
pub(in super::super) fn rates(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    rates: *mut nvmlUtilization_t,
) -> Handled<NvmlError> {
    let before = peek(rates.cast_const()).ok_or(Bypass::BadArgument)?;
    let part = Part::of_device(device)?;
    call.real()?;
    let told = percent(&part, device);
    // SAFETY: NVML returned success, so it has just written the structure: the whole GPU's figures.
    unsafe { rates.write(told.unwrap_or(before)) };
    told?;
    Ok(())
}

/// `nvmlDeviceGetProcessUtilization`: NVML's samples of the tenant's processes.
pub(in super::super) fn of_processes(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    seen_us: u64,
) -> Handled<NvmlError> {
    // Without room NVML tells how much to bring, which need not be exact.
    let is_asked = !samples.is_null() && is_usable(count, samples);
    Bypass::BadArgument.when(!is_asked)?;
    let part = Part::of_device(device)?;
    Ok(put_all(count, samples, &own_samples(&part, device, seen_us)?)?)
}

/// `nvmlDeviceGetProcessesUtilizationInfo`: the same with more engines.
pub(in super::super) fn of_processes_info(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    list: *mut nvmlProcessesUtilizationInfo_t,
) -> Handled<NvmlError> {
    const NONE: nvmlProcessUtilizationInfo_v1_t = nvmlProcessUtilizationInfo_v1_t {
        timeStamp: 0,
        pid: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
        jpgUtil: 0,
        ofaUtil: 0,
    };
    let usable = |header: &nvmlProcessesUtilizationInfo_t| {
        header.version == nvmlProcessesUtilizationInfo_v1
            && !header.procUtilArray.is_null()
            && is_usable(&raw const header.processSamplesCount, header.procUtilArray)
    };
    let header = peek(list.cast_const()).filter(usable);
    let mut header = header.ok_or(Bypass::BadArgument)?;
    let part = Part::of_device(device)?;
    let mut samples = get_all(NONE, |count, array| {
        // SAFETY: `get_all` gives a number.
        let room = unsafe { count.read() };
        let mut asked =
            nvmlProcessesUtilizationInfo_t { processSamplesCount: room, procUtilArray: array, ..header };
        // SAFETY: a list of this version, with room for as many entries as it says.
        let status = unsafe { real::nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut asked) };
        // SAFETY: as above.
        unsafe { count.write(asked.processSamplesCount) };
        status
    })?;
    let own = part.processes();
    samples.retain(|sample| own.iter().any(|process| process.pid == sample.pid));
    if samples.is_empty() {
        return Err(NvmlError::NOT_FOUND.into());
    }
    let status = put_all(&raw mut header.processSamplesCount, header.procUtilArray, &samples);
    // SAFETY: readable above, and NVML would write here too.
    unsafe { list.write_unaligned(header) };
    Ok(status?)
}

/// `nvmlDeviceGetSamples`: a current sample for the utilisation of GPU or memory. Samples of power and clocks are the
/// GPU's.
pub(in super::super) fn samples(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    kind: nvmlSamplingType_t,
    seen_us: u64,
    value_type: *mut nvmlValueType_t,
    count: *mut c_uint,
    array: *mut nvmlSample_t,
) -> Handled<NvmlError> {
    let is_memory = kind == nvmlSamplingType_t::MEMORY_UTILIZATION_SAMPLES;
    let is_ours = is_memory || kind == nvmlSamplingType_t::GPU_UTILIZATION_SAMPLES;
    let room = peek(count.cast_const());
    let is_asked = is_ours
        && room != Some(0)
        && !array.is_null()
        && is_usable(count, array)
        && peek(value_type.cast_const()).is_some();
    // Without room NVML tells how much to bring, which need not be exact.
    Bypass::BadArgument.when(!is_asked)?;
    let part = Part::of_device(device)?;
    let told = percent(&part, device)?;
    let sample = nvmlSample_t {
        timeStamp: now_us(),
        sampleValue: nvmlValue_t { uiVal: if is_memory { told.memory } else { told.gpu } },
    };
    if sample.timeStamp <= seen_us {
        return Err(NvmlError::NOT_FOUND.into());
    }
    // SAFETY: readable above, and NVML would write here too.
    unsafe { value_type.write(nvmlValueType_t::UNSIGNED_INT) };
    Ok(put_all(count, array, &[sample])?)
}
