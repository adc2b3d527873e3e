//! Values of `cuDeviceGetAttribute`: those of a Hopper GPU by the CUDA C++ Programming Guide ("Compute Capabilities",
//! technical specifications) and the attributes' documentation. The machine's configuration takes precedence.

use vcuda_driver_api::prelude::*;

use crate::object::device::Device;

/// Shared memory per multiprocessor (bytes).
pub(crate) const SHARED_PER_MULTIPROCESSOR: i32 = 228 << 10;
/// Maximum shared memory of a block with opt-in (bytes).
pub(crate) const SHARED_PER_BLOCK_OPT_IN: i32 = 227 << 10;
/// Maximum shared memory of a block without opt-in (bytes).
pub(crate) const SHARED_PER_BLOCK: i32 = 48 << 10;
/// Shared memory that the driver reserves per block (bytes).
pub(crate) const SHARED_RESERVED: i32 = 1 << 10;
/// Registers per multiprocessor.
pub(crate) const REGISTERS: i32 = 65536;
/// Maximum threads per block.
pub(crate) const THREADS_PER_BLOCK: i32 = 1024;
/// Maximum resident threads per multiprocessor.
pub(crate) const THREADS_PER_MULTIPROCESSOR: i32 = 2048;
/// Maximum resident blocks per multiprocessor.
pub(crate) const BLOCKS_PER_MULTIPROCESSOR: i32 = 32;
/// Maximum pitch of a copy (bytes).
pub(crate) const MAX_PITCH: i32 = i32::MAX;
/// Alignment of texture rows and of the pitch of `cuMemAllocPitch` (bytes).
pub(crate) const PITCH_ALIGNMENT: usize = 512;

/// The newest attribute in driver-api (CUDA 13).
const NEWEST: CUdevice_attribute = CUdevice_attribute::GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED;

/// Domain, bus, device, function.
pub(crate) type PciAddress = (u32, u32, u32, u32);

/// Reads `[domain:]bus:device[.function]`, hexadecimal.
pub(crate) fn pci_address(text: &str) -> Option<PciAddress> {
    let hex = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let (place, function) =
        text.split_once('.').map_or((text, Some(0)), |(place, digits)| (place, hex(digits)));
    let parts: Option<Vec<u32>> = place.split(':').map(hex).collect();
    match parts?.as_slice() {
        [domain, bus, device] => Some((*domain, *bus, *device, function?)),
        [bus, device] => Some((0, *bus, *device, function?)),
        _ => None,
    }
}

/// An attribute's value; `None` if this driver does not know it.
pub(crate) fn value(device: &Device, attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    let config = &device.config;
    let (major, minor) = config.capability();
    let pci = pci_address(&config.pci_bus_id).unwrap_or_default();
    Some(match attribute {
        A::MULTIPROCESSOR_COUNT => config.sms as i32,
        A::COMPUTE_CAPABILITY_MAJOR => major as i32,
        A::MULTICAST_SUPPORTED => i32::from(major >= 9),
        A::COMPUTE_CAPABILITY_MINOR => minor as i32,
        A::CLOCK_RATE => config.clock_mhz.saturating_mul(1000) as i32,
        A::MEMORY_CLOCK_RATE => config.memory_clock_mhz.saturating_mul(1000) as i32,
        A::GLOBAL_MEMORY_BUS_WIDTH => config.memory_bus_bits as i32,
        A::L2_CACHE_SIZE => config.l2_bytes as i32,
        A::PCI_DOMAIN_ID => pci.0 as i32,
        A::PCI_BUS_ID => pci.1 as i32,
        A::PCI_DEVICE_ID => pci.2 as i32,
        A::INTEGRATED => i32::from(config.integrated),
        A::MULTI_GPU_BOARD_GROUP_ID => device.gpu as i32,
        A::CLUSTER_LAUNCH | A::TENSOR_MAP_ACCESS_SUPPORTED => i32::from(major >= 9),
        _ => fixed(attribute)?,
    })
}

/// Attributes that all simulated GPUs have in common.
fn fixed(attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::MAX_THREADS_PER_BLOCK | A::MAX_BLOCK_DIM_X | A::MAX_BLOCK_DIM_Y => THREADS_PER_BLOCK,
        A::MAX_BLOCK_DIM_Z => 64,
        A::MAX_GRID_DIM_X => i32::MAX,
        A::MAX_GRID_DIM_Y | A::MAX_GRID_DIM_Z => 65535,
        A::MAX_SHARED_MEMORY_PER_BLOCK => SHARED_PER_BLOCK,
        A::TOTAL_CONSTANT_MEMORY => 65536,
        A::WARP_SIZE => 32,
        A::MAX_PITCH => MAX_PITCH,
        A::MAX_REGISTERS_PER_BLOCK | A::MAX_REGISTERS_PER_MULTIPROCESSOR => REGISTERS,
        A::TEXTURE_ALIGNMENT | A::SURFACE_ALIGNMENT => 512,
        A::TEXTURE_PITCH_ALIGNMENT => 32,
        A::ASYNC_ENGINE_COUNT => 3,
        A::MAX_THREADS_PER_MULTIPROCESSOR => THREADS_PER_MULTIPROCESSOR,
        A::MAX_BLOCKS_PER_MULTIPROCESSOR => BLOCKS_PER_MULTIPROCESSOR,
        A::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => SHARED_PER_MULTIPROCESSOR,
        A::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_PER_BLOCK_OPT_IN,
        A::RESERVED_SHARED_MEMORY_PER_BLOCK => SHARED_RESERVED,
        A::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        A::MAX_PERSISTING_L2_CACHE_SIZE => 32 << 20,
        A::MAX_ACCESS_POLICY_WINDOW_SIZE => 128 << 20,
        A::MEM_SYNC_DOMAIN_COUNT => 4,
        A::GPU_DIRECT_RDMA_WRITES_ORDERING => 100,
        A::NUMA_ID | A::HOST_NUMA_ID => -1,
        _ => return largest_image(attribute).or_else(|| switch(attribute)),
    })
}

/// Extents and layers of the largest textures and surfaces, in elements.
fn largest_image(attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::MAXIMUM_TEXTURE1D_WIDTH
        | A::MAXIMUM_TEXTURE2D_WIDTH
        | A::MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        | A::MAXIMUM_SURFACE2D_WIDTH => 131_072,
        A::MAXIMUM_TEXTURE2D_HEIGHT | A::MAXIMUM_SURFACE2D_HEIGHT => 65536,
        A::MAXIMUM_TEXTURE2D_LINEAR_HEIGHT => 65000,
        A::MAXIMUM_TEXTURE2D_LINEAR_PITCH => 2_097_120,
        A::MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1 << 28,
        A::MAXIMUM_TEXTURE3D_WIDTH
        | A::MAXIMUM_TEXTURE3D_HEIGHT
        | A::MAXIMUM_TEXTURE3D_DEPTH
        | A::MAXIMUM_SURFACE3D_WIDTH
        | A::MAXIMUM_SURFACE3D_HEIGHT
        | A::MAXIMUM_SURFACE3D_DEPTH => 16384,
        A::MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE | A::MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE => 8192,
        A::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
        | A::MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | A::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | A::MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | A::MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | A::MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | A::MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | A::MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        | A::MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        | A::MAXIMUM_TEXTURECUBEMAP_WIDTH
        | A::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | A::MAXIMUM_SURFACE1D_WIDTH
        | A::MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | A::MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | A::MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | A::MAXIMUM_SURFACECUBEMAP_WIDTH
        | A::MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH => 32768,
        A::MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | A::MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | A::MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | A::MAXIMUM_SURFACE2D_LAYERED_LAYERS => 2048,
        A::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS | A::MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => 2046,
        _ => return None,
    })
}

/// Value of an attribute that is 0 or 1.
fn switch(attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    match attribute {
        A::GPU_OVERLAP
        | A::CAN_MAP_HOST_MEMORY
        | A::CONCURRENT_KERNELS
        | A::ECC_ENABLED
        | A::UNIFIED_ADDRESSING
        | A::CAN_TEX2D_GATHER
        | A::STREAM_PRIORITIES_SUPPORTED
        | A::GLOBAL_L1_CACHE_SUPPORTED
        | A::LOCAL_L1_CACHE_SUPPORTED
        | A::MANAGED_MEMORY
        | A::CONCURRENT_MANAGED_ACCESS
        | A::COMPUTE_PREEMPTION_SUPPORTED
        | A::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CAN_USE_64_BIT_STREAM_MEM_OPS
        | A::CAN_USE_STREAM_WAIT_VALUE_NOR
        | A::CAN_USE_STREAM_MEM_OPS_V1
        | A::CAN_USE_64_BIT_STREAM_MEM_OPS_V1
        | A::CAN_USE_STREAM_WAIT_VALUE_NOR_V1
        | A::COOPERATIVE_LAUNCH
        | A::COOPERATIVE_MULTI_DEVICE_LAUNCH
        | A::HOST_REGISTER_SUPPORTED
        | A::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | A::READ_ONLY_HOST_REGISTER_SUPPORTED
        | A::DMA_BUF_SUPPORTED
        | A::MEMORY_POOLS_SUPPORTED
        // File descriptors (`CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`).
        | A::MEMPOOL_SUPPORTED_HANDLE_TYPES
        | A::SPARSE_CUDA_ARRAY_SUPPORTED
        | A::DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
        | A::UNIFIED_FUNCTION_POINTERS => Some(1),
        // Not simulated, which a real GPU may also report.
        attribute if (1..=A::MULTICAST_SUPPORTED.0 + 1).contains(&attribute.0) => Some(0),
        attribute if (A::HOST_NUMA_ID.0..=A::HOST_NUMA_MULTINODE_IPC_SUPPORTED.0).contains(&attribute.0) => {
            Some(0)
        }
        attribute if (1..=NEWEST.0).contains(&attribute.0) && crate::object::process::cuda_version() >= 13000 => {
            Some(0)
        }
        // Attributes newer than the simulated driver.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_in_every_documented_form() {
        assert_eq!(pci_address("0000:3b:00.0"), Some((0, 0x3b, 0, 0)));
        assert_eq!(pci_address("0001:3B:1f"), Some((1, 0x3b, 0x1f, 0)));
        assert_eq!(pci_address("3b:00.0"), Some((0, 0x3b, 0, 0)));
        for wrong in ["", "x", "1:2:3:4.0", "3b", "3b:00.x"] {
            assert_eq!(pci_address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn attributes_newer_than_the_driver_are_invalid() {
        assert_eq!(fixed(CUdevice_attribute(0)), None);
        assert_eq!(fixed(CUdevice_attribute(100_000)), None);
        assert_eq!(fixed(CUdevice_attribute::MEMORY_POOLS_SUPPORTED), Some(1));
        assert_eq!(fixed(CUdevice_attribute::INTEGRATED), Some(0));
    }
}
