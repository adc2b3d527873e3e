//! NVML's structures, with the layout of NVML 13. Fields have NVML's names.

use super::*;
use std::ffi::{c_char, c_int, c_uint};

structs! {
    /// A host interface card (HIC).
    struct nvmlHwbcEntry_t [36] {
        hwbcId: c_uint, firmwareVersion: [c_char; 32],
    }
    /// A PCI address; `busIdLegacy` has a domain of 16 bits. Versions 1 and 2 of the call end before `busId`.
    struct nvmlPciInfo_t [68] {
        busIdLegacy: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint,
        pciSubSystemId: c_uint, busId: [c_char; 32],
    }
    /// Attributes of a MIG device; memory in MiB.
    struct nvmlDeviceAttributes_t [40] {
        multiprocessorCount: c_uint, sharedCopyEngineCount: c_uint, sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint, sharedJpegCount: c_uint, sharedOfaCount: c_uint,
        gpuInstanceSliceCount: c_uint, computeInstanceSliceCount: c_uint, memorySizeMB: u64,
    }
    /// Memory of a device, in bytes.
    struct nvmlMemory_t [24] {
        total: u64, free: u64, used: u64,
    }
    /// Memory of a device, in bytes. Here `reserved` is not part of `used`: total = reserved + free + used.
    struct nvmlMemory_v2_t [40] {
        version: c_uint, total: u64, reserved: u64, free: u64, used: u64,
    }
    /// Memory of the BAR1 window, in bytes.
    struct nvmlBAR1Memory_t [24] {
        bar1Total: u64, bar1Free: u64, bar1Used: u64,
    }
    /// Memory limits to set for a cgroup, in bytes; `nameSpace` is its directory.
    struct nvmlSetMemoryLimits_v1_t [24] {
        nameSpace: *const c_char, softLimit: u64, hardLimit: u64,
    }
    /// Memory limits of a cgroup, in bytes; `nameSpace` is its directory.
    struct nvmlGetMemoryLimits_v1_t [32] {
        nameSpace: *const c_char, softLimit: u64, hardLimit: u64, currentUsed: u64,
    }
    /// Utilisation over the last sample period, in percent.
    struct nvmlUtilization_t [8] {
        gpu: c_uint, memory: c_uint,
    }
    /// A sample; time in microseconds.
    struct nvmlSample_t [16] {
        timeStamp: u64, sampleValue: nvmlValue_t,
    }
    /// A field asked for, and its value; times in microseconds.
    struct nvmlFieldValue_t [40] {
        fieldId: c_uint, scopeId: c_uint, timestamp: i64, latencyUsec: i64, valueType: nvmlValueType_t,
        nvmlReturn: nvmlReturn_t, value: nvmlValue_t,
    }
    /// A process and its memory in bytes.
    struct nvmlProcessInfo_v1_t [16] {
        pid: c_uint, usedGpuMemory: u64,
    }
    /// A process, its memory in bytes and its MIG instance.
    struct nvmlProcessInfo_v2_t [24] {
        pid: c_uint, usedGpuMemory: u64, gpuInstanceId: c_uint, computeInstanceId: c_uint,
    }
    /// Utilisation of one process in percent; time in microseconds.
    struct nvmlProcessUtilizationSample_t [32] {
        pid: c_uint, timeStamp: u64, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint,
    }
    /// Accounting of one process; memory in bytes, time in milliseconds.
    struct nvmlAccountingStats_t [56] {
        gpuUtilization: c_uint, memoryUtilization: c_uint, maxMemoryUsage: u64, time: u64,
        startTime: u64, isRunning: c_uint, reserved: [c_uint; 5],
    }
    /// Accounting of one process with sums; memory in bytes, time in milliseconds.
    struct nvmlAccountingStats_v2_t [64] {
        pid: c_uint, isRunning: c_uint, gpuUtilization: c_uint, memoryUtilization: c_uint,
        maxMemoryUsage: u64, sampleCount: c_uint, sumGpuUtil: u64, sumFbUtil: u64, time: u64,
        startTime: u64,
    }
    /// An event. Version 1 of the call ends before `gpuInstanceId`.
    struct nvmlEventData_t [32] {
        device: nvmlDevice_t, eventType: u64, eventData: u64, gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
    /// A UUID, as text or as bytes by `type`.
    struct nvmlUUID_v1_t [52] {
        version: c_uint, r#type: c_uint, value: nvmlUUIDValue_t,
    }
    /// A PCI address with class codes.
    struct nvmlPciInfoExt_v1_t [64] {
        version: c_uint, domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint,
        pciSubSystemId: c_uint, baseClass: c_uint, subClass: c_uint, busId: [c_char; 32],
    }
    /// A value, by its type.
    union nvmlValue_t [8] {
        dVal: f64, siVal: c_int, uiVal: c_uint, ulVal: u64, ullVal: u64, sllVal: i64, usVal: u16,
    }
    /// A list of processes; `mode` is 0 compute, 1 graphics, 2 MPS.
    struct nvmlProcessDetailList_v1_t [24] {
        version: c_uint, mode: c_uint, numProcArrayEntries: c_uint,
        procArray: *mut nvmlProcessDetail_v1_t,
    }
    /// A list of utilisation samples; time in microseconds.
    struct nvmlProcessesUtilizationInfo_v1_t [24] {
        version: c_uint, processSamplesCount: c_uint, lastSeenTimeStamp: u64,
        procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
    }
    /// A sensor and its temperature in degrees Celsius.
    struct nvmlTemperature_v1_t [12] {
        version: c_uint, sensorType: nvmlTemperatureSensors_t, temperature: c_int,
    }
    /// A UUID as text or as bytes.
    union nvmlUUIDValue_t [41] {
        str: [c_char; 41], bytes: [u8; 16],
    }
    /// A process and its memory in bytes.
    struct nvmlProcessDetail_v1_t [32] {
        pid: c_uint, usedGpuMemory: u64, gpuInstanceId: c_uint, computeInstanceId: c_uint,
        usedGpuCcProtectedMemory: u64,
    }
    /// Utilisation of one process in percent; time in microseconds.
    struct nvmlProcessUtilizationInfo_v1_t [40] {
        timeStamp: u64, pid: c_uint, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint,
        jpgUtil: c_uint, ofaUtil: c_uint,
    }
}
