//! Constants that are no enumeration in NVML's interface: versions of structures, flags, sizes.

use super::*;
use std::ffi::c_uint;

/// Value of a structure's `version` field: its size in bytes, and its version from bit 24.
const fn struct_version<T>(version: u32) -> c_uint {
    #[expect(clippy::cast_possible_truncation, reason = "NVML's structures are far below 16 MiB")]
    let size = size_of::<T>() as u32;
    size | version << 24
}

/// `version` of [`nvmlMemory_v2_t`].
pub const nvmlMemory_v2: c_uint = struct_version::<nvmlMemory_v2_t>(2);
/// `version` of [`nvmlUUID_v1_t`].
pub const nvmlUUID_v1: c_uint = struct_version::<nvmlUUID_v1_t>(1);
/// `version` of [`nvmlPciInfoExt_v1_t`].
pub const nvmlPciInfoExt_v1: c_uint = struct_version::<nvmlPciInfoExt_v1_t>(1);
/// `version` of [`nvmlProcessDetailList_v1_t`].
pub const nvmlProcessDetailList_v1: c_uint = struct_version::<nvmlProcessDetailList_v1_t>(1);
/// `version` of [`nvmlProcessesUtilizationInfo_v1_t`].
pub const nvmlProcessesUtilizationInfo_v1: c_uint = struct_version::<nvmlProcessesUtilizationInfo_v1_t>(1);
/// `version` of [`nvmlTemperature_v1_t`].
pub const nvmlTemperature_v1: c_uint = struct_version::<nvmlTemperature_v1_t>(1);

/// `nvmlInitWithFlags`: succeed without any GPU.
pub const NVML_INIT_FLAG_NO_GPUS: c_uint = 1;
/// `nvmlInitWithFlags`: do not attach the GPUs.
pub const NVML_INIT_FLAG_NO_ATTACH: c_uint = 2;
/// The value for a memory figure that is not available.
pub const NVML_VALUE_NOT_AVAILABLE: u64 = u64::MAX;
/// A hard memory limit of a cgroup that is none.
pub const NVML_DEVICE_MEMORY_LIMIT_MAX: u64 = u64::MAX;
/// The MIG instance id of a process outside MIG.
pub const NVML_NO_INSTANCE: c_uint = u32::MAX;
/// `nvmlUUID_t.type`: text.
pub const NVML_UUID_TYPE_ASCII: c_uint = 1;
/// `nvmlUUID_t.type`: 16 bytes.
pub const NVML_UUID_TYPE_BINARY: c_uint = 2;
/// MIG is off.
pub const NVML_DEVICE_MIG_DISABLE: c_uint = 0;
/// `NVML_DEVICE_MIG_ENABLE`: MIG mode is on.
pub const NVML_DEVICE_MIG_ENABLE: c_uint = 1;
/// Maximum number of links of a device.
pub const NVML_NVLINK_MAX_LINKS: c_uint = 36;
/// Bus of a device: PCI Express.
pub const NVML_BUS_TYPE_PCIE: c_uint = 2;
/// Event: a corrected memory error.
pub const nvmlEventTypeSingleBitEccError: u64 = 0x1;
/// Event: an uncorrected memory error.
pub const nvmlEventTypeDoubleBitEccError: u64 = 0x2;
/// Event: the performance state changed.
pub const nvmlEventTypePState: u64 = 0x4;
/// Event: a critical XID.
pub const nvmlEventTypeXidCriticalError: u64 = 0x8;
/// Event: a clock changed.
pub const nvmlEventTypeClock: u64 = 0x10;
/// Reason for lower clocks: the GPU is idle.
pub const nvmlClocksEventReasonGpuIdle: u64 = 0x1;
/// Reason for lower clocks: the hardware's thermal protection.
pub const nvmlClocksEventReasonHwThermalSlowdown: u64 = 0x40;

/// Architectures, with the numbers of `nvmlDeviceGetArchitecture`.
pub mod architecture {
    use std::ffi::c_uint;

    /// Compute capability 3.x.
    pub const KEPLER: c_uint = 2;
    /// Compute capability 5.x.
    pub const MAXWELL: c_uint = 3;
    /// Compute capability 6.x.
    pub const PASCAL: c_uint = 4;
    /// Compute capability 7.0 and 7.2.
    pub const VOLTA: c_uint = 5;
    /// Compute capability 7.5.
    pub const TURING: c_uint = 6;
    /// Compute capability 8.0 to 8.7.
    pub const AMPERE: c_uint = 7;
    /// Compute capability 8.9.
    pub const ADA: c_uint = 8;
    /// Compute capability 9.x.
    pub const HOPPER: c_uint = 9;
    /// Compute capability 10.x and 12.x.
    pub const BLACKWELL: c_uint = 10;
    /// Any other.
    pub const UNKNOWN: c_uint = 0xffff_ffff;
}
