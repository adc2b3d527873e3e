//! Offsets of NVML's structures, as a C compiler gives them for NVML 13's header (x86-64).

use std::mem::offset_of;
use vcuda_driver_api::nvml::*;

macro_rules! offsets {
    ($($name:ident { $($field:ident $offset:literal),* $(,)? })*) => {$(
        $(assert_eq!(offset_of!($name, $field), $offset, concat!(stringify!($name), ".", stringify!($field)));)*
    )*};
}

#[test]
fn fields_lie_where_c_puts_them() {
    offsets! {
        nvmlHwbcEntry_t {
            hwbcId 0, firmwareVersion 4,
        }
        nvmlPciInfo_t {
            busIdLegacy 0, domain 16, bus 20, device 24, pciDeviceId 28, pciSubSystemId 32, busId 36,
        }
        nvmlDeviceAttributes_t {
            multiprocessorCount 0, sharedCopyEngineCount 4, sharedDecoderCount 8, sharedEncoderCount 12,
            sharedJpegCount 16, sharedOfaCount 20, gpuInstanceSliceCount 24,
            computeInstanceSliceCount 28, memorySizeMB 32,
        }
        nvmlMemory_t {
            total 0, free 8, used 16,
        }
        nvmlMemory_v2_t {
            version 0, total 8, reserved 16, free 24, used 32,
        }
        nvmlBAR1Memory_t {
            bar1Total 0, bar1Free 8, bar1Used 16,
        }
        nvmlSetMemoryLimits_v1_t {
            nameSpace 0, softLimit 8, hardLimit 16,
        }
        nvmlGetMemoryLimits_v1_t {
            nameSpace 0, softLimit 8, hardLimit 16, currentUsed 24,
        }
        nvmlUtilization_t {
            gpu 0, memory 4,
        }
        nvmlSample_t {
            timeStamp 0, sampleValue 8,
        }
        nvmlFieldValue_t {
            fieldId 0, scopeId 4, timestamp 8, latencyUsec 16, valueType 24, nvmlReturn 28, value 32,
        }
        nvmlProcessInfo_v1_t {
            pid 0, usedGpuMemory 8,
        }
        nvmlProcessInfo_v2_t {
            pid 0, usedGpuMemory 8, gpuInstanceId 16, computeInstanceId 20,
        }
        nvmlProcessUtilizationSample_t {
            pid 0, timeStamp 8, smUtil 16, memUtil 20, encUtil 24, decUtil 28,
        }
        nvmlAccountingStats_t {
            gpuUtilization 0, memoryUtilization 4, maxMemoryUsage 8, time 16, startTime 24, isRunning 32,
            reserved 36,
        }
        nvmlAccountingStats_v2_t {
            pid 0, isRunning 4, gpuUtilization 8, memoryUtilization 12, maxMemoryUsage 16,
            sampleCount 24, sumGpuUtil 32, sumFbUtil 40, time 48, startTime 56,
        }
        nvmlEventData_t {
            device 0, eventType 8, eventData 16, gpuInstanceId 24, computeInstanceId 28,
        }
        nvmlUUID_v1_t {
            version 0, r#type 4, value 8,
        }
        nvmlPciInfoExt_v1_t {
            version 0, domain 4, bus 8, device 12, pciDeviceId 16, pciSubSystemId 20, baseClass 24,
            subClass 28, busId 32,
        }
        nvmlProcessDetailList_v1_t {
            version 0, mode 4, numProcArrayEntries 8, procArray 16,
        }
        nvmlProcessesUtilizationInfo_v1_t {
            version 0, processSamplesCount 4, lastSeenTimeStamp 8, procUtilArray 16,
        }
        nvmlTemperature_v1_t {
            version 0, sensorType 4, temperature 8,
        }
        nvmlProcessDetail_v1_t {
            pid 0, usedGpuMemory 8, gpuInstanceId 16, computeInstanceId 20, usedGpuCcProtectedMemory 24,
        }
        nvmlProcessUtilizationInfo_v1_t {
            timeStamp 0, pid 8, smUtil 12, memUtil 16, encUtil 20, decUtil 24, jpgUtil 28, ofaUtil 32,
        }
    }
}
