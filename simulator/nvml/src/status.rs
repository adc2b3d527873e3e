//! Sensors, clocks, power, PCIe link, error counters and modes: constants of a healthy GPU, some of which follow its
//! utilisation. Figures are from the machine's configuration, else from docs/hardware.md, "constants of NVML".

use crate::answer::{get, put, version};
use crate::state::{Device, constant, device};
use vcuda_driver_api::prelude::*;

exports! {
    nvmlDeviceGetMemoryBusWidth => |handle, target| put(target, device(handle)?.config.memory_bus_bits);
    nvmlDeviceGetTemperature => temperature;
    nvmlDeviceGetTemperatureV => temperature_structure;
    nvmlDeviceGetTemperatureThreshold => temperature_threshold;
    nvmlDeviceGetFanSpeed => |handle, target| constant(handle, target, FAN_PERCENT);
    nvmlDeviceGetFanSpeed_v2 => |handle, fan, target| constant_if(fan == 0, handle, target, FAN_PERCENT);
    nvmlDeviceGetNumFans => |handle, target| constant(handle, target, 1);
    nvmlDeviceGetPerformanceState | nvmlDeviceGetPowerState => |handle, target|
        constant(handle, target, nvmlPstates_t::P0);
    nvmlDeviceGetPowerUsage => power_usage;
    nvmlDeviceGetPowerManagementMode => |handle, target| constant(handle, target, nvmlEnableState_t::ENABLED);
    // The enforced, the configured and the default limit (mW) are the same.
    nvmlDeviceGetPowerManagementLimit | nvmlDeviceGetPowerManagementDefaultLimit
    | nvmlDeviceGetEnforcedPowerLimit =>
        |handle, target| put(target, device(handle)?.config.power_limit_mw);
    nvmlDeviceGetPowerManagementLimitConstraints => power_limit_range;
    nvmlDeviceGetClock => clock_by_id;
    nvmlDeviceGetClockInfo | nvmlDeviceGetMaxClockInfo => clock;
    nvmlDeviceGetApplicationsClock | nvmlDeviceGetDefaultApplicationsClock
    | nvmlDeviceGetMaxCustomerBoostClock => clock;
    nvmlDeviceGetCurrentClocksThrottleReasons | nvmlDeviceGetCurrentClocksEventReasons => clock_reasons;
    nvmlDeviceGetSupportedClocksThrottleReasons | nvmlDeviceGetSupportedClocksEventReasons => |handle, target|
        constant(handle, target, nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonHwThermalSlowdown);
    nvmlDeviceGetCurrPcieLinkGeneration | nvmlDeviceGetMaxPcieLinkGeneration
    | nvmlDeviceGetGpuMaxPcieLinkGeneration =>
        |handle, target| constant(handle, target, PCIE.0);
    nvmlDeviceGetCurrPcieLinkWidth | nvmlDeviceGetMaxPcieLinkWidth => |handle, target|
        constant(handle, target, PCIE.1);
    nvmlDeviceGetPcieSpeed => |handle, target| constant(handle, target, PCIE_SPEED);
    // Copies are not measured on the link.
    nvmlDeviceGetPcieThroughput => |handle, counter, target|
        constant_if(counter <= nvmlPcieUtilCounter_t::RX_BYTES, handle, target, 0);
    nvmlDeviceGetPcieReplayCounter | nvmlDeviceGetMaxMigDeviceCount | nvmlDeviceIsMigDeviceHandle => none;
    nvmlDeviceGetEccMode => ecc_mode;
    nvmlDeviceGetDefaultEccMode => |handle, target| constant(handle, target, nvmlEnableState_t::ENABLED);
    nvmlDeviceGetTotalEccErrors => |handle, kind, counter, target|
        constant_if(is_ecc_counter(kind, counter), handle, target, 0);
    nvmlDeviceGetMemoryErrorCounter => |handle, kind, counter, place, target|
        constant_if(is_ecc_counter(kind, counter) && place <= nvmlMemoryLocation_t::SRAM, handle, target, 0);
    nvmlDeviceGetRemappedRows => remapped_rows;
    nvmlDeviceGetComputeMode => |handle, target| constant(handle, target, nvmlComputeMode_t::DEFAULT);
    nvmlDeviceGetPersistenceMode => |handle, target|
        put(target, switch(device(handle)?.opened.machine.config().persistence));
    // Display: none attached, none active.
    nvmlDeviceGetDisplayMode | nvmlDeviceGetDisplayActive => |handle, target|
        constant(handle, target, nvmlEnableState_t::DISABLED);
    nvmlDeviceGetVirtualizationMode => |handle, target|
        constant(handle, target, nvmlGpuVirtualizationMode_t::NONE);
    nvmlDeviceGetMigMode => mig_mode;
    nvmlDeviceGetMigDeviceHandleByIndex => mig_device;
    nvmlDeviceGetFieldValues => field_values;
}

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

fn temperature(handle: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, target: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    if sensor != nvmlTemperatureSensors_t::GPU {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(target, celsius(device))
}

fn celsius(device: Device) -> c_uint {
    IDLE_CELSIUS + LOAD_CELSIUS * utilization(device) / 100
}

fn temperature_structure(handle: nvmlDevice_t, target: *mut nvmlTemperature_t) -> nvmlReturn_t {
    let device = device(handle)?;
    version(target, nvmlTemperature_v1)?;
    let mut temperature = get(target)?;
    if temperature.sensorType != nvmlTemperatureSensors_t::GPU {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    temperature.temperature = c_int::try_from(celsius(device)).unwrap_or(c_int::MAX);
    put(target, temperature)
}

fn temperature_threshold(
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

/// Power draw (mW).
fn power_usage(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    let limit = device.config.power_limit_mw;
    let percent = IDLE_POWER_PERCENT + (100 - IDLE_POWER_PERCENT) * utilization(device) / 100;
    put(target, limit / 100 * percent)
}

/// Smallest and largest power limit (mW).
fn power_limit_range(handle: nvmlDevice_t, least: *mut c_uint, most: *mut c_uint) -> nvmlReturn_t {
    let limit = device(handle)?.config.power_limit_mw;
    if most.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(least, limit / 100 * IDLE_POWER_PERCENT)?;
    put(most, limit)
}

/// Clock (MHz); a simulated GPU always runs at its full clocks.
fn clock(handle: nvmlDevice_t, kind: nvmlClockType_t, target: *mut c_uint) -> nvmlReturn_t {
    let config = device(handle)?.config;
    let mhz = match kind {
        nvmlClockType_t::GRAPHICS | nvmlClockType_t::SM | nvmlClockType_t::VIDEO => config.clock_mhz,
        nvmlClockType_t::MEM => config.memory_clock_mhz,
        _ => return Err(NvmlError::INVALID_ARGUMENT),
    };
    put(target, mhz)
}

/// Clock (MHz), the same for every kind of figure.
fn clock_by_id(
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
fn clock_reasons(handle: nvmlDevice_t, target: *mut u64) -> nvmlReturn_t {
    let device = device(handle)?;
    let is_hot = device.opened.faults()?.hot.contains(&device.config.uuid);
    let reasons = [
        (utilization(device) == 0, nvmlClocksEventReasonGpuIdle),
        (is_hot, nvmlClocksEventReasonHwThermalSlowdown),
    ];
    let held = reasons.into_iter().filter(|(holds, _)| *holds);
    put(target, held.fold(0, |all, (_, reason)| all | reason))
}

pub(crate) fn none(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    constant(handle, target, 0)
}

fn ecc_mode(
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

fn is_ecc_counter(kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t) -> bool {
    kind <= nvmlMemoryErrorType_t::UNCORRECTED && counter <= nvmlEccCounterType_t::AGGREGATE_ECC
}

pub(crate) fn switch(is_on: bool) -> nvmlEnableState_t {
    if is_on { nvmlEnableState_t::ENABLED } else { nvmlEnableState_t::DISABLED }
}

/// Writes a constant, unless an argument is invalid.
fn constant_if<T>(is_valid: bool, handle: nvmlDevice_t, target: *mut T, value: T) -> nvmlReturn_t {
    device(handle)?;
    if is_valid { put(target, value) } else { Err(NvmlError::INVALID_ARGUMENT) }
}

/// Remapped rows: none.
fn remapped_rows(
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

/// MIG mode: off unless `faults.toml` says otherwise. GPUs older than compute capability 8.0 do not support it.
fn mig_mode(handle: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) -> nvmlReturn_t {
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
fn mig_device(handle: nvmlDevice_t, _index: c_uint, target: *mut nvmlDevice_t) -> nvmlReturn_t {
    device(handle)?;
    Err(if target.is_null() { NvmlError::INVALID_ARGUMENT } else { NvmlError::NOT_FOUND })
}

/// Field values: each has its own error code, as none is simulated.
fn field_values(handle: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t) -> nvmlReturn_t {
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
