//! Sensors, clocks, power, PCIe link, error counters and modes: constants of a healthy GPU, some of which follow its
//! utilisation. Figures are from the machine's configuration, else from docs/hardware.md, "constants of NVML".

use crate::answer::{get, put, version};
use crate::state::{Device, device};
use std::ffi::{c_int, c_uint};
use vcuda_driver_api::nvml::{
    NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE, nvmlClockId_t, nvmlClockType_t,
    nvmlClocksEventReasonGpuIdle, nvmlClocksEventReasonHwThermalSlowdown, nvmlComputeMode_t, nvmlDevice_t,
    nvmlEccCounterType_t, nvmlEnableState_t, nvmlFieldValue_t, nvmlGpuVirtualizationMode_t,
    nvmlMemoryErrorType_t, nvmlMemoryLocation_t, nvmlPcieUtilCounter_t, nvmlPstates_t, nvmlTemperature_t,
    nvmlTemperature_v1, nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t,
};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};

/// Temperature of an idle GPU (degrees Celsius).
const IDLE_CELSIUS: c_uint = 35;
/// Additional temperature at full load (degrees Celsius).
const LOAD_CELSIUS: c_uint = 30;
/// Power draw of an idle GPU (percent of the power limit).
const IDLE_POWER_PERCENT: c_uint = 10;
/// Speed of the GPU's only fan (percent).
const FAN_PERCENT: c_uint = 30;
/// PCIe generation and lanes.
const PCIE: (c_uint, c_uint) = (5, 16);
/// Speed of a lane of that generation (Mbit/s).
const PCIE_SPEED: c_uint = 32_000;

fn utilization(device: Device) -> c_uint {
    device.opened.machine.utilization(device.index)
}

/// Answers a number that is the same for all devices.
fn constant<T>(handle: nvmlDevice_t, target: *mut T, value: T) -> nvmlReturn_t {
    device(handle)?;
    put(target, value)
}

pub(crate) fn temperature(
    handle: nvmlDevice_t,
    sensor: nvmlTemperatureSensors_t,
    target: *mut c_uint,
) -> nvmlReturn_t {
    let device = device(handle)?;
    if sensor != nvmlTemperatureSensors_t::GPU {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(target, celsius(device))
}

fn celsius(device: Device) -> c_uint {
    IDLE_CELSIUS + LOAD_CELSIUS * utilization(device) / 100
}

pub(crate) fn temperature_structure(handle: nvmlDevice_t, target: *mut nvmlTemperature_t) -> nvmlReturn_t {
    let device = device(handle)?;
    version(target, nvmlTemperature_v1)?;
    let mut temperature = get(target)?;
    if temperature.sensorType != nvmlTemperatureSensors_t::GPU {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    temperature.temperature = c_int::try_from(celsius(device)).unwrap_or(c_int::MAX);
    put(target, temperature)
}

pub(crate) fn temperature_threshold(
    handle: nvmlDevice_t,
    threshold: nvmlTemperatureThresholds_t,
    target: *mut c_uint,
) -> nvmlReturn_t {
    let celsius = match threshold {
        nvmlTemperatureThresholds_t::SHUTDOWN => 95,
        nvmlTemperatureThresholds_t::SLOWDOWN => 90,
        nvmlTemperatureThresholds_t::MEM_MAX => 95,
        nvmlTemperatureThresholds_t::GPU_MAX => 85,
        _ => {
            device(handle)?;
            return Err(NvmlError::NOT_SUPPORTED);
        }
    };
    constant(handle, target, celsius)
}

pub(crate) fn fan_speed(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, FAN_PERCENT)
}

pub(crate) fn fan_speed_v2(handle: nvmlDevice_t, fan: c_uint, target: *mut c_uint) -> nvmlReturn_t {
    device(handle)?;
    if fan != 0 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(target, FAN_PERCENT)
}

pub(crate) fn fan_count(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, 1)
}

pub(crate) fn performance_state(handle: nvmlDevice_t, target: *mut nvmlPstates_t) -> nvmlReturn_t {
    constant(handle, target, nvmlPstates_t::P0)
}

/// Power draw (mW).
pub(crate) fn power_usage(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    let limit = device.config.power_limit_mw;
    let percent = IDLE_POWER_PERCENT + (100 - IDLE_POWER_PERCENT) * utilization(device) / 100;
    put(target, limit / 100 * percent)
}

/// Power limit (mW): the enforced, the configured and the default one are the same.
pub(crate) fn power_limit(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    put(target, device(handle)?.config.power_limit_mw)
}

/// Smallest and largest power limit (mW).
pub(crate) fn power_limit_range(handle: nvmlDevice_t, least: *mut c_uint, most: *mut c_uint) -> nvmlReturn_t {
    let limit = device(handle)?.config.power_limit_mw;
    if most.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(least, limit / 100 * IDLE_POWER_PERCENT)?;
    put(most, limit)
}

pub(crate) fn power_management(handle: nvmlDevice_t, target: *mut nvmlEnableState_t) -> nvmlReturn_t {
    constant(handle, target, nvmlEnableState_t::ENABLED)
}

/// Clock (MHz); a simulated GPU always runs at its full clocks.
pub(crate) fn clock(handle: nvmlDevice_t, kind: nvmlClockType_t, target: *mut c_uint) -> nvmlReturn_t {
    let config = device(handle)?.config;
    let mhz = match kind {
        nvmlClockType_t::GRAPHICS | nvmlClockType_t::SM | nvmlClockType_t::VIDEO => config.clock_mhz,
        nvmlClockType_t::MEM => config.memory_clock_mhz,
        _ => return Err(NvmlError::INVALID_ARGUMENT),
    };
    put(target, mhz)
}

/// Clock (MHz), the same for every kind of figure.
pub(crate) fn clock_by_id(
    handle: nvmlDevice_t,
    kind: nvmlClockType_t,
    id: nvmlClockId_t,
    target: *mut c_uint,
) -> nvmlReturn_t {
    if id > nvmlClockId_t::CUSTOMER_BOOST_MAX {
        device(handle)?;
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    clock(handle, kind, target)
}

/// Reasons for reduced clocks: the GPU is idle, or too hot by `faults.toml`.
pub(crate) fn clock_reasons(handle: nvmlDevice_t, target: *mut u64) -> nvmlReturn_t {
    let device = device(handle)?;
    let is_hot = device.opened.faults()?.hot.contains(&device.config.uuid);
    let reasons = [
        (utilization(device) == 0, nvmlClocksEventReasonGpuIdle),
        (is_hot, nvmlClocksEventReasonHwThermalSlowdown),
    ];
    let held = reasons.into_iter().filter(|(holds, _)| *holds);
    put(target, held.fold(0, |all, (_, reason)| all | reason))
}

pub(crate) fn supported_clock_reasons(handle: nvmlDevice_t, target: *mut u64) -> nvmlReturn_t {
    let all = nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonHwThermalSlowdown;
    constant(handle, target, all)
}

pub(crate) fn pcie_generation(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, PCIE.0)
}

pub(crate) fn pcie_width(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, PCIE.1)
}

pub(crate) fn pcie_speed(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, PCIE_SPEED)
}

/// PCIe throughput (KB/s): 0, as copies are not measured on the link.
pub(crate) fn pcie_throughput(
    handle: nvmlDevice_t,
    counter: nvmlPcieUtilCounter_t,
    target: *mut c_uint,
) -> nvmlReturn_t {
    if counter > nvmlPcieUtilCounter_t::RX_BYTES {
        device(handle)?;
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    constant(handle, target, 0)
}

pub(crate) fn none(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, 0)
}

pub(crate) fn memory_bus_width(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    put(target, device(handle)?.config.memory_bus_bits)
}

pub(crate) fn ecc_mode(
    handle: nvmlDevice_t,
    current: *mut nvmlEnableState_t,
    pending: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    device(handle)?;
    if pending.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(current, nvmlEnableState_t::ENABLED)?;
    put(pending, nvmlEnableState_t::ENABLED)
}

pub(crate) fn ecc_default(handle: nvmlDevice_t, target: *mut nvmlEnableState_t) -> nvmlReturn_t {
    constant(handle, target, nvmlEnableState_t::ENABLED)
}

/// Total of memory errors: 0.
pub(crate) fn ecc_total(
    handle: nvmlDevice_t,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    target: *mut u64,
) -> nvmlReturn_t {
    device(handle)?;
    if kind > nvmlMemoryErrorType_t::UNCORRECTED || counter > nvmlEccCounterType_t::AGGREGATE_ECC {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(target, 0)
}

/// Memory errors by location: 0.
pub(crate) fn ecc_by_location(
    handle: nvmlDevice_t,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    location: nvmlMemoryLocation_t,
    target: *mut u64,
) -> nvmlReturn_t {
    if location > nvmlMemoryLocation_t::SRAM {
        device(handle)?;
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    ecc_total(handle, kind, counter, target)
}

/// Remapped rows: none.
pub(crate) fn remapped_rows(
    handle: nvmlDevice_t,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    is_pending: *mut c_uint,
    has_failed: *mut c_uint,
) -> nvmlReturn_t {
    device(handle)?;
    let targets = [corrected, uncorrected, is_pending, has_failed];
    if targets.iter().any(|target| target.is_null()) {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    targets.into_iter().try_for_each(|target| put(target, 0))
}

pub(crate) fn compute_mode(handle: nvmlDevice_t, target: *mut nvmlComputeMode_t) -> nvmlReturn_t {
    constant(handle, target, nvmlComputeMode_t::DEFAULT)
}

/// Persistence mode: on unless `machine.toml` says `persistence = false`.
pub(crate) fn persistence(handle: nvmlDevice_t, target: *mut nvmlEnableState_t) -> nvmlReturn_t {
    let is_on = device(handle)?.opened.machine.config().persistence;
    put(target, if is_on { nvmlEnableState_t::ENABLED } else { nvmlEnableState_t::DISABLED })
}

/// Display: none attached, none active.
pub(crate) fn display(handle: nvmlDevice_t, target: *mut nvmlEnableState_t) -> nvmlReturn_t {
    constant(handle, target, nvmlEnableState_t::DISABLED)
}

pub(crate) fn virtualization(handle: nvmlDevice_t, target: *mut nvmlGpuVirtualizationMode_t) -> nvmlReturn_t {
    constant(handle, target, nvmlGpuVirtualizationMode_t::NONE)
}

/// MIG mode: off unless `faults.toml` says otherwise. GPUs older than compute capability 8.0 do not support it.
pub(crate) fn mig_mode(handle: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    if device.config.capability() < (8, 0) {
        return Err(NvmlError::NOT_SUPPORTED);
    }
    if pending.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    let mode = if device.opened.faults()?.mig.contains(&device.config.uuid) {
        NVML_DEVICE_MIG_ENABLE
    } else {
        NVML_DEVICE_MIG_DISABLE
    };
    put(current, mode)?;
    put(pending, mode)
}

/// MIG device at an index: there is none.
pub(crate) fn mig_device(handle: nvmlDevice_t, _index: c_uint, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    device(handle)?;
    Err(if target.is_null() { NvmlError::INVALID_ARGUMENT } else { NvmlError::NOT_FOUND })
}

/// Field values: each has its own error code, as none is simulated.
pub(crate) fn field_values(
    handle: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    device(handle)?;
    let count = usize::try_from(count).map_err(|_| NvmlError::INVALID_ARGUMENT)?;
    for index in 0..count {
        if values.is_null() {
            return Err(NvmlError::INVALID_ARGUMENT);
        }
        // SAFETY: the caller says that the array has `count` elements.
        let value = unsafe { values.add(index) };
        // SAFETY: as above; the projection reads nothing, and the code's place is written as a whole.
        let code = unsafe { &raw mut (*value).nvmlReturn };
        put(code, Err(NvmlError::NOT_SUPPORTED))?;
    }
    Ok(())
}
