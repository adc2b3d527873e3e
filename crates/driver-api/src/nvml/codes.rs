//! Values of NVML's enumerations: numbers with named constants, as for the driver API.

codes! {
    /// Capabilities of an NVLink.
    nvmlNvLinkCapability_t "NVML_NVLINK_CAP_" {
        P2P_SUPPORTED = 0, SYSMEM_ACCESS = 1, P2P_ATOMICS = 2, SYSMEM_ATOMICS = 3, SLI_BRIDGE = 4,
        VALID = 5,
    }
    /// Connection of two GPUs, from the nearest to the farthest.
    nvmlGpuTopologyLevel_t "NVML_TOPOLOGY_" {
        INTERNAL = 0, SINGLE = 10, MULTIPLE = 20, HOSTBRIDGE = 30, NODE = 40, SYSTEM = 50,
    }
    /// Whether two GPUs reach each other.
    nvmlGpuP2PStatus_t "NVML_P2P_STATUS_" {
        OK = 0, CHIPSET_NOT_SUPPORTED = 1, GPU_NOT_SUPPORTED = 2, IOH_TOPOLOGY_NOT_SUPPORTED = 3,
        DISABLED_BY_REGKEY = 4, NOT_SUPPORTED = 5, UNKNOWN = 6,
    }
    /// Kind of access between two GPUs.
    nvmlGpuP2PCapsIndex_t "NVML_P2P_CAPS_INDEX_" {
        READ = 0, WRITE = 1, NVLINK = 2, ATOMICS = 3, PCI = 4, PROP = 4, UNKNOWN = 5,
    }
    /// Kinds of samples.
    nvmlSamplingType_t "NVML_" {
        TOTAL_POWER_SAMPLES = 0, GPU_UTILIZATION_SAMPLES = 1, MEMORY_UTILIZATION_SAMPLES = 2,
        ENC_UTILIZATION_SAMPLES = 3, DEC_UTILIZATION_SAMPLES = 4, PROCESSOR_CLK_SAMPLES = 5,
        MEMORY_CLK_SAMPLES = 6, MODULE_POWER_SAMPLES = 7, JPG_UTILIZATION_SAMPLES = 8,
        OFA_UTILIZATION_SAMPLES = 9,
    }
    /// Direction of PCIe traffic.
    nvmlPcieUtilCounter_t "NVML_PCIE_UTIL_" {
        TX_BYTES = 0, RX_BYTES = 1,
    }
    /// Type of a value, which selects the member of `nvmlValue_t`.
    nvmlValueType_t "NVML_VALUE_TYPE_" {
        DOUBLE = 0, UNSIGNED_INT = 1, UNSIGNED_LONG = 2, UNSIGNED_LONG_LONG = 3, SIGNED_LONG_LONG = 4,
        SIGNED_INT = 5, UNSIGNED_SHORT = 6,
    }
    /// Off or on.
    nvmlEnableState_t "NVML_FEATURE_" {
        DISABLED = 0, ENABLED = 1,
    }
    /// Brand of a board.
    nvmlBrandType_t "NVML_BRAND_" {
        UNKNOWN = 0, QUADRO = 1, TESLA = 2, NVS = 3, GRID = 4, GEFORCE = 5, TITAN = 6, NVIDIA_VAPPS = 7,
        NVIDIA_VPC = 8, NVIDIA_VCS = 9, NVIDIA_VWS = 10, NVIDIA_CLOUD_GAMING = 11, NVIDIA_VGAMING = 11,
        QUADRO_RTX = 12, NVIDIA_RTX = 13, NVIDIA = 14, GEFORCE_RTX = 15, TITAN_RTX = 16, NVIDIA_DLA = 17,
        NVIDIA_NPU = 19, NVIDIA_VGAMEDEV = 18,
    }
    /// A temperature limit.
    nvmlTemperatureThresholds_t "NVML_TEMPERATURE_THRESHOLD_" {
        SHUTDOWN = 0, SLOWDOWN = 1, MEM_MAX = 2, GPU_MAX = 3, ACOUSTIC_MIN = 4, ACOUSTIC_CURR = 5,
        ACOUSTIC_MAX = 6, GPS_CURR = 7,
    }
    /// A temperature sensor.
    nvmlTemperatureSensors_t "NVML_TEMPERATURE_" {
        GPU = 0, GPU_MAX = 1,
    }
    /// Compute mode: which processes may make contexts.
    nvmlComputeMode_t "NVML_COMPUTEMODE_" {
        DEFAULT = 0, EXCLUSIVE_THREAD = 1, PROHIBITED = 2, EXCLUSIVE_PROCESS = 3,
    }
    /// Kind of a memory error.
    nvmlMemoryErrorType_t "NVML_MEMORY_ERROR_TYPE_" {
        CORRECTED = 0, UNCORRECTED = 1,
    }
    /// Period over which errors are counted.
    nvmlEccCounterType_t "NVML_" {
        VOLATILE_ECC = 0, AGGREGATE_ECC = 1,
    }
    /// A clock domain.
    nvmlClockType_t "NVML_CLOCK_" {
        GRAPHICS = 0, SM = 1, MEM = 2, VIDEO = 3,
    }
    /// Kind of clock, such as the current one or a default.
    nvmlClockId_t "NVML_CLOCK_ID_" {
        CURRENT = 0, APP_CLOCK_TARGET = 1, APP_CLOCK_DEFAULT = 2, CUSTOMER_BOOST_MAX = 3,
    }
    /// Performance state; 0 is the fastest.
    nvmlPstates_t "NVML_PSTATE_" {
        P0 = 0, P1 = 1, P2 = 2, P3 = 3, P4 = 4, P5 = 5, P6 = 6, P7 = 7, P8 = 8, P9 = 9, P10 = 10, P11 = 11,
        P12 = 12, P13 = 13, P14 = 14, P15 = 15, UNKNOWN = 32,
    }
    /// Location of a memory error.
    nvmlMemoryLocation_t "NVML_MEMORY_LOCATION_" {
        L1_CACHE = 0, L2_CACHE = 1, DRAM = 2, DEVICE_MEMORY = 2, REGISTER_FILE = 3, TEXTURE_MEMORY = 4,
        TEXTURE_SHM = 5, CBU = 6, SRAM = 7,
    }
    /// Virtualization mode of a GPU.
    nvmlGpuVirtualizationMode_t "NVML_GPU_VIRTUALIZATION_MODE_" {
        NONE = 0, PASSTHROUGH = 1, VGPU = 2, HOST_VGPU = 3, HOST_VSGA = 4,
    }
}
