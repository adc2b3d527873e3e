//! The list of typed NVML prototypes, and the macros that hand it on, as for the driver API.
//!
//! All return [`nvmlReturn_t`](crate::nvmlReturn_t), except `nvmlErrorString`, which stands apart.

list! { nvml_list $
    nvmlInitWithFlags: (flags: c_uint);
    nvmlInit, nvmlInit_v2: ();
    nvmlShutdown: ();
    nvmlInternalGetExportTable: (export_table: *mut *const c_void, export_table_id: *const c_void);
    nvmlSystemGetDriverVersion: (version: *mut c_char, length: c_uint);
    nvmlSystemGetNVMLVersion: (version: *mut c_char, length: c_uint);
    nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2: (cuda_driver_version: *mut c_int);
    nvmlSystemGetProcessName: (pid: c_uint, name: *mut c_char, length: c_uint);
    nvmlSystemGetHicVersion: (hwbc_count: *mut c_uint, hwbc_entries: *mut nvmlHwbcEntry_t);
    nvmlSystemGetTopologyGpuSet: (cpu_number: c_uint, count: *mut c_uint, device_array: *mut nvmlDevice_t);
    nvmlUnitGetCount: (unit_count: *mut c_uint);
    nvmlGetExcludedDeviceCount: (device_count: *mut c_uint);
    nvmlDeviceGetCount, nvmlDeviceGetCount_v2: (device_count: *mut c_uint);
    nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2: (index: c_uint, device: *mut nvmlDevice_t);
    nvmlDeviceGetHandleBySerial: (serial: *const c_char, device: *mut nvmlDevice_t);
    nvmlDeviceGetHandleByUUID: (uuid: *const c_char, device: *mut nvmlDevice_t);
    nvmlDeviceGetHandleByUUIDV: (uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t);
    nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2: (pci_bus_id: *const c_char,
        device: *mut nvmlDevice_t);
    nvmlDeviceGetName: (device: nvmlDevice_t, name: *mut c_char, length: c_uint);
    nvmlDeviceGetBrand: (device: nvmlDevice_t, kind: *mut nvmlBrandType_t);
    nvmlDeviceGetIndex: (device: nvmlDevice_t, index: *mut c_uint);
    nvmlDeviceGetSerial: (device: nvmlDevice_t, serial: *mut c_char, length: c_uint);
    nvmlDeviceGetUUID: (device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
    nvmlDeviceGetMinorNumber: (device: nvmlDevice_t, minor_number: *mut c_uint);
    nvmlDeviceGetBoardId: (device: nvmlDevice_t, board_id: *mut c_uint);
    nvmlDeviceGetMultiGpuBoard: (device: nvmlDevice_t, multi_gpu_bool: *mut c_uint);
    nvmlDeviceGetBoardPartNumber: (device: nvmlDevice_t, part_number: *mut c_char, length: c_uint);
    nvmlDeviceGetVbiosVersion: (device: nvmlDevice_t, version: *mut c_char, length: c_uint);
    nvmlDeviceOnSameBoard: (device1: nvmlDevice_t, device2: nvmlDevice_t, on_same_board: *mut c_int);
    nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3: (device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t);
    nvmlDeviceGetPciInfoExt: (device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t);
    nvmlDeviceGetArchitecture: (device: nvmlDevice_t, arch: *mut c_uint);
    nvmlDeviceGetCudaComputeCapability: (device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int);
    nvmlDeviceGetNumGpuCores: (device: nvmlDevice_t, num_cores: *mut c_uint);
    nvmlDeviceGetMemoryBusWidth: (device: nvmlDevice_t, bus_width: *mut c_uint);
    nvmlDeviceGetBusType: (device: nvmlDevice_t, kind: *mut c_uint);
    nvmlDeviceGetIrqNum: (device: nvmlDevice_t, irq_num: *mut c_uint);
    nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2: (device: nvmlDevice_t,
        attributes: *mut nvmlDeviceAttributes_t);
    nvmlDeviceGetMemoryInfo: (device: nvmlDevice_t, memory: *mut nvmlMemory_t);
    nvmlDeviceGetMemoryInfo_v2: (device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t);
    nvmlDeviceGetConfComputeProtectedMemoryUsage: (device: nvmlDevice_t, memory: *mut nvmlMemory_t);
    nvmlDeviceGetBAR1MemoryInfo: (device: nvmlDevice_t, bar1_memory: *mut nvmlBAR1Memory_t);
    nvmlDeviceGetMemoryLimits_v1: (device: nvmlDevice_t, limits: *mut nvmlGetMemoryLimits_v1_t);
    nvmlDeviceSetMemoryLimits_v1: (device: nvmlDevice_t, limits: *const nvmlSetMemoryLimits_v1_t);
    nvmlDeviceGetUtilizationRates: (device: nvmlDevice_t, utilization: *mut nvmlUtilization_t);
    nvmlDeviceGetEncoderUtilization: (device: nvmlDevice_t, utilization: *mut c_uint,
        sampling_period_us: *mut c_uint);
    nvmlDeviceGetDecoderUtilization: (device: nvmlDevice_t, utilization: *mut c_uint,
        sampling_period_us: *mut c_uint);
    nvmlDeviceGetJpgUtilization: (device: nvmlDevice_t, utilization: *mut c_uint,
        sampling_period_us: *mut c_uint);
    nvmlDeviceGetOfaUtilization: (device: nvmlDevice_t, utilization: *mut c_uint,
        sampling_period_us: *mut c_uint);
    nvmlDeviceGetSamples: (device: nvmlDevice_t, kind: nvmlSamplingType_t, last_seen_time_stamp: u64,
        sample_val_type: *mut nvmlValueType_t, sample_count: *mut c_uint, samples: *mut nvmlSample_t);
    nvmlDeviceGetFieldValues: (device: nvmlDevice_t, values_count: c_int, values: *mut nvmlFieldValue_t);
    nvmlDeviceGetComputeRunningProcesses: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v1_t);
    nvmlDeviceGetComputeRunningProcesses_v2: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v2_t);
    nvmlDeviceGetComputeRunningProcesses_v3: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_t);
    nvmlDeviceGetGraphicsRunningProcesses: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v1_t);
    nvmlDeviceGetGraphicsRunningProcesses_v2: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v2_t);
    nvmlDeviceGetGraphicsRunningProcesses_v3: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_t);
    nvmlDeviceGetMPSComputeRunningProcesses: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v1_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v2: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v2_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v3: (device: nvmlDevice_t, info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_t);
    nvmlDeviceGetRunningProcessDetailList: (device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_t);
    nvmlDeviceGetProcessUtilization: (device: nvmlDevice_t,
        utilization: *mut nvmlProcessUtilizationSample_t, process_samples_count: *mut c_uint,
        last_seen_time_stamp: u64);
    nvmlDeviceGetProcessesUtilizationInfo: (device: nvmlDevice_t,
        processes_util_info: *mut nvmlProcessesUtilizationInfo_t);
    nvmlDeviceGetAccountingMode: (device: nvmlDevice_t, mode: *mut nvmlEnableState_t);
    nvmlDeviceGetAccountingPids: (device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint);
    nvmlDeviceGetAccountingStats: (device: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);
    nvmlDeviceGetAccountingStats_v2: (device: nvmlDevice_t, stats: *mut nvmlAccountingStats_v2_t);
    nvmlDeviceGetAccountingBufferSize: (device: nvmlDevice_t, buffer_size: *mut c_uint);
    nvmlDeviceGetTemperature: (device: nvmlDevice_t, sensor_type: nvmlTemperatureSensors_t,
        temp: *mut c_uint);
    nvmlDeviceGetTemperatureV: (device: nvmlDevice_t, temperature: *mut nvmlTemperature_t);
    nvmlDeviceGetTemperatureThreshold: (device: nvmlDevice_t,
        threshold_type: nvmlTemperatureThresholds_t, temp: *mut c_uint);
    nvmlDeviceGetFanSpeed: (device: nvmlDevice_t, speed: *mut c_uint);
    nvmlDeviceGetFanSpeed_v2: (device: nvmlDevice_t, fan: c_uint, speed: *mut c_uint);
    nvmlDeviceGetNumFans: (device: nvmlDevice_t, num_fans: *mut c_uint);
    nvmlDeviceGetPerformanceState: (device: nvmlDevice_t, state: *mut nvmlPstates_t);
    nvmlDeviceGetPowerState: (device: nvmlDevice_t, state: *mut nvmlPstates_t);
    nvmlDeviceGetPowerUsage: (device: nvmlDevice_t, power: *mut c_uint);
    nvmlDeviceGetTotalEnergyConsumption: (device: nvmlDevice_t, energy: *mut u64);
    nvmlDeviceGetPowerManagementMode: (device: nvmlDevice_t, mode: *mut nvmlEnableState_t);
    nvmlDeviceGetPowerManagementLimit: (device: nvmlDevice_t, limit: *mut c_uint);
    nvmlDeviceGetPowerManagementDefaultLimit: (device: nvmlDevice_t, default_limit: *mut c_uint);
    nvmlDeviceGetPowerManagementLimitConstraints: (device: nvmlDevice_t, min_limit: *mut c_uint,
        max_limit: *mut c_uint);
    nvmlDeviceGetEnforcedPowerLimit: (device: nvmlDevice_t, limit: *mut c_uint);
    nvmlDeviceGetClock: (device: nvmlDevice_t, clock_type: nvmlClockType_t, clock_id: nvmlClockId_t,
        clock_mhz: *mut c_uint);
    nvmlDeviceGetClockInfo: (device: nvmlDevice_t, kind: nvmlClockType_t, clock: *mut c_uint);
    nvmlDeviceGetMaxClockInfo: (device: nvmlDevice_t, kind: nvmlClockType_t, clock: *mut c_uint);
    nvmlDeviceGetApplicationsClock: (device: nvmlDevice_t, clock_type: nvmlClockType_t,
        clock_mhz: *mut c_uint);
    nvmlDeviceGetDefaultApplicationsClock: (device: nvmlDevice_t, clock_type: nvmlClockType_t,
        clock_mhz: *mut c_uint);
    nvmlDeviceGetMaxCustomerBoostClock: (device: nvmlDevice_t, clock_type: nvmlClockType_t,
        clock_mhz: *mut c_uint);
    nvmlDeviceGetCurrentClocksThrottleReasons: (device: nvmlDevice_t, clocks_throttle_reasons: *mut u64);
    nvmlDeviceGetCurrentClocksEventReasons: (device: nvmlDevice_t, clocks_event_reasons: *mut u64);
    nvmlDeviceGetSupportedClocksThrottleReasons: (device: nvmlDevice_t,
        supported_clocks_throttle_reasons: *mut u64);
    nvmlDeviceGetSupportedClocksEventReasons: (device: nvmlDevice_t,
        supported_clocks_event_reasons: *mut u64);
    nvmlDeviceGetCurrPcieLinkGeneration: (device: nvmlDevice_t, curr_link_gen: *mut c_uint);
    nvmlDeviceGetMaxPcieLinkGeneration: (device: nvmlDevice_t, max_link_gen: *mut c_uint);
    nvmlDeviceGetGpuMaxPcieLinkGeneration: (device: nvmlDevice_t, max_link_gen_device: *mut c_uint);
    nvmlDeviceGetCurrPcieLinkWidth: (device: nvmlDevice_t, curr_link_width: *mut c_uint);
    nvmlDeviceGetMaxPcieLinkWidth: (device: nvmlDevice_t, max_link_width: *mut c_uint);
    nvmlDeviceGetPcieSpeed: (device: nvmlDevice_t, pcie_speed: *mut c_uint);
    nvmlDeviceGetPcieThroughput: (device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, value: *mut c_uint);
    nvmlDeviceGetPcieReplayCounter: (device: nvmlDevice_t, value: *mut c_uint);
    nvmlDeviceGetEccMode: (device: nvmlDevice_t, current: *mut nvmlEnableState_t,
        pending: *mut nvmlEnableState_t);
    nvmlDeviceGetDefaultEccMode: (device: nvmlDevice_t, default_mode: *mut nvmlEnableState_t);
    nvmlDeviceGetTotalEccErrors: (device: nvmlDevice_t, error_type: nvmlMemoryErrorType_t,
        counter_type: nvmlEccCounterType_t, ecc_counts: *mut u64);
    nvmlDeviceGetMemoryErrorCounter: (device: nvmlDevice_t, error_type: nvmlMemoryErrorType_t,
        counter_type: nvmlEccCounterType_t, location_type: nvmlMemoryLocation_t, count: *mut u64);
    nvmlDeviceGetRemappedRows: (device: nvmlDevice_t, corr_rows: *mut c_uint, unc_rows: *mut c_uint,
        is_pending: *mut c_uint, failure_occurred: *mut c_uint);
    nvmlDeviceGetComputeMode: (device: nvmlDevice_t, mode: *mut nvmlComputeMode_t);
    nvmlDeviceGetPersistenceMode: (device: nvmlDevice_t, mode: *mut nvmlEnableState_t);
    nvmlDeviceGetDisplayMode: (device: nvmlDevice_t, display: *mut nvmlEnableState_t);
    nvmlDeviceGetDisplayActive: (device: nvmlDevice_t, is_active: *mut nvmlEnableState_t);
    nvmlDeviceGetVirtualizationMode: (device: nvmlDevice_t, virtual_mode: *mut nvmlGpuVirtualizationMode_t);
    nvmlDeviceGetMigMode: (device: nvmlDevice_t, current_mode: *mut c_uint, pending_mode: *mut c_uint);
    nvmlDeviceGetMaxMigDeviceCount: (device: nvmlDevice_t, count: *mut c_uint);
    nvmlDeviceGetMigDeviceHandleByIndex: (device: nvmlDevice_t, index: c_uint,
        mig_device: *mut nvmlDevice_t);
    nvmlDeviceIsMigDeviceHandle: (device: nvmlDevice_t, is_mig_device: *mut c_uint);
    nvmlDeviceGetTopologyCommonAncestor: (device1: nvmlDevice_t, device2: nvmlDevice_t,
        path_info: *mut nvmlGpuTopologyLevel_t);
    nvmlDeviceGetTopologyNearestGpus: (device: nvmlDevice_t, level: nvmlGpuTopologyLevel_t,
        count: *mut c_uint, device_array: *mut nvmlDevice_t);
    nvmlDeviceGetP2PStatus: (device1: nvmlDevice_t, device2: nvmlDevice_t,
        p2p_index: nvmlGpuP2PCapsIndex_t, p2p_status: *mut nvmlGpuP2PStatus_t);
    nvmlDeviceGetNvLinkState: (device: nvmlDevice_t, link: c_uint, is_active: *mut nvmlEnableState_t);
    nvmlDeviceGetNvLinkVersion: (device: nvmlDevice_t, link: c_uint, version: *mut c_uint);
    nvmlDeviceGetNvLinkCapability: (device: nvmlDevice_t, link: c_uint,
        capability: nvmlNvLinkCapability_t, cap_result: *mut c_uint);
    nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2: (device: nvmlDevice_t,
        link: c_uint, pci: *mut nvmlPciInfo_t);
    nvmlDeviceGetCpuAffinity: (device: nvmlDevice_t, cpu_set_size: c_uint, cpu_set: *mut u64);
    nvmlDeviceGetCpuAffinityWithinScope: (device: nvmlDevice_t, cpu_set_size: c_uint, cpu_set: *mut u64,
        scope: c_uint);
    nvmlDeviceGetMemoryAffinity: (device: nvmlDevice_t, node_set_size: c_uint, node_set: *mut u64,
        scope: c_uint);
    nvmlDeviceGetNumaNodeId: (device: nvmlDevice_t, node: *mut c_uint);
    nvmlEventSetCreate: (set: *mut nvmlEventSet_t);
    nvmlEventSetFree: (set: nvmlEventSet_t);
    nvmlEventSetWait, nvmlEventSetWait_v2: (set: nvmlEventSet_t, data: *mut nvmlEventData_t,
        timeout_ms: c_uint);
    nvmlDeviceRegisterEvents: (device: nvmlDevice_t, event_types: u64, set: nvmlEventSet_t);
    nvmlDeviceGetSupportedEventTypes: (device: nvmlDevice_t, event_types: *mut u64);
}

/// Makes the crate's public names and macros from the list. `$d` is a dollar sign, for the macros made here.
macro_rules! define {
    ([] $d:tt $($($name:ident),+: $arguments:tt;)*) => {
        /// The names of all typed functions of NVML, in the order of the list.
        pub const TYPED: &[&str] = &["nvmlErrorString", $($(stringify!($name)),+),*];

        /// The function pointer type of every typed function, under its name.
        pub mod fn_types {
            use super::super::*;
            use crate::result::nvmlReturn_t;
            use std::ffi::{c_char, c_int, c_uint, c_void};

            /// A pointer to `nvmlErrorString`.
            pub type nvmlErrorString = unsafe extern "C" fn(result: nvmlReturn_t) -> *const c_char;
            $($(function_type! { nvmlReturn_t $name $arguments })+)*
        }

        /// Hands the prototype of one NVML function to a macro; see the documentation of the crate.
        #[macro_export]
        macro_rules! nvml_signature {
            (nvmlErrorString, $d callback:ident ! { $d($d extra:tt)* }) => {
                $d callback! { { $d($d extra)* } nvmlErrorString (result: nvmlReturn_t) -> *const c_char }
            };
            $($(
                ($name, $d callback:ident ! { $d($d extra:tt)* }) => {
                    $d callback! { { $d($d extra)* } $name $arguments -> nvmlReturn_t }
                };
            )+)*
            ($d name:ident, $d($d rest:tt)*) => {
                compile_error! { concat!("driver-api has no prototype of `", stringify!($d name), "`: add it below crates/driver-api/src") }
            };
        }

        /// Hands every NVML prototype that returns a status to a macro; see the documentation of the crate.
        #[macro_export]
        macro_rules! nvml_functions {
            ($d callback:ident ! { $d($d extra:tt)* }) => {
                $d callback! { { $d($d extra)* } $($($name $arguments -> nvmlReturn_t;)+)* }
            };
        }
    };
}

nvml_list! { [define] $ }
