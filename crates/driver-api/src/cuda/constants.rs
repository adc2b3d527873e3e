//! Constants that are no enumeration in the C interface: special handles, sizes, flag bits.

use super::CUstream;
use std::ffi::{c_int, c_uint};

/// The legacy default stream, named explicitly.
pub const CU_STREAM_LEGACY: CUstream = CUstream(1);
/// The calling thread's own default stream, named explicitly.
pub const CU_STREAM_PER_THREAD: CUstream = CUstream(2);
/// The host, where a device ordinal is expected.
pub const CU_DEVICE_CPU: c_int = -1;
/// No device.
pub const CU_DEVICE_INVALID: c_int = -2;
/// Bytes of an IPC handle.
pub const CU_IPC_HANDLE_SIZE: usize = 64;
/// `cuMemHostAlloc`: every context sees the memory as pinned.
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
/// `cuMemHostAlloc`: mapped into the device's address space.
pub const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
/// `cuMemHostAlloc`: write-combined.
pub const CU_MEMHOSTALLOC_WRITECOMBINED: c_uint = 4;
/// `cuMemHostRegister`: every context sees the memory as pinned.
pub const CU_MEMHOSTREGISTER_PORTABLE: c_uint = 1;
/// `cuMemHostRegister`: mapped into the device's address space.
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 2;
/// `cuMemHostRegister`: the range is I/O memory.
pub const CU_MEMHOSTREGISTER_IOMEMORY: c_uint = 4;
/// `cuMemHostRegister`: the device only reads.
pub const CU_MEMHOSTREGISTER_READ_ONLY: c_uint = 8;
/// 3D array: `Depth` counts layers.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 0x01;
/// 3D array: surfaces may be bound to it.
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 0x02;
/// 3D array: six faces (or six times the layers).
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 0x04;
/// 3D array: for texture gather.
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 0x08;
/// 3D array: a depth texture.
pub const CUDA_ARRAY3D_DEPTH_TEXTURE: c_uint = 0x10;
/// 3D array: may be a colour target of a graphics interface.
pub const CUDA_ARRAY3D_COLOR_ATTACHMENT: c_uint = 0x20;
/// 3D array: sparse; memory is mapped into it later.
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
/// 3D array: no memory until it is mapped.
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;
/// `CUmemAllocationProp.allocFlags.usage`: for tiles of sparse arrays.
pub const CU_MEM_CREATE_USAGE_TILE_POOL: u16 = 1;
/// `CUmemPoolProps.usage`: for the decompression engine.
pub const CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS: u16 = 2;
/// `cuLaunchCooperativeKernelMultiDevice`: do not wait for earlier work before.
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC: c_uint = 1;
/// `cuLaunchCooperativeKernelMultiDevice`: later work does not wait after.
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC: c_uint = 2;
/// The end of a launch's `extra` list.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// In a launch's `extra` list: the next entry points to the packed arguments.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// In a launch's `extra` list: the next entry points to the size of the packed arguments in bytes.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;
