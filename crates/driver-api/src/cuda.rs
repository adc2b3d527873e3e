//! The CUDA driver API: handles, values, structures, and the list of prototypes.
//!
//! Source: CUDA Driver API reference. Spelling is CUDA's, so that a name found there is found here.
#![allow(non_camel_case_types, non_snake_case, reason = "CUDA's spelling")]

mod codes;
mod constants;
mod functions;
mod structs;

use std::ffi::{c_int, c_uint, c_void};

pub use codes::{device::*, execution::*, graph::*, memory::*};
pub use constants::*;
pub use functions::{TYPED, fn_types};
pub use structs::{device::*, execution::*, graph::*, memory::*};

use crate::result::CUresult;

/// A device, by its ordinal in this process.
pub type CUdevice = c_int;
/// An address in a device's (or the unified) address space.
pub type CUdeviceptr = u64;
/// A texture object.
pub type CUtexObject = u64;
/// A surface object.
pub type CUsurfObject = u64;
/// A device address of the interface before CUDA 3.2.
pub type CUdeviceptr_v1 = c_uint;
/// A physical allocation made by `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;
/// A logical endpoint of the fabric.
pub type CUlogicalEndpointId = u32;
/// The condition of a conditional node.
pub type CUgraphConditionalHandle = u64;
/// Attributes of a stream carry the ids of launch attributes.
pub type CUstreamAttrID = CUlaunchAttributeID;
/// Attributes of a stream carry the values of launch attributes.
pub type CUstreamAttrValue = CUlaunchAttributeValue;
/// Attributes of a kernel node carry the ids of launch attributes.
pub type CUkernelNodeAttrID = CUlaunchAttributeID;
/// Attributes of a kernel node carry the values of launch attributes.
pub type CUkernelNodeAttrValue = CUlaunchAttributeValue;

/// A function that a stream calls on the host.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// A callback of `cuStreamAddCallback`.
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;
/// Shared memory (bytes) that a block of the given size needs.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;
/// The function that is called for each node when a stream is recaptured into a graph.
pub type CUgraphRecaptureCallback = Option<
    unsafe extern "C" fn(
        *mut c_void,
        CUgraphNode,
        *const CUgraphNodeParams,
        *const CUgraphNodeParams,
        CUgraphRecaptureStatus,
    ) -> CUresult,
>;

handles! {
    /// A context.
    CUcontext
    /// A green context.
    CUgreenCtx
    /// A loaded module.
    CUmodule
    /// A function of a module; launches also take a [`CUkernel`] in its place.
    CUfunction
    /// A library: code that is not yet bound to a context.
    CUlibrary
    /// A kernel of a library.
    CUkernel
    /// A pending linker invocation.
    CUlinkState
    /// A stream; 0 is the default stream, 1 and 2 are [`CU_STREAM_LEGACY`] and [`CU_STREAM_PER_THREAD`].
    CUstream
    /// An event.
    CUevent
    /// A graph.
    CUgraph
    /// A node of a graph.
    CUgraphNode
    /// An executable graph.
    CUgraphExec
    /// A kernel node that device code may update.
    CUgraphDeviceNode
    /// An object of the program's that graphs keep references to.
    CUuserObject
    /// A memory pool.
    CUmemoryPool
    /// An array.
    CUarray
    /// A mipmapped array.
    CUmipmappedArray
    /// Imported external memory.
    CUexternalMemory
    /// An imported external semaphore.
    CUexternalSemaphore
    /// A texture reference.
    CUtexref
    /// A surface reference.
    CUsurfref
    /// A resource of a graphics interface.
    CUgraphicsResource
    /// A description of device resources.
    CUdevResourceDesc
    /// An operation of a checkpoint.
    CUcheckpointOperationHandle
}
